"""`QParams` as QuantizeLinear and DequantizeLinear have them, and back.

ONNX keeps the zero point in the integer type of the codes, and says of the scheme no more than
which axis the scales run along. Only arrays and IR nodes are touched here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.walk import attribute, constant, input_at, is_op
from lucid_fx.quantization.dtypes import NAMED, QDtype, QScheme
from lucid_fx.quantization.qparams import QParams

DEFAULT_AXIS = 1
"""The axis of vector scales where a node names none."""


class QDQConstants(NamedTuple):
    """The constant inputs and the attributes of a QuantizeLinear or DequantizeLinear node.

    Attributes:
        scale: real value of one code step, float32, ``()`` or ``(C,)``.
        zero_point: the code of real zero in the type of the codes, which is also how the node
            knows that type.
        attributes: ``axis`` for a vector scale, else nothing.
    """

    scale: NDArray[np.float32]
    zero_point: NDArray[Any]
    attributes: dict[str, int]


def qdq_constants(qparams: QParams) -> QDQConstants:
    """What a Q or DQ node on this grid needs."""
    attributes = {} if qparams.ch_axis is None else {"axis": qparams.ch_axis}
    return QDQConstants(qparams.scale, qparams.zero_point_codes(), attributes)


def qparams_of_node(node: ir.Node, qscheme: QScheme | None = None) -> QParams:
    """The grid of a QuantizeLinear or DequantizeLinear node with constant scale and zero point.

    Args:
        node: of ONNX itself or onnxruntime's own.
        qscheme: how the grid was derived, where it is known. None: symmetric if every zero point
            is the middle of the grid, which an affine grid can have by chance.

    Raises:
        ValueError: another op, a scale that is computed at run time or differs along blocks, a
            code type that is no integer.
    """
    if not (_is_qdq(node, "") or _is_qdq(node, "com.microsoft")):
        raise ValueError(f"node {node.name!r} is a {node.op_type}, not a Q or DQ")
    scale = constant(input_at(node, 1))
    if scale is None:
        raise ValueError(f"the scale of node {node.name!r} is computed at run time")
    if scale.ndim > 1 or attribute(node, "block_size", 0):
        raise ValueError(f"node {node.name!r} has scales of shape {scale.shape}, for blocks")
    if input_at(node, 2) is not None and constant(input_at(node, 2)) is None:
        raise ValueError(f"the zero point of node {node.name!r} is computed at run time")
    qdtype = _code_type(node)
    zero_point = constant(input_at(node, 2))
    if zero_point is None:
        zero_point = np.zeros(scale.shape)
    axis = attribute(node, "axis", DEFAULT_AXIS) if scale.ndim else None
    if qscheme is None:
        middle = bool((zero_point.astype(np.float64) == qdtype.middle).all())
        qscheme = QScheme(
            f"per_{'tensor' if axis is None else 'channel'}_{'symmetric' if middle else 'affine'}"
        )
    return QParams(scale.astype(np.float32), zero_point.astype(np.float32), qscheme, qdtype, axis)


def _is_qdq(node: ir.Node, domain: str) -> bool:
    return is_op(node, "QuantizeLinear", "DequantizeLinear", domain=domain)


def _code_type(node: ir.Node) -> QDtype:
    """The grid of all codes of the type that a node reads or writes."""
    quantizes = node.op_type == "QuantizeLinear"
    codes = node.outputs[0] if quantizes else input_at(node, 0)
    known = [value.dtype for value in (input_at(node, 2), codes) if value is not None]
    if quantizes and (named := attribute(node, "output_dtype", 0)):
        known.append(ir.DataType(named))
    # a Q that names no type writes uint8
    found = next((t for t in known if t is not None), ir.DataType.UINT8)
    for qdtype in NAMED:
        if found == ir.DataType.from_numpy(qdtype.numpy_dtype):
            return qdtype
    raise ValueError(f"node {node.name!r} has codes of type {found.name}, which are no integers")
