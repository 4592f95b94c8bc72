"""Models that other tools have put on codes, repacked without a change of any weight."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from checks import check_pass, check_unchanged, model_from

import lucid_fx
from lucid_fx import models
from lucid_fx.errors import ConfigError
from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.walk import attribute, constant, nodes
from lucid_fx.native.library import load
from lucid_fx.passes.adopt_matmul_nbits import AdoptMatMulNbits
from lucid_fx.passes.eliminate_dead import EliminateDead
from lucid_fx.passes.name_everything import NameEverything
from lucid_fx.passes.pipeline import run_pipeline
from lucid_fx.quantization.block import QuantValue, ScaleDtype
from lucid_fx.quantization.weight_only import QuantizedMatrix, WeightConfig
from lucid_fx.runtime.session import Session

pytestmark = pytest.mark.skipif(load() is None, reason="packing is native")

K, N, BLOCK = 80, 24, 32
HEADER = '<ir_version: 11, opset_import: ["" : 21, "com.microsoft" : 1, "lucid_fx" : 1]>\n'
INT4 = {ir.DataType.INT4, ir.DataType.UINT4}


def text(array: Any) -> str:
    return "{" + ", ".join(f"{x:g}" for x in np.ravel(array)) + "}"


def random(bits: int, zero_points: bool) -> dict[str, np.ndarray]:
    """Operands of MatMulNBits, each bit of the codes and of the zero points random."""
    rng, blocks = np.random.default_rng(bits), -(-K // BLOCK)
    found = {
        "w": rng.integers(0, 256, (N, blocks, BLOCK * bits // 8), dtype=np.uint8),
        "s": rng.standard_normal((N, blocks)).astype(np.float32),
    }
    if zero_points:
        found["z"] = rng.integers(0, 256, (N, -(-blocks * bits // 8)), dtype=np.uint8)
    return found


def declared(arrays: dict[str, np.ndarray]) -> str:
    kinds = {"uint8": "uint8", "float32": "float", "int32": "int32"}
    return ", ".join(
        f"{kinds[a.dtype.name]}[{','.join(map(str, a.shape))}] {name} = {text(a)}"
        for name, a in arrays.items()
    )


def nbits(bits: int, arrays: dict[str, np.ndarray], more: str = "", rest: str = "") -> str:
    z = "z" if "z" in arrays else ""
    return f"""{HEADER}g (float[3,{K}] x) => (float[3,{N}] y) <{declared(arrays)}> {{
        [m] y = com.microsoft.MatMulNBits
            <K = {K}, N = {N}, bits = {bits}, block_size = {BLOCK}, accuracy_level = 1{more}>
            (x, w, s{", " + z if z or rest else ""}{rest}) }}"""


def real(model: ir.Model) -> np.ndarray:
    """The weights that the only MatMulInt4 of a model multiplies by."""
    (node,) = [n for n in nodes(model) if n.op_type == "MatMulInt4"]
    value, block = attribute(node, "value"), attribute(node, "block_size")
    config = WeightConfig(
        QuantValue[f"Q{value[1]}F"], block, ScaleDtype.F32, zero_points=value[0] == "U"
    )
    names = ("codes", "scales", "zero_points")
    operands = {name: constant(v) for name, v in zip(names, node.inputs[1:4], strict=False)}
    shape = attribute(node, "K"), attribute(node, "N")
    given: Any = {name: array for name, array in operands.items() if array is not None}
    return QuantizedMatrix.from_operands(config, *shape, given).dequantize()


@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_are_the_same_bit_for_bit(bits: int, zero_points: bool) -> None:
    arrays = random(bits, zero_points)
    model = model_from(nbits(bits, arrays))
    eye = np.eye(K, dtype=np.float32)
    twin = model.clone()
    twin.graph.inputs[0].shape = twin.graph.outputs[0].shape = None
    (wanted,) = Session(twin).run({"x": eye})
    assert AdoptMatMulNbits().run(model)
    np.testing.assert_array_equal(real(model), wanted)
    ledger = ledger_of(model)
    value = f"{'U' if zero_points else 'Q'}{bits}{'' if zero_points else 'F'}"
    assert ledger["m"].reason == f"repacked for MatMulInt4: {value}"


def test_the_node_and_its_bias() -> None:
    bias = np.arange(N, dtype=np.float32)
    arrays = random(4, False) | {"b": bias}
    check_pass(
        nbits(4, arrays, rest=", , b"),
        AdoptMatMulNbits(),
        f"""{HEADER}g (float[3,{K}] x) => (float[3,{N}] y)
        <uint8[2,768] w_codes, float[2,3,16] w_scales, float[{N}] m_bias = {text(bias)}> {{
        y = lucid_fx.MatMulInt4 <K = {K}, N = {N}, block_size = {BLOCK}, value = "Q4F",
            compute = "float32", layout = 1> (x, w_codes, w_scales, , m_bias) }}""",
    )


@pytest.mark.parametrize(("level", "compute"), [(0, "float32"), (1, "float32"), (4, "int8")])
def test_products_run_as_they_did(level: int, compute: str) -> None:
    source = nbits(4, random(4, True)).replace("accuracy_level = 1", f"accuracy_level = {level}")
    for wanted, asked in ((compute, None), ("int8", "int8")):
        model = model_from(source)
        AdoptMatMulNbits(asked).run(model)  # type: ignore[arg-type]
        assert [attribute(n, "compute") for n in nodes(model)] == [wanted]


@pytest.mark.parametrize("kind", ["int4", "uint4", "int8", "uint8"])
@pytest.mark.parametrize("zero_points", [False, True])
def test_dequantize_in_front_of_a_product(kind: str, zero_points: bool) -> None:
    rng, dtype = np.random.default_rng(0), ir.DataType[kind.upper()]
    bits = 4 if dtype in INT4 else 8
    low = -(1 << (bits - 1)) if kind[0] == "i" else 0
    blocks = -(-K // BLOCK)

    def codes(*shape: int) -> np.ndarray:
        return rng.integers(low, low + (1 << bits), shape).astype(dtype.numpy())

    arrays = {
        "w": codes(K, N),
        "s": rng.standard_normal((blocks, N)).astype(np.float32),
    } | ({"z": codes(blocks, N)} if zero_points else {})
    given = ", ".join(arrays)
    model = model_from(
        f"""{HEADER}g (float[{K},{K}] x) => (float[{K},{N}] y) <{
            ", ".join(
                f"{kind if n != 's' else 'float'}[{a.shape[0]},{a.shape[1]}] {n}"
                for n, a in arrays.items()
            )
        }> {{
        d = DequantizeLinear <axis = 0, block_size = {BLOCK}> ({given})
        [m] y = MatMul (x, d) }}""",
        prepare=False,
    )
    for name, array in arrays.items():
        value = next(v for v in model.graph.node(0).inputs if v is not None and v.name == name)
        value.const_value = ir.tensor(array, name=name)
        model.graph.register_initializer(value)
    NameEverything().run(model)
    ledger_of(model).open(model)
    steps = arrays["s"].repeat(BLOCK, axis=0)[:K]
    zeros = arrays.get("z", np.zeros((blocks, N))).astype(np.float32).repeat(BLOCK, axis=0)[:K]
    wanted = (arrays["w"].astype(np.float32) - zeros) * steps
    run_pipeline(model, (AdoptMatMulNbits(), EliminateDead()))
    assert [n.op_type for n in nodes(model)] == ["MatMulInt4"]
    np.testing.assert_array_equal(real(model), wanted)
    (y,) = Session(model).run({"x": np.eye(K, dtype=np.float32)})
    np.testing.assert_array_equal(y, wanted)


FLOAT_ZEROS = {"z": np.full((N, 3), 7.5, np.float32)}
GROUPS = {"g": np.zeros(K, np.int32)}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (nbits(4, random(4, False) | GROUPS, rest=", g"), "its groups are reordered (g_idx)"),
        (nbits(4, random(4, False) | FLOAT_ZEROS), "its zero points are FLOAT, and MatMulInt4"),
        (
            nbits(4, random(4, False)).replace("block_size = 32", "block_size = 512"),
            "it has blocks of 512",
        ),
        (nbits(4, random(4, False), ", weight_prepacked = 1"), "packed for one kind of machine"),
        (
            f"""{HEADER}g (float[3,4] x) => (float[3,2] y)
            <int8[4,2] w = {{1,2,3,4,5,6,7,8}}, float[2] s = {{1, 2}}> {{
            d = DequantizeLinear <axis = 1> (w, s) [m] y = MatMul (x, d) }}""",
            "its scales are not of blocks",
        ),
        (
            f"""{HEADER}g (float[3,4] x, int8[4,2] w) => (float[3,2] y) <float s = {{2}}> {{
            d = DequantizeLinear (w, s) [m] y = MatMul (x, d) }}""",
            "its codes, scales or zero points are computed",
        ),
    ],
)
def test_what_stays_says_why(source: str, reason: str) -> None:
    model = check_unchanged(source, AdoptMatMulNbits())
    assert reason in ledger_of(model)["m"].reason
    assert ledger_of(model)["m"].status == "refused"


def test_a_model_of_other_tools() -> None:
    byte_lm = models.get("byte_lm")
    theirs = lucid_fx.quantize_weights(byte_lm.path(), "uint4", op="matmulnbits", compute="float32")
    ours = lucid_fx.adopt_matmul_nbits(theirs)
    assert sum(n.op_type == "MatMulInt4" for n in nodes(ours.model)) == 19
    feed = byte_lm.evaluation(1).feeds[0]
    (a,), (b,) = theirs.run(feed).values(), ours.run(feed).values()
    np.testing.assert_allclose(b, a, rtol=0, atol=2e-4)


def test_it_needs_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucid_fx.weight_only.load", lambda: None)
    with pytest.raises(ConfigError, match="not installed; the model runs as it is"):
        lucid_fx.adopt_matmul_nbits(models.get("byte_lm").path())
