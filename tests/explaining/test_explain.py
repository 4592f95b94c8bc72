"""explain: its claims against onnxruntime's own graph, and seeded defects found by name."""

from __future__ import annotations

import json
import sys
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

import lucid_fx
import lucid_fx.models as zoo
from lucid_fx import cli
from lucid_fx.errors import ConfigError
from lucid_fx.explaining import RULES, explain
from lucid_fx.ir.serde import from_text
from lucid_fx.ir.walk import nodes
from lucid_fx.runtime.session import Session

sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))
from _optimised import Counts, count

SHIPPED = ("fmnist_dw", "byte_lm")
FETCHED = ("ppocr_rec", "ppocr_cls", "ppocr_det", "silero_vad", "silero_vad_ifless", "minilm_l3")
NAMES = [*SHIPPED, *(pytest.param(name, marks=pytest.mark.fetched) for name in FETCHED)]
RNG = np.random.default_rng(0)


@cache
def converted(name: str, format: str) -> lucid_fx.GraphModule:
    model = zoo.get(name)
    try:
        path = model.path()
    except zoo.FetchError as error:
        if error.unreachable:
            pytest.skip(str(error))
        raise
    samples = 4 if name == "ppocr_det" else 16
    return lucid_fx.quantize(path, model.calibration(samples), format=format)


def truth(module: lucid_fx.GraphModule) -> Counts:
    """What onnxruntime's own dump holds, counted by the benchmark's code."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimised.onnx"
        Session(module.model, threads=1, optimized_path=path)
        return count(onnx.load(path))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("format", ["qoperator", "qdq"])
def test_counts_agree_with_onnxruntime(name: str, format: str) -> None:
    module = converted(name, format)
    found, wanted = explain(module), truth(module)
    assert found.counts.get("integer", 0) == wanted.integer_nodes
    assert found.counts.get("float", 0) == wanted.float_nodes + wanted.float_elementwise
    assert found.counts.get("qdq", 0) == wanted.leftover_qdq + wanted.dynamic_quantize
    assert sum(found.counts.values()) == sum(wanted.ops.values())
    assert found.optimised_ops == wanted.ops


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("format", ["qoperator", "qdq"])
def test_every_node_has_one_fate(name: str, format: str) -> None:
    module = converted(name, format)
    found = explain(module)
    assert [fate.node for fate in found.fates] == [node.name for node in nodes(module.model)]
    for fate in found.fates:
        assert bool(fate.into) == (fate.fate in ("kept", "fused"))


def test_what_convert_makes_has_none_of_the_graver_findings() -> None:
    for name in SHIPPED:
        for format in ("qoperator", "qdq"):
            rules = {finding.rule for finding in explain(converted(name, format)).findings}
            assert not rules & {"dequantized-weight", "float-bias", "move-between-qdq"}


def qdq_model(
    body: str, initializers: str, inputs: str = "float[1,4,6,6] x"
) -> lucid_fx.GraphModule:
    """A model of a few nodes, with 8-bit grids s, z (activations) and ws, wz (weights)."""
    grids = "float s = {0.05}, uint8 z = {128}, float ws = {0.01}, int8 wz = {0}"
    return lucid_fx.trace(
        from_text(
            f"""<ir_version: 8, opset_import: ["" : 17]>
            g ({inputs}) => (float y) <{grids}, {initializers}> {{ {body} }}"""
        ),
        allow_quantized=True,
    )


def codes(*shape: int, low: int = -100, high: int = 100) -> str:
    numbers = RNG.integers(low, high, shape).ravel()
    return f"int8[{','.join(map(str, shape))}] w = {{{', '.join(map(str, numbers))}}}"


def first_finding(module: lucid_fx.GraphModule, **options: str) -> tuple[str, str]:
    finding = explain(module, **options).findings[0]
    return finding.rule, finding.node


def test_a_dequantized_weight_of_a_conv_is_named_first() -> None:
    module = qdq_model(
        """
        wr = DequantizeLinear(w, ws, wz)
        c = Conv(x, wr)
        y = Relu(c)
        """,
        codes(3, 4, 3, 3),
    )
    rule, node = first_finding(module)
    assert rule == "dequantized-weight"
    assert "Conv" in node or node


def test_a_float_bias_that_makes_a_float_gemm_is_named_first() -> None:
    bias = ", ".join(str(v) for v in RNG.standard_normal(5).round(3))
    module = qdq_model(
        """
        q = QuantizeLinear(x, s, z)
        xr = DequantizeLinear(q, s, z)
        wr = DequantizeLinear(w, ws, wz)
        m = MatMul(xr, wr)
        y = Add(m, b)
        """,
        f"{codes(8, 5)}, float[5] b = {{{bias}}}",
        "float[4,8] x",
    )
    found = explain(module)
    assert "Gemm" in found.optimised_ops
    assert {found.findings[0].rule, found.findings[1].rule} == {"float-bias", "dequantized-weight"}


def test_a_transpose_between_q_and_dq_is_named_first() -> None:
    module = qdq_model(
        """
        q = QuantizeLinear(x, s, z)
        t = Transpose<perm = [0, 3, 1, 2]>(q)
        xr = DequantizeLinear(t, s, z)
        wr = DequantizeLinear(w, ws, wz)
        c = Conv(xr, wr)
        cq = QuantizeLinear(c, s, z)
        y = DequantizeLinear(cq, s, z)
        """,
        codes(3, 6, 3, 3),
    )
    (transpose,) = (node for node in nodes(module.model) if node.op_type == "Transpose")
    assert first_finding(module) == ("move-between-qdq", transpose.name)


def test_a_kernel_that_can_saturate_is_named_where_the_cpu_has_no_vnni() -> None:
    body = """
        q = QuantizeLinear(x, s, z)
        xr = DequantizeLinear(q, s, z)
        wr = DequantizeLinear(w, ws, wz)
        c = Conv(xr, wr)
        cq = QuantizeLinear(c, s, z)
        y = DequantizeLinear(cq, s, z)
        """
    loud = qdq_model(body, codes(3, 4, 3, 3, low=100, high=127))
    quiet = qdq_model(body, codes(3, 4, 3, 3, low=-60, high=60))
    assert first_finding(loud, target="cpu-avx2")[0] == "saturating-kernel"
    for module, target in ((loud, "cpu-avx512vnni"), (quiet, "cpu-avx2")):
        rules = [finding.rule for finding in explain(module, target=target).findings]
        assert "saturating-kernel" not in rules


def test_times_cover_the_deployed_nodes() -> None:
    model = zoo.get("byte_lm")
    feeds = [dict(feed) for feed in model.calibration(3)]
    module = converted("byte_lm", "qoperator")
    found = explain(module, float_model=model.path(), data=feeds)
    assert found.times is not None
    assert found.float_times is not None
    assert set(found.times.ops) <= set(found.optimised_ops)
    assert found.times.total == pytest.approx(sum(found.times.nodes.values()))
    assert found.float_times.ops["MatMul"] > 0
    text = found.to_text(3)
    assert "of the float model's" in text
    assert json.loads(found.to_json())["times"]["total"] == found.times.total


def test_command_line_and_fail_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "q.onnx"
    converted("byte_lm", "qoperator").save(path)
    assert cli.main(["explain", str(path)]) == 0
    assert "onnxruntime runs" in capsys.readouterr().out
    arguments = ["explain", str(path), "--target", "cpu-avx2", "--fail-on", "saturating-kernel"]
    assert cli.main(arguments) == 3
    assert "error: --fail-on: saturating-kernel: DynamicQuantizeMatMul can add" in (
        capsys.readouterr().err
    )
    assert cli.main(["explain", str(path), "--fail-on", "nothing"]) == 2
    assert "there is no rule 'nothing'; known are" in capsys.readouterr().err
    assert cli.main(["explain", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["integer"] > 0


def test_unknown_provider() -> None:
    with pytest.raises(ConfigError, match="known are cpu and coreml"):
        explain(converted("byte_lm", "qoperator"), provider="cuda")  # type: ignore[arg-type]


def test_every_rule_has_a_name_and_a_fix() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.fix for rule in RULES)
