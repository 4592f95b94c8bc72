"""Random small models of the op table's operators, each with bounds on its own errors.

Every value carries three numbers, from which the tests' tolerances are derived:

- ``most``: a bound of its magnitude, for inputs in [-1, 1];
- ``rounding``: how far two ways to compute it in float32 may be apart;
- ``codes``: how far two ways to compute it on codes may be apart, when each operator may give a
  neighbouring code (a tie that is rounded the other way) and passes on what it was given; a
  function of the steps that the values' grids really have.

Weights have rows whose absolute values sum to at most one, so that linear ops amplify nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

EPS = float(np.finfo(np.float32).eps)
CODES = 255
NAMES = ("", "plain", "plain", "/layer.0/op", "ünï cöde", "a b", "x", "layer.0/op", "0")
"""Of nodes: absent, doubled, scoped, unusual, equal to a value's."""


Steps = Callable[[str, float], float]
"""The step of a value's grid, given its name and the bound of its magnitude."""


def step_of_input(step: Steps) -> float:
    """The graph input is rounded once."""
    return step("x", 1.0)


@dataclass(frozen=True)
class Tensor:
    """A value: its name, channel count (axis 1), rank, and bounds."""

    name: str
    channels: int
    rank: int = 4
    most: float = 1.0
    rounding: float = 0.0
    codes: Callable[[Steps], float] = step_of_input

    def more(self, extra: Callable[[Steps], float]) -> Tensor:
        """The same with a further difference on codes."""
        before = self.codes
        return replace(self, codes=lambda step: before(step) + extra(step))


@dataclass
class Builder:
    """Adds random nodes to a graph."""

    draw: st.DrawFn
    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, NDArray[Any]] = field(default_factory=dict)
    count: int = 0

    def name(self, base: str = "v") -> str:
        self.count += 1
        return f"{base}{self.count}"

    def constant(self, array: NDArray[Any], base: str = "w") -> str:
        """A new initializer, or one of that shape that is there already."""
        shared = [n for n, a in self.weights.items() if a.shape == array.shape and a.ndim > 1]
        if shared and array.dtype == np.float32 and self.draw(st.booleans()):
            return self.draw(st.sampled_from(shared))
        name = self.name(base)
        self.weights[name] = array
        return name

    def kernel(self, *shape: int, columns: bool = False) -> str:
        """A weight whose sums of absolute values over one output channel are at most one."""
        array = self.rng.standard_normal(shape)
        axes = 0 if columns else tuple(range(1, len(shape)))
        array = array / np.abs(array).sum(axis=axes, keepdims=True)
        return self.constant(array.astype(np.float32))

    def vector(self, size: int, low: float = -0.5, high: float = 0.5, *shape: int) -> str:
        array = self.rng.uniform(low, high, size).astype(np.float32)
        return self.constant(array.reshape(shape or (-1,)))

    def node(self, op: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> list[str]:
        names = [self.name() for _ in range(outputs)]
        label = self.draw(st.sampled_from(NAMES))
        self.nodes.append(helper.make_node(op, inputs, names, name=label, **attributes))
        return names

    def result(
        self, name: str, source: Tensor, *, channels: int | None = None, rank: int = 4,
        most: float | None = None, gain: float = 1.0, terms: int = 1, own: bool = True,
    ) -> Tensor:  # fmt: skip
        """Bounds of a value made from ``source``.

        Args:
            gain: how much a difference of the source can grow.
            terms: length of the sums that are rounded.
            own: the op rounds to a grid of its own.
        """
        largest = source.most * gain if most is None else most
        return Tensor(
            name, source.channels if channels is None else channels, rank, largest,
            source.rounding * gain + (terms + 4) * EPS * max(largest, source.most),
            lambda step: source.codes(step) * gain + (step(name, largest) if own else 0.0),
        )  # fmt: skip

    # --- operators on images ---------------------------------------------------------------

    def conv(self, x: Tensor) -> Tensor:
        kind = self.draw(st.sampled_from(["dense", "depthwise", "pointwise"]))
        size = 1 if kind == "pointwise" else 3
        group = x.channels if kind == "depthwise" else 1
        outer = x.channels if kind == "depthwise" else self.draw(st.sampled_from([2, 3, 4, 6]))
        inputs = [x.name, self.kernel(outer, x.channels // group, size, size)]
        biased = self.draw(st.booleans())
        if biased:
            inputs.append(self.vector(outer))
        (name,) = self.node("Conv", inputs, group=group, pads=[size // 2] * 4,
                            kernel_shape=[size, size])  # fmt: skip
        return self.linear(name, x, outer, x.channels // group * size * size, biased)

    def linear(self, name: str, x: Tensor, outer: int, terms: int, biased: bool) -> Tensor:
        """Rounded to codes, a row of ``terms`` weights sums to at most 1 + terms / 255."""
        most = x.most + (0.5 if biased else 0.0)
        made = self.result(name, x, channels=outer, rank=x.rank, most=most, terms=terms)
        return made.more(lambda step: x.codes(step) * terms / CODES)

    def batch_norm(self, x: Tensor) -> Tensor:
        given = [
            self.vector(x.channels, 0.2, 0.9), self.vector(x.channels),
            self.vector(x.channels, -0.2, 0.2), self.constant(np.ones(x.channels, np.float32)),
        ]  # fmt: skip
        (name,) = self.node("BatchNormalization", [x.name, *given])
        twice = self.result(name, x, most=x.most + 0.7, terms=4)  # Mul and Add at worst
        return twice.more(lambda step: step("", x.most))

    def activation(self, x: Tensor) -> Tensor:
        op = self.draw(st.sampled_from(["Relu", "Clip", "Sigmoid", "HardSwish", "LeakyRelu"]))
        if op == "Clip":
            low, high = (self.constant(np.asarray(v, np.float32), "k") for v in (0.0, 0.75))
            (name,) = self.node("Clip", [x.name, low, high])
            return self.result(name, x, rank=x.rank, most=min(x.most, 0.75))
        (name,) = self.node(op, [x.name])
        if op == "Sigmoid":  # on codes its input is cut to [-6.25, 6.25], which moves it by 0.002
            made = self.result(name, x, rank=x.rank, most=1.0)
            return made.more(lambda step: 0.002 + 1 / 256)
        # on codes HardSwish is x · gate, with a step of each, and gate's of 1 / 255
        made = self.result(name, x, rank=x.rank, gain=1.5 if op == "HardSwish" else 1.0,
                           most=x.most)  # fmt: skip
        return made.more(lambda step: x.most / CODES if op == "HardSwish" else 0.0)

    def pool(self, x: Tensor) -> Tensor:
        op = self.draw(st.sampled_from(["MaxPool", "AveragePool"]))
        (name,) = self.node(op, [x.name], kernel_shape=[2, 2], strides=[1, 1], pads=[0, 1, 1, 0])
        return self.result(name, x, terms=4, own=op == "AveragePool")

    def move(self, x: Tensor) -> Tensor:
        op = self.draw(st.sampled_from(["Pad", "Resize", "Slice", "Split", "Transpose"]))
        ints = lambda *n: self.constant(np.array(n, np.int64), "i")  # noqa: E731
        channels = x.channels
        if op == "Pad":
            (name,) = self.node("Pad", [x.name, ints(0, 0, 1, 0, 0, 0, 0, 1)])
        elif op == "Resize":
            scales = self.constant(np.array([1, 1, 2, 2], np.float32), "k")
            (name,) = self.node("Resize", [x.name, "", scales], mode="nearest",
                                coordinate_transformation_mode="asymmetric",
                                nearest_mode="floor")  # fmt: skip
        elif op == "Slice" and channels > 1:
            (name,) = self.node("Slice", [x.name, ints(1), ints(channels), ints(1)])
            channels -= 1
        elif op == "Split" and channels > 1:
            parts = ints(1, channels - 1)
            name = self.node("Split", [x.name, parts], 2, axis=1)[1]
            channels -= 1
        else:
            (turned,) = self.node("Transpose", [x.name], perm=[0, 1, 3, 2])
            (name,) = self.node("Transpose", [turned], perm=[0, 1, 3, 2])
        return self.result(name, x, channels=channels, own=False)

    def join(self, x: Tensor, y: Tensor) -> Tensor:
        """Two values of the same size, on grids of their own."""
        op = self.draw(st.sampled_from(["Add", "Mul", "Concat"]))
        (name,) = self.node(op, [x.name, y.name], **({"axis": 1} if op == "Concat" else {}))
        most = {"Add": x.most + y.most, "Mul": x.most * y.most}.get(op, max(x.most, y.most))

        def grown(a: float, b: float) -> float:
            product = x.most * b + y.most * a + a * b
            return {"Add": a + b, "Mul": product}.get(op, max(a, b))

        channels = x.channels + y.channels if op == "Concat" else x.channels
        return Tensor(
            name, channels, 4, most, grown(x.rounding, y.rounding) + 4 * EPS * most,
            lambda step: grown(x.codes(step), y.codes(step)) + step(name, most),
        )  # fmt: skip

    def scale(self, x: Tensor) -> Tensor:
        """A constant for each channel, as learnt gates have."""
        op = self.draw(st.sampled_from(["Add", "Mul", "Sub", "Div"]))
        low, high = (1.0, 2.0) if op == "Div" else (-0.5, 0.5)
        (name,) = self.node(op, [x.name, self.vector(x.channels, low, high, x.channels, 1, 1)])
        made = self.result(name, x, most=x.most + 0.5, terms=2)
        return made.more(lambda step: (1 + x.most) / CODES)  # the constant has codes, too

    def branch(self, x: Tensor) -> Tensor:
        """An If with an op in each body; the condition is a graph input."""
        bodies, made = [], []
        for _ in range(2):
            outer, self.nodes = self.nodes, []
            inner = self.activation(x) if self.draw(st.booleans()) else self.scale(x)
            info = helper.make_tensor_value_info(inner.name, TensorProto.FLOAT, None)
            bodies.append(helper.make_graph(self.nodes, self.name("body"), [], [info]))
            self.nodes = outer
            made.append(inner)
        (name,) = self.node("If", ["condition"], then_branch=bodies[0], else_branch=bodies[1])
        return Tensor(
            name, x.channels, 4, max(t.most for t in made), max(t.rounding for t in made),
            lambda step: max(t.codes(step) for t in made),
        )  # fmt: skip

    # --- the head ---------------------------------------------------------------------------

    def head(self, x: Tensor) -> Tensor:
        (pooled,) = self.node("GlobalAveragePool", [x.name])
        (flat,) = self.node("Reshape", [pooled, self.constant(np.array([0, -1], np.int64), "i")])
        rows = self.result(flat, x, rank=2, terms=256)
        outer = self.draw(st.sampled_from([2, 5]))
        if self.draw(st.booleans()):
            (name,) = self.node("MatMul", [flat, self.kernel(x.channels, outer, columns=True)])
            made = self.linear(name, rows, outer, x.channels, False)
        else:
            inputs = [flat, self.kernel(outer, x.channels), self.vector(outer)]
            (name,) = self.node("Gemm", inputs, transB=1)
            made = self.linear(name, rows, outer, x.channels, True)
        # where the input is quantized at run time, its grid moves with the largest value
        return made.more(lambda step: step("", rows.most))


@st.composite
def models(draw: st.DrawFn) -> tuple[onnx.ModelProto, dict[str, Tensor]]:
    """A model with inputs ``x`` [N, C, H, W] and ``condition``, and its outputs' bounds."""
    build = Builder(draw, np.random.default_rng(draw(st.integers(0, 2**16))))
    x = Tensor("x", draw(st.sampled_from([1, 3, 4])))
    image = build.conv(x)
    images = [image]
    steps = [build.conv, build.conv, build.batch_norm, build.activation, build.activation,
             build.pool, build.move, build.scale, build.branch]  # fmt: skip
    sized = {image.name: 0}  # pads and resizes change the size: only equals are joined
    for _ in range(draw(st.integers(1, 6))):
        source = draw(st.sampled_from(images))
        step = draw(st.sampled_from([*steps, "join", "join"]))
        if step == "join":
            mates = [t for t in images if sized[t.name] == sized[source.name]
                     and t.channels == source.channels]  # fmt: skip
            made = build.join(source, draw(st.sampled_from(mates)))
            sized[made.name] = sized[source.name]
        else:
            before = len(build.nodes)
            made = step(source)
            last = build.nodes[before].op_type
            changes = last in ("Pad", "Resize")
            sized[made.name] = len(sized) if changes else sized[source.name]
        images.append(made)
    last = images[-1]
    outputs = [build.head(last) if draw(st.booleans()) else last]
    if len(images) > 2 and draw(st.booleans()):
        outputs.append(images[1])
    return _model(build, x, outputs), {tensor.name: tensor for tensor in outputs}


def _model(build: Builder, x: Tensor, outputs: list[Tensor]) -> onnx.ModelProto:
    shape = ["N", x.channels, "H", "W"]
    used = any(node.op_type == "If" for node in build.nodes)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    if used:
        inputs.append(helper.make_tensor_value_info("condition", TensorProto.BOOL, []))
    unique = {tensor.name: tensor for tensor in outputs}.values()
    graph = helper.make_graph(
        build.nodes, "random", inputs,
        [helper.make_tensor_value_info(t.name, TensorProto.FLOAT, [None] * t.rank) for t in unique],
        [numpy_helper.from_array(array, name) for name, array in build.weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def samples(model: onnx.ModelProto, seed: int, count: int = 3) -> list[dict[str, NDArray[Any]]]:
    """Feeds of different sizes."""
    rng = np.random.default_rng(seed)
    channels = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    feeds = []
    for number in range(count):
        shape = (1 + number % 2, channels, 5 + number, 6 - number)
        feed = {"x": rng.uniform(-1, 1, shape).astype(np.float32)}
        if len(model.graph.input) > 1:
            feed["condition"] = np.asarray(number % 2 == 0)
        feeds.append(feed)
    return feeds
