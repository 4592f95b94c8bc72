"""How passes are tested: ONNX text in, a pass, ONNX text out.

A text without a header gets `HEADER`. In the expected text a node without a name stands for any
name, and an initializer that is only declared (``<float[2] w>``) for any values; initializers that
nobody uses any more need not be named. Everything else must be equal: ops, domains, attributes,
value names, bodies, graph inputs and outputs, the version of the operator set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.graph_module import clone_model
from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.serde import from_text, infer_shapes, to_text
from lucid_fx.ir.verify import verify
from lucid_fx.ir.walk import graphs, opset
from lucid_fx.passes.name_everything import NameEverything
from lucid_fx.passes.pipeline import GraphPass
from lucid_fx.runtime.session import Session

HEADER = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>'

ULPS = 32
"""Float passes may move results by this many roundings of the largest output."""

Feed = Mapping[str, NDArray[Any]]


def model_from(text: str, *, prepare: bool = True) -> ir.Model:
    """A model as passes meet it: named, with shapes and a ledger; ``prepare=False``: as read."""
    text = text.strip()
    model = from_text(text if text.startswith("<") else f"{HEADER}\n{text}")
    if prepare:
        NameEverything().run(model)
        infer_shapes(model)
        verify(model)
        ledger_of(model).open(model)
    return model


def check_pass(
    text_in: str,
    graph_pass: GraphPass,
    text_out: str,
    *,
    feeds: Feed | None = None,
    exact: bool = False,
    bound: float | None = None,
    once: bool = False,
    prepare: bool = True,
) -> ir.Model:
    """Run a pass and check all that a pass promises; gives the rewritten model.

    Args:
        text_in, text_out: the model before and after.
        feeds: inputs for the comparison of numbers; random by default.
        exact: the numbers must be equal, as for passes that only change structure.
        bound: largest difference, where the pass states one of its own.
        once: the pass acts on the nodes it is told, so that a second run is not asked for.
        prepare: name and infer first, as the import pipeline would.
    """
    model = model_from(text_in, prepare=prepare)
    interface, before = signature(model), clone_model(model)
    changed = graph_pass.run(model)
    verify(model, graph_pass.name)
    assert not differences(model, model_from(text_out, prepare=False)), "\n".join(
        ["the text differs:", *differences(model, model_from(text_out, prepare=False))]
    )
    assert changed, f"{graph_pass.name} changed the model but says that it did not"
    assert signature(model)[0] <= interface[0], "the inputs changed"
    assert signature(model)[1][: len(interface[1])] == interface[1], "the outputs changed"
    same_numbers(before, model, feeds, exact=exact, bound=bound)
    if not once:
        settled = to_text(model)
        again = graph_pass.run(model)
        assert to_text(model) == settled, f"a second {graph_pass.name} changes the model again"
        assert not again, f"a second {graph_pass.name} says that it changed something"
    return model


def check_unchanged(text_in: str, graph_pass: GraphPass, *, prepare: bool = True) -> ir.Model:
    """The pass must refuse: not a letter of the model changes, and the pass says so."""
    model = model_from(text_in, prepare=prepare)
    before = to_text(model)
    changed = graph_pass.run(model)
    assert to_text(model) == before, f"{graph_pass.name} was to leave this:\n{to_text(model)}"
    assert not changed, f"{graph_pass.name} says that it changed something"
    return model


def same_numbers(
    before: ir.Model,
    after: ir.Model,
    feeds: Feed | None = None,
    *,
    exact: bool = False,
    bound: float | None = None,
) -> None:
    """Both models give the same numbers in onnxruntime, without its optimisations."""
    feeds = dict(random_feed(before) if feeds is None else feeds)
    wanted = Session(before, optimize=False).run(feeds)
    kept = {value.name for value in after.graph.inputs}
    names = [value.name or "" for value in before.graph.outputs]
    found = Session(after, optimize=False).run(
        {name: array for name, array in feeds.items() if name in kept}, names
    )
    for name, x, y in zip(names, wanted, found, strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype, name
        if exact or (x.dtype.kind != "f" and bound is None):
            np.testing.assert_array_equal(y, x, err_msg=name)
            continue
        if x.dtype.kind != "f":
            x, y = x.astype(np.int64), y.astype(np.int64)
        allowed = bound
        if allowed is None:
            largest = float(np.abs(x[np.isfinite(x)]).max(initial=0.0))
            allowed = ULPS * float(np.finfo(x.dtype).eps) * largest
        np.testing.assert_allclose(y, x, rtol=0, atol=allowed, err_msg=name)


def random_feed(model: ir.Model, seed: int = 0, free: int = 3) -> dict[str, NDArray[Any]]:
    """Random arrays for the graph inputs; a dimension that is not fixed becomes ``free``."""
    rng = np.random.default_rng(seed)
    feed: dict[str, NDArray[Any]] = {}
    for value in model.graph.inputs:
        shape = [dim if isinstance(dim, int) else free for dim in value.shape or ()]
        dtype = value.dtype.numpy() if value.dtype is not None else np.dtype(np.float32)
        if dtype == np.bool_:
            feed[value.name or ""] = np.asarray(rng.random(shape) < 0.5)
        elif np.issubdtype(dtype, np.integer):
            feed[value.name or ""] = rng.integers(0, 3, shape).astype(dtype)
        else:
            feed[value.name or ""] = rng.standard_normal(shape).astype(dtype)
    return feed


def signature(model: ir.Model) -> tuple[set[str], list[str]]:
    """Names, types and shapes of the graph inputs and outputs."""

    def told(values: Any) -> list[str]:
        return [f"{v.name}: {v.dtype} {[str(d) for d in v.shape or ()]}" for v in values]

    return set(told(model.graph.inputs)), told(model.graph.outputs)


def ops(model: ir.Model) -> list[str]:
    """The op types of the main graph, in order."""
    return [node.op_type for node in model.graph]


def differences(found: ir.Model, wanted: ir.Model) -> list[str]:
    """What distinguishes a model from the expected one, as lines to read."""
    result = []
    if opset(found) != opset(wanted):
        result.append(f"opset {opset(found)}, expected {opset(wanted)}")
    got, want = list(lines(found.graph)), list(lines(wanted.graph))
    if not _same_lines(got, want):
        result += ["found:", *("  " + a + b for a, b in got)]
        result += ["expected:", *("  " + a + b for a, b in want)]
    return result + _initializer_differences(found, wanted)


def _same_lines(found: list[tuple[str, str]], wanted: list[tuple[str, str]]) -> bool:
    return len(found) == len(wanted) and all(
        a == c and (d in ("", b)) for (a, b), (c, d) in zip(found, wanted, strict=True)
    )


def lines(graph: ir.Graph, indent: str = "") -> Iterator[tuple[str, str]]:
    """Each node as (what it computes, its name), bodies inside."""
    inputs = ", ".join(value.name or "" for value in graph.inputs)
    outputs = ", ".join(value.name or "" for value in graph.outputs)
    yield f"{indent}({inputs}) => ({outputs})", ""
    for node in graph:
        operands = [value.name or "" if value is not None else "" for value in node.inputs]
        while operands and not operands[-1]:
            operands.pop()
        results = [value.name or "" for value in node.outputs]
        while results and not results[-1]:
            results.pop()
        domain = f"{node.domain}." if node.domain not in ("", "ai.onnx") else ""
        plain, bodies = [], []
        for name, attr in sorted(node.attributes.items()):
            if attr.type == ir.AttributeType.GRAPH:
                bodies.append((name, attr.as_graph()))
            else:
                plain.append(f"{name}={_shown(attr.value)}")
        text = f"{', '.join(results)} = {domain}{node.op_type}({', '.join(operands)})"
        yield f"{indent}{text} <{', '.join(plain)}>", f"  [{node.name}]" if node.name else ""
        for name, body in bodies:
            yield f"{indent}  {name}:", ""
            yield from lines(body, indent + "    ")


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_shown(item) for item in value) + "]"
    if hasattr(value, "numpy"):
        return str(value.numpy().tolist())
    return str(value)


def _initializer_differences(found: ir.Model, wanted: ir.Model) -> list[str]:
    got = {name: v for graph in graphs(found) for name, v in graph.initializers.items()}
    want = {name: v for graph in graphs(wanted) for name, v in graph.initializers.items()}
    declared = _declared(wanted)
    result = []
    for name, value in got.items():
        array = value.const_value.numpy()  # type: ignore[union-attr]
        told = f"{array.dtype}{list(array.shape)} {name}"
        if name in want:
            other = want[name].const_value.numpy()  # type: ignore[union-attr]
            if (
                array.dtype != other.dtype
                or array.shape != other.shape
                or not np.allclose(array, other, rtol=1e-5, atol=1e-7)
            ):
                result.append(f"initializer {told} = {array.tolist()}, expected {other.tolist()}")
        elif not value.uses() and not value.is_graph_output():
            continue
        elif name not in declared:
            result.append(f"initializer {told} is not in the expected text")
        elif declared[name] != (array.dtype, array.shape):
            result.append(f"initializer {told} is declared as {declared[name]}")
    used = [name for name, value in want.items() if value.uses() or value.is_graph_output()]
    return result + [f"initializer {name} is missing" for name in used if name not in got]


def _declared(model: ir.Model) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Values that the expected text only declares, by dtype and shape."""
    found = {}
    for graph in graphs(model):
        for node in graph:
            for value in node.inputs:
                known = value is not None and value.shape is not None and value.dtype is not None
                if known and value.producer() is None:  # type: ignore[union-attr]
                    dims = tuple(int(dim) for dim in value.shape if isinstance(dim, int))  # type: ignore[union-attr]
                    found[value.name or ""] = (value.dtype.numpy(), dims)  # type: ignore[union-attr]
    return found
