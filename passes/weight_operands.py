"""Operands that hold quantized weights, computed when they are read, and the products on them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.errors import LucidFxError, ModelError
from lucid_fx.ir.derived import DerivedTensor, Together
from lucid_fx.ir.naming import Names
from lucid_fx.ops.emit import CONTRIB, NATIVE, Emit
from lucid_fx.quantization.block import ScaleDtype
from lucid_fx.quantization.weight_only import (
    QuantizedMatrix,
    WeightConfig,
    WeightsOp,
    operand_shapes,
)

LAYOUT = 1
"""Version of the packed layout that `NativeMatMul.pack` writes."""


@dataclass(frozen=True)
class StoredMatrix:
    """The operands of one weight as initializers, and the factor of its scales."""

    codes: ir.Value
    scales: ir.Value
    zero_points: ir.Value | None
    global_scale: float


@dataclass(frozen=True)
class Product:
    """``x`` times a stored weight ``[k, n]``, plus a bias ``[n]``."""

    x: ir.Value
    k: int
    n: int
    config: WeightConfig
    weight: StoredMatrix
    bias: NDArray[np.float32] | None


class Source(Protocol):
    """A constant matrix of the model."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def tensor(self) -> ir.TensorProtocol:
        """Where its numbers are."""

    @property
    def shape(self) -> tuple[int, int]:
        """``(K, N)``."""


AnySource = TypeVar("AnySource", bound=Source)


class WeightOperands(Generic[AnySource]):
    """The operands of each weight once, whoever reads it.

    Args:
        model: where they go.
        op: whose operands they are.
        codes: gives the codes of a weight; called when an operand is read.
        factor: gives the global scale; called at once.
    """

    def __init__(
        self,
        model: ir.Model,
        op: WeightsOp,
        codes: Callable[[AnySource, WeightConfig], QuantizedMatrix],
        factor: Callable[[AnySource, WeightConfig], float] = lambda weight, config: 1.0,
    ) -> None:
        self.op, self.codes, self.factor = op, codes, factor
        self.names, self._together = Names(model), Together()
        self._done: dict[tuple[object, ...], StoredMatrix] = {}

    def of(self, emit: Emit, weight: AnySource, config: WeightConfig, x: ir.Value) -> StoredMatrix:
        """The operands for a product of ``x``; their numbers are computed when they are read."""
        scales = scale_type(x, config, self.op)
        key = (weight, config, scales)
        if key not in self._done:
            self._done[key] = self._stored(emit, weight, config, scales)
        return self._done[key]

    def _stored(
        self, emit: Emit, weight: AnySource, config: WeightConfig, scales: Any
    ) -> StoredMatrix:
        compute = functools.partial(self._compute, weight, config, scales)
        factor, key = _named(weight, lambda: self.factor(weight, config)), object()
        values: dict[str, ir.Value] = {}
        shapes = operand_shapes(config, *weight.shape, self.op, scales)
        for name, (dtype, shape) in shapes.items():
            take = functools.partial(self._together.take, key, name, compute)
            kind = ir.DataType.from_numpy(dtype)
            tensor = DerivedTensor(take, kind, shape, weight.tensor, f"{weight.name}_{name}")
            values[name] = emit.constant(tensor, f"{weight.name}_{name}")
        zeros = values.get("zero_points")
        return StoredMatrix(values["codes"], values["scales"], zeros, factor)

    def _compute(
        self, weight: AnySource, config: WeightConfig, scales: Any
    ) -> Mapping[str, NDArray[Any]]:
        def compute() -> Mapping[str, NDArray[Any]]:
            matrix = self.codes(weight, config)
            return matrix.operands() if self.op == "matmulint4" else matrix.nbits_operands(scales)

        found: Mapping[str, NDArray[Any]] = _named(weight, compute)
        return found


def scale_type(x: ir.Value, config: WeightConfig, op: WeightsOp) -> Any:
    """The type of MatMulNBits' scales, which is that of the activations that it takes.

    Scales that float16 does not hold need float32 activations.
    """
    half = x.dtype == ir.DataType.FLOAT16 and config.scale is ScaleDtype.F16
    return np.float16 if half and op == "matmulnbits" else np.float32


def product_node(emit: Emit, op: WeightsOp, product: Product, like: ir.Value) -> ir.Value:
    """Write the node and give its output, of the type of its activations."""
    config, weight = product.config, product.weight
    shape = {"K": product.k, "N": product.n, "block_size": config.block_size}
    x, kind = product.x, product.x.dtype
    if op == "matmulint4":
        attributes: dict[str, Any] = {**shape, "value": config.op_value}
        attributes["compute"] = config.compute
        if weight.global_scale != 1:
            attributes["global_scale"] = weight.global_scale
        attributes["layout"] = LAYOUT
        inputs = [x, weight.codes, weight.scales, weight.zero_points, _bias(emit, product, None)]
        return emit.op(
            "MatMulInt4", _trimmed(inputs), attributes, domain=NATIVE, like=like, dtype=kind
        )
    level = 4 if config.compute == "int8" else 1
    attributes = {**shape, "bits": config.bits, "accuracy_level": level}
    within = weight.scales.dtype
    if within != kind:
        x = emit.op("Cast", [x], {"to": int(ir.DataType.FLOAT)}, like=x, dtype=within)
    bias = _bias(emit, product, within)
    inputs = [x, weight.codes, weight.scales, weight.zero_points, None, bias]
    output = emit.op(
        "MatMulNBits", _trimmed(inputs), attributes, domain=CONTRIB, like=like, dtype=within
    )
    if within != kind and kind is not None:
        output = emit.op("Cast", [output], {"to": int(kind)}, like=like, dtype=kind)
    return output


def _bias(emit: Emit, product: Product, dtype: ir.DataType | None) -> ir.Value | None:
    if product.bias is None:
        return None
    array = product.bias if dtype is None else product.bias.astype(dtype.numpy())
    return emit.constant(array, f"{emit.before.name}_bias")


def _trimmed(inputs: list[ir.Value | None]) -> list[ir.Value | None]:
    """Inputs without the omitted ones at the end."""
    while inputs[-1] is None:
        inputs = inputs[:-1]
    return inputs


def _named(weight: Source, compute: Callable[[], Any]) -> Any:
    """Run a computation on a weight, and name the weight where it fails."""
    try:
        return compute()
    except LucidFxError:
        raise
    except ValueError as error:
        raise ModelError(str(error), tensor=weight.name) from error
