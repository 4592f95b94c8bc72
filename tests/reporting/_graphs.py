"""Models that the tests of reports share."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from onnx import TensorProto, helper

import lucid_fx
import lucid_fx.models as zoo

HOSTILE = "<img src=x onerror=alert(1)></script>{{data}}"
"""A node's name that must stay text."""


@cache
def fashion() -> tuple[lucid_fx.GraphModule, lucid_fx.GraphModule, list[Any]]:
    """A float model, the quantized one, and samples."""
    model = zoo.get("fmnist_dw")
    samples = list(model.calibration(8))
    return lucid_fx.trace(str(model.path())), lucid_fx.quantize(str(model.path()), samples), samples


def blocks(count: int, first: str = "/stem") -> Any:
    """A model of ``count`` nodes in blocks of one to four branches that are added up."""
    rng, made, value, block = random.Random(0), list[Any](), "x", 0

    def node(op: str, inputs: list[str], name: str) -> str:
        made.append(helper.make_node(op, inputs, [f"{len(made)}"], name=name))
        return made[-1].output[0]

    value = node("Relu", [value], first)
    while len(made) < count:
        scope, ends = f"/stage{block // 40}/block{block}", list[str]()
        for branch in range(rng.choice((1, 1, 2, 4))):
            end = value
            for step in range(rng.randrange(2, 6)):
                op = rng.choice(("Relu", "Sigmoid", "Tanh", "Neg"))
                end = node(op, [end], f"{scope}/branch{branch}/op{step}")
            ends.append(end)
        while len(ends) > 1:
            ends.append(node("Add", [ends.pop(), ends.pop()], f"{scope}/add{len(ends)}"))
        value, block = ends[0], block + 1
    del made[count:]
    shape = TensorProto.FLOAT, [1, 8]
    graph = helper.make_graph(
        made, f"blocks{count}", [helper.make_tensor_value_info("x", *shape)],
        [helper.make_tensor_value_info(made[-1].output[0], *shape)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def tangled(count: int) -> Any:
    """A model of ``count`` nodes that read any two of the values shortly before them."""
    rng, made = random.Random(0), list[Any]()
    for number in range(count):
        near = [f"v{i}" for i in range(max(0, number - 20), number)] or ["x"]
        made.append(
            helper.make_node("Add", rng.choices(near, k=2), [f"v{number}"], name=f"n{number}")
        )
    shape = TensorProto.FLOAT, [1, 8]
    graph = helper.make_graph(
        made, "tangled", [helper.make_tensor_value_info("x", *shape)],
        [helper.make_tensor_value_info(f"v{count - 1}", *shape)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
