"""Sparse constants of a protobuf as dense ones, since onnx_ir reads dense tensors only."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx


def densified(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model itself where nothing is sparse; else a copy with dense constants."""
    if not any(_sparse(graph) for graph in _proto_graphs(proto.graph)):
        return proto
    twin = onnx.ModelProto()
    twin.CopyFrom(proto)
    for graph in _proto_graphs(twin.graph):
        _make_dense(graph)
    return twin


def _proto_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attr in node.attribute:
            for body in [attr.g] if attr.type == onnx.AttributeProto.GRAPH else attr.graphs:
                yield from _proto_graphs(body)


def _sparse(graph: onnx.GraphProto) -> bool:
    attributes = (attr for node in graph.node for attr in node.attribute)
    return bool(graph.sparse_initializer) or any(attr.name == "sparse_value" for attr in attributes)


def _make_dense(graph: onnx.GraphProto) -> None:
    for tensor in graph.sparse_initializer:
        graph.initializer.append(_dense(tensor, tensor.values.name))
    del graph.sparse_initializer[:]
    for node in graph.node:
        for attr in node.attribute:
            if attr.type == onnx.AttributeProto.SPARSE_TENSOR and attr.name == "sparse_value":
                value = _dense(attr.sparse_tensor, node.output[0])
                attr.CopyFrom(onnx.helper.make_attribute("value", value))


def _dense(tensor: onnx.SparseTensorProto, name: str) -> onnx.TensorProto:
    values = onnx.numpy_helper.to_array(tensor.values)
    places = onnx.numpy_helper.to_array(tensor.indices)
    array = np.zeros(tuple(tensor.dims), values.dtype)
    if places.ndim == 1:
        array.reshape(-1)[places] = values
    else:
        array[tuple(places.T)] = values
    return onnx.numpy_helper.from_array(array, name)
