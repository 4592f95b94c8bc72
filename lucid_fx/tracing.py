"""trace(): the one door through which models come in."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from lucid_fx.errors import AlreadyQuantizedError, ModelError
from lucid_fx.graph_module import GraphModule, clone_model
from lucid_fx.ir.ledger import METADATA_KEY, Ledger, ledger_of
from lucid_fx.ir.serde import first_line, from_proto, infer_shapes, load_model
from lucid_fx.ir.walk import is_op, nodes, opset
from lucid_fx.ops.table import is_quantized_op
from lucid_fx.passes import IMPORT
from lucid_fx.passes.pipeline import run_pipeline
from lucid_fx.runtime.session import MAX_IR_VERSION, MAX_OPSET

MIN_OPSET = 11
"""The oldest ONNX operator set that the passes understand."""

KEPT_QUANTIZED_KEY = "lucid_fx.kept_quantized"


def trace(
    model: Any,
    example_inputs: Any = None,
    *,
    allow_quantized: bool = False,
    mapped: bool = False,
) -> GraphModule:
    """Take a model in and put it into the form that all passes expect.

    Constants become initializers, local functions are inlined, every node and value gets a
    unique name; nothing else changes. The argument is never modified.

    Args:
        model: path of an ONNX file, ``onnx.ModelProto``, ``onnx_ir.Model``, `GraphModule`, or a
            ``torch.nn.Module`` (exported with ``torch.onnx.export``; torch must be installed).
        example_inputs: arrays for one call; needed for torch modules, otherwise only
            checked against the inputs.
        allow_quantized: take models with quantized nodes, and leave those as they are.
        mapped: leave the large weights of a file in it until they are read, which takes little
            memory; the file must stay as it is until then.

    Raises:
        ModelError: not a model, or one that onnxruntime cannot take.
        AlreadyQuantizedError: the model holds quantized nodes.
    """
    if isinstance(model, GraphModule):
        return model.clone()
    graph = _load(model, example_inputs, mapped)
    _check(graph, allow_quantized)
    stored = graph.metadata_props.pop(METADATA_KEY, None)
    ledger = Ledger.from_json(stored) if stored and allow_quantized else None
    run_pipeline(graph, IMPORT)
    infer_shapes(graph)
    if ledger is None:
        ledger_of(graph).open(graph)
    else:
        graph.meta[METADATA_KEY] = ledger
    module = GraphModule(graph)
    if example_inputs is not None and not _is_torch(model):
        module.feed(example_inputs)
    return module


def _load(model: Any, example_inputs: Any, mapped: bool) -> ir.Model:
    if isinstance(model, str | Path):
        return load_model(model, mapped=mapped)
    if isinstance(model, onnx.ModelProto):
        return from_proto(model)
    if isinstance(model, ir.Model):
        return clone_model(model)
    if _is_torch(model):
        return _export(model, example_inputs)
    raise ModelError(
        f"cannot take a model from {type(model).__name__}",
        hint="give a path, an onnx.ModelProto, an onnx_ir.Model or a torch.nn.Module",
    )


def _is_torch(model: Any) -> bool:
    return any(base.__module__.startswith("torch.nn") for base in type(model).__mro__)


def _export(module: Any, example_inputs: Any) -> ir.Model:
    """Export a torch module; it keeps its mode, and big weights stay out of protobuf."""
    if example_inputs is None:
        raise ModelError("a torch module needs example_inputs to be exported")
    import torch

    args = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    if isinstance(example_inputs, Mapping):
        args = tuple(example_inputs.values())
    args = tuple(a if isinstance(a, torch.Tensor) else torch.as_tensor(a) for a in args)
    modes = {part: part.training for part in module.modules()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter warns of its own plans
            program = torch.onnx.export(module.eval(), args, dynamo=True, verbose=False)
    except Exception as error:
        raise ModelError(f"torch cannot export the module ({first_line(error)})") from error
    finally:
        for part, mode in modes.items():
            part.training = mode
    model = program.model
    assert isinstance(model, ir.Model)
    return model


def _check(model: ir.Model, allow_quantized: bool) -> None:
    version = opset(model)
    if not MIN_OPSET <= version <= MAX_OPSET:
        raise ModelError(
            f"the model imports ONNX operator set {version}, taken are {MIN_OPSET} to {MAX_OPSET}",
            hint="convert it with onnx.version_converter",
        )
    if (model.ir_version or 0) > MAX_IR_VERSION:
        raise ModelError(
            f"the model has IR version {model.ir_version}, onnxruntime takes up to {MAX_IR_VERSION}"
        )
    for node in nodes(model):
        if is_quantized_op(node) and not allow_quantized:
            raise AlreadyQuantizedError(
                f"the model is quantized already: it holds {node.op_type}",
                node=node.name or node.outputs[0].name,
                hint="give the float model, or allow_quantized (--allow-quantized) to keep"
                " its quantized nodes as they are",
            )
        if is_op(node, "Constant") and "value" not in node.attributes and not node.attributes:
            raise ModelError("a Constant node has no value", node=node.name)
