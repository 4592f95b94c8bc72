"""One set of numbers in two layouts: both give the same weights, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from lucid_fx.native import library
from lucid_fx.quantization.block import ScaleDtype
from lucid_fx.quantization.weight_only import (
    QuantizedMatrix,
    WeightConfig,
    operand_shapes,
    round_to_nearest,
)
from lucid_fx.runtime.session import Session
from quantization.weight_only.matrices import CONFIGS, weights

native = pytest.mark.skipif(library.load() is None, reason="packing is native")
K, N = 200, 40


def same(found: QuantizedMatrix, wanted: QuantizedMatrix) -> None:
    np.testing.assert_array_equal(found.codes, wanted.codes)
    np.testing.assert_array_equal(found.steps, wanted.steps)
    np.testing.assert_array_equal(found.dequantize(), wanted.dequantize())
    assert (found.zeros is None) == (wanted.zeros is None)
    if found.zeros is not None and wanted.zeros is not None:
        np.testing.assert_array_equal(found.zeros, wanted.zeros)


@native
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_operands_read_back(config: WeightConfig) -> None:
    matrix = round_to_nearest(weights(K, N), config)
    operands = matrix.operands()
    same(QuantizedMatrix.from_operands(config, K, N, operands, matrix.global_scale), matrix)
    found = {name: (array.dtype, array.shape) for name, array in operands.items()}
    assert found == {name: tuple(kind) for name, kind in operand_shapes(config, K, N).items()}


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_nbits_operands_read_back(config: WeightConfig) -> None:
    matrix = round_to_nearest(weights(K, N), config)
    operands = matrix.nbits_operands()
    same(QuantizedMatrix.from_nbits(config, K, N, operands), matrix)
    found = {name: (array.dtype, array.shape) for name, array in operands.items()}
    shapes = operand_shapes(config, K, N, "matmulnbits")
    assert found == {name: tuple(kind) for name, kind in shapes.items()}


def product(op: str, domain: str, operands: dict[str, Any], a: Any, **attributes: Any) -> Any:
    """One node on ``a``, its operands as initializers."""
    values = [ir.Value(name="a", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(a.shape))]
    for name, array in operands.items():
        tensor = ir.tensor(array, name=name)
        values.append(
            ir.Value(
                name=name,
                type=ir.TensorType(tensor.dtype),
                shape=ir.Shape(array.shape),
                const_value=tensor,
            )
        )
    attributes = {name: value for name, value in attributes.items() if value is not None}
    node = ir.node(op, values, attributes, domain=domain, name="product")
    node.outputs[0].name = "y"
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(
        values[:1], node.outputs, nodes=[node], initializers=values[1:], name="g",
        opset_imports={"": 17, domain: 1},
    )  # fmt: skip
    (y,) = Session(ir.Model(graph, ir_version=8)).run({"a": a})
    return y


@native
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_both_ops_multiply_by_the_weights_of_dequantize(config: WeightConfig) -> None:
    """Rows of the identity pick rows of W, so that the comparison is exact."""
    matrix = round_to_nearest(weights(K, N), config)
    eye = np.eye(K, dtype=np.float32)
    shape = {"K": K, "N": N, "block_size": config.block_size}
    ours = product(
        "MatMulInt4", "lucid_fx", matrix.operands(), eye, value=config.op_value, compute="float32",
        global_scale=matrix.global_scale, layout=1, **shape,
    )  # fmt: skip
    theirs = product(
        "MatMulNBits", "com.microsoft", matrix.nbits_operands(), eye, bits=config.bits,
        accuracy_level=1, **shape,
    )  # fmt: skip
    np.testing.assert_array_equal(ours, matrix.dequantize())
    np.testing.assert_array_equal(theirs, matrix.dequantize())


def test_half_scales_are_exact_or_refused() -> None:
    matrix = round_to_nearest(weights(K, N), WeightConfig())
    scales = matrix.nbits_operands(np.float16)["scales"]
    assert scales.dtype == np.float16
    np.testing.assert_array_equal(scales.astype(np.float32), matrix.steps.T)
    wide = round_to_nearest(weights(K, N), WeightConfig(scale=ScaleDtype.F32))
    with pytest.raises(ValueError, match="the scales of Q4F, block 32, F32 scales, rtn are no"):
        wide.nbits_operands(np.float16)


def test_packing_needs_the_native_library(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = round_to_nearest(weights(K, N), WeightConfig())
    monkeypatch.setattr("lucid_fx.quantization.weight_only.matrix.load", lambda: None)
    with pytest.raises(ValueError, match="which is not installed: use MatMulNBits"):
        matrix.operands()
