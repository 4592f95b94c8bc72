"""The one door through which models come in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from checks import model_from
from small_models import FASHION, fashion

import lucid_fx
from lucid_fx.errors import AlreadyQuantizedError, DataError, ModelError


def text_model(opset: int = 17, ir_version: int = 8) -> ir.Model:
    header = f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>'
    return model_from(f"{header} g (float[2] x) => (float[2] y) {{ y = Relu (x) }}", prepare=False)


def test_every_kind_of_model_is_the_same_model() -> None:
    proto = onnx.load(FASHION.path())
    kinds: list[Any] = [FASHION.path(), str(FASHION.path()), proto, ir.from_proto(proto)]
    texts = {str(lucid_fx.trace(kind)) for kind in kinds}
    assert len(texts) == 1


def test_tracing_a_traced_model_gives_another_one() -> None:
    module = lucid_fx.trace(FASHION.path())
    again = lucid_fx.trace(module)
    assert again is not module and str(again) == str(module)


def test_example_inputs_are_checked() -> None:
    lucid_fx.trace(FASHION.path(), fashion(1)[0])
    with pytest.raises(DataError, match="'image' has dtype float64, expected float32"):
        lucid_fx.trace(FASHION.path(), fashion(1)[0]["image"].astype(np.float64))


@pytest.mark.parametrize(("opset", "ir_version"), [(10, 8), (99, 8), (17, 99)])
def test_versions_that_are_not_taken(opset: int, ir_version: int) -> None:
    with pytest.raises(ModelError, match=str(max(opset, ir_version) if opset > 10 else opset)):
        lucid_fx.trace(text_model(opset, ir_version))


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot take a model from int; give a path"):
        lucid_fx.trace(7)
    with pytest.raises(ModelError):
        lucid_fx.trace(tmp_path / "absent.onnx")


def test_a_quantized_model_is_refused_unless_its_nodes_may_stay(tmp_path: Path) -> None:
    path = tmp_path / "int8.onnx"
    quantized = lucid_fx.quantize(FASHION.path(), fashion(2))
    quantized.save(path)
    with pytest.raises(AlreadyQuantizedError, match=r"quantized already.*--allow-quantized"):
        lucid_fx.trace(path)
    kept = lucid_fx.trace(path, allow_quantized=True)
    image = fashion(1)[0]["image"]
    np.testing.assert_array_equal(kept(image), quantized(image))
    assert kept.ledger.counts() == quantized.ledger.counts()


def test_a_torch_module() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(8 * 64, 4),
    )  # fmt: skip
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    module = lucid_fx.trace(net, x)
    with torch.no_grad():
        wanted = net(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(module(x), wanted, rtol=1e-4, atol=1e-5)
    assert lucid_fx.quantize(module, [x]).ledger.counts()["quantized"] >= 2
    with pytest.raises(ModelError, match="a torch module needs example_inputs"):
        lucid_fx.trace(net)


@pytest.mark.parametrize("given", [{"image": 1}, "abc", [[1, 2], [3]]])
def test_what_is_no_array_is_refused_by_the_name_of_its_input(given: Any) -> None:
    module = lucid_fx.trace(FASHION.path())
    with pytest.raises(DataError, match=r"input 'image' takes an array, not .* (dict|str|list)"):
        module(given)
