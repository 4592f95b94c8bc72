"""Models as bytes, text and files; the place where protobufs are touched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from lucid_fx.errors import ModelError
from lucid_fx.ir.derived import plain_errors, require_file
from lucid_fx.ir.mapped import can_map, read_mapped
from lucid_fx.ir.sparse import densified
from lucid_fx.ir.walk import graphs, input_at, is_op

INLINE_LIMIT = 1_600_000_000
"""Bytes of initializers above which a model does not fit into one protobuf (which ends at 2 GB)."""


def load_model(path: str | Path, *, mapped: bool = False, need_data: bool = True) -> ir.Model:
    """Read an ONNX file; external data stays memory-mapped.

    Args:
        path: the file.
        mapped: leave large weights that the file itself holds in it, too.
        need_data: refuse where external data is missing.

    Raises:
        ModelError: no such file, not ONNX, external data missing.
    """
    path = Path(path)
    if not path.is_file():
        raise ModelError(f"there is no file {str(path)!r}")
    try:
        if mapped and can_map(path):
            proto = read_mapped(path)
        else:
            proto = onnx.load(path, load_external_data=False)
        model = from_proto(proto)
        for graph in graphs(model):
            ir.external_data.set_base_dir(graph, path.parent)
    except Exception as error:
        raise ModelError(f"{str(path)!r} is not an ONNX model ({first_line(error)})") from error
    if not model.graph.outputs:
        raise ModelError(f"{str(path)!r} is not an ONNX model (its graph has no outputs)")
    for tensor in tensors(model) if need_data else ():
        require_file(tensor)
    return model


def from_proto(proto: onnx.ModelProto) -> ir.Model:
    """The model of a protobuf, which is not changed; sparse constants become dense ones."""
    model: ir.Model = ir.from_proto(densified(proto))
    return model


def tensors(model: ir.Model) -> list[Any]:
    """All initializer tensors, bodies included."""
    return [
        value.const_value
        for graph in graphs(model)
        for value in graph.initializers.values()
        if value.const_value is not None
    ]


def weight_bytes(model: ir.Model) -> int:
    """Bytes of all initializers."""
    return sum(int(tensor.nbytes) for tensor in tensors(model))


def external_folder(model: ir.Model) -> Path | None:
    """The folder that holds the model's external data, None when all is in memory."""
    for tensor in tensors(model):
        if isinstance(tensor, ir.ExternalTensor):
            return Path(tensor.path).parent
    return None


def model_bytes(model: ir.Model) -> bytes:
    """The serialized model; external tensors stay references."""
    with plain_errors():
        return bytes(ir.to_proto(model).SerializeToString())


def inline_bytes(model: ir.Model) -> int:
    """Bytes of the initializers that a serialized model holds itself."""
    inside = (t for t in tensors(model) if not isinstance(t, ir.ExternalTensor))
    return sum(int(tensor.nbytes) for tensor in inside)


def to_text(model: ir.Model) -> str:
    """Deterministic ONNX text, which `from_text` reads back."""
    return str(onnx.printer.to_text(ir.to_proto(model)))


def from_text(text: str) -> ir.Model:
    """Read ONNX text."""
    return from_proto(onnx.parser.parse_model(text))


def infer_shapes(model: ir.Model) -> None:
    """Fill in types and shapes as far as ONNX can tell them; never fails.

    Declared shapes of graph inputs and outputs stay.
    """
    for _ in range(RANK_ROUNDS):
        _infer_once(model)
        ranks, types = _infer_ranks(model), _infer_types(model)
        if not (ranks or types):
            return


RANK_ROUNDS = 16
"""How often ranks found by `_infer_ranks` are given to ONNX's inference, which then goes on."""


def _infer_ranks(model: ir.Model) -> bool:
    """Ranks of what is reshaped to a computed shape of known length, where ONNX stops."""
    found = False
    for graph in graphs(model):
        for node in graph:
            wanted = input_at(node, 1)
            if not is_op(node, "Reshape") or node.outputs[0].shape is not None or wanted is None:
                continue
            shape = wanted.const_value.shape if wanted.const_value is not None else wanted.shape
            if shape is not None and len(shape) == 1 and isinstance(shape[0], int):
                node.outputs[0].shape = ir.Shape([None] * shape[0])
                found = True
    return found


_ONE_TYPE = ("MatMul", "Gemm", "Conv", "ConvTranspose", "Add", "Sub", "Mul", "Div")
_ONE_TYPE_CONTRIB = ("FusedMatMul", "FusedGemm", "FusedConv", "Gelu", "BiasGelu", "FastGelu",
                     "QuickGelu", "SkipLayerNormalization", "BiasAdd", "BiasSplitGelu")  # fmt: skip


def _infer_types(model: ir.Model) -> bool:
    """Types behind ops that ONNX does not know, from neighbours that have one type throughout."""
    found = False
    for graph in graphs(model):
        for node in graph:
            contrib = is_op(node, *_ONE_TYPE_CONTRIB, domain="com.microsoft")
            if not contrib and not is_op(node, *_ONE_TYPE):
                continue
            ends = [value for value in (*node.inputs, node.outputs[0]) if value is not None]
            kind = next((value.type for value in ends if value.type is not None), None)
            for value in ends:
                if value.type is None and kind is not None:
                    value.type, found = kind, True
    return found


def _infer_once(model: ir.Model) -> None:
    inferred = _inferred(model, {})
    if inferred is None:
        return
    for graph, guess in zip(graphs(model), graphs(inferred), strict=True):
        known = ir.convenience.create_value_mapping(guess)
        for name, value in ir.convenience.create_value_mapping(graph).items():
            found = known.get(name)
            if found is None:
                continue
            if value.type is None:  # by type: a sequence has an element type, too
                value.type = found.type
            value.shape = _sharper(value, found.shape)


def _sharper(value: ir.Value, found: ir.Shape | None) -> ir.Shape | None:
    """The known shape, with sizes from ``found`` for dimensions that had none."""
    known = value.shape
    if known is None or found is None or len(known) != len(found):
        return known if known is not None else found
    if value.is_graph_input() or value.is_graph_output():
        return known
    return ir.Shape(
        [new if isinstance(new, int) else old for old, new in zip(known, found, strict=True)]
    )


def shapes_for(
    model: ir.Model, input_shapes: dict[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """The shapes of all values for one sample; the model itself keeps its own.

    Args:
        model: not changed.
        input_shapes: concrete shapes by graph input.

    Returns:
        Concrete shapes by value name, for those that ONNX can tell.
    """
    inferred = _inferred(model, input_shapes)
    found: dict[str, tuple[int, ...]] = {}
    for graph in [] if inferred is None else graphs(inferred):
        for name, value in ir.convenience.create_value_mapping(graph).items():
            if value.shape is not None and all(isinstance(dim, int) for dim in value.shape):
                found[name] = tuple(int(dim) for dim in value.shape if isinstance(dim, int))
    return found


@contextmanager
def sample_shapes(model: ir.Model, shapes: dict[str, tuple[int, ...]]) -> Iterator[None]:
    """Give intermediate values one sample's shapes while passes weigh sizes; then forget them.

    Shapes of a sample must not stay in a model: onnxruntime would believe them for all inputs.
    """
    before: dict[int, tuple[ir.Value, ir.Shape | None]] = {}
    for graph in graphs(model):
        for value in (*graph.inputs, *graph.outputs, *(v for n in graph for v in n.outputs)):
            before[id(value)] = (value, value.shape)
    outside = {value.name for value in (*model.graph.inputs, *model.graph.outputs)}
    assumed: dict[int, ir.Shape | None] = {}
    for value, _ in before.values():
        if value.name in shapes and value.name not in outside:
            value.shape = ir.Shape(shapes[value.name])
        assumed[id(value)] = value.shape
    yield
    for graph in graphs(model):
        for value in (*graph.inputs, *graph.outputs, *(v for n in graph for v in n.outputs)):
            if value.name in outside:
                continue
            untouched = id(value) in assumed and value.shape is assumed[id(value)]
            value.shape = before[id(value)][1] if untouched else None  # a pass changed it
    infer_shapes(model)


def _inferred(model: ir.Model, input_shapes: dict[str, tuple[int, ...]]) -> ir.Model | None:
    proto = ir.to_proto(_without_big_weights(model))
    for info in proto.graph.input:
        if info.name in input_shapes:
            dims = info.type.tensor_type.shape.dim
            for dim, size in zip(dims, input_shapes[info.name], strict=False):
                dim.dim_value = size
    if input_shapes:
        _forget_shapes(proto.graph)
    try:
        return from_proto(onnx.shape_inference.infer_shapes(proto, data_prop=True))
    except Exception:
        return None


def _forget_shapes(graph: onnx.GraphProto) -> None:
    """Drop what was known for other samples, so that the concrete shapes flow through."""
    del graph.value_info[:]
    for output in graph.output:
        output.type.tensor_type.ClearField("shape")
    for node in graph.node:
        for attr in node.attribute:
            if attr.type == onnx.AttributeProto.GRAPH:
                _forget_shapes(attr.g)


def _without_big_weights(model: ir.Model, limit: int = 1024) -> ir.Model:
    """A clone whose big initializers are graph inputs of the same shape, to infer quickly."""
    clone = model.clone()
    for graph in graphs(clone):
        for name, value in list(graph.initializers.items()):
            tensor = value.const_value
            if tensor is None or tensor.nbytes <= limit or tensor.dtype == ir.DataType.INT64:
                continue
            if graph is clone.graph:
                value.dtype, value.shape = tensor.dtype, ir.Shape(tensor.shape)  # type: ignore[arg-type]
                value.const_value = None
                del graph.initializers[name]
                if not value.is_graph_input():
                    graph.inputs.append(value)
    return clone


def first_line(error: Exception) -> str:
    """What somebody else's exception says, in one line without terminal colours."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
    return (text or type(error).__name__).splitlines()[0][:120]
