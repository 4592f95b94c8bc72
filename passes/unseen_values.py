"""Nodes whose values calibration never saw: there is no grid to put them on."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

import onnx_ir as ir

from lucid_fx.ir.walk import input_at, is_constant, is_op, nodes
from lucid_fx.ops.table import find_row
from lucid_fx.passes.choose_integer_regions import Plan, grid_root


def leave_unseen(model: ir.Model, plan: Plan, seen: Set[str]) -> Plan:
    """The plan without the nodes that need the range of a value nobody saw.

    That is a branch that never ran, an empty tensor, or one without a finite value. Matrix products
    keep integer weights, with activations quantized at run time.

    Args:
        model: the float model of the plan.
        plan: from `choose_integer_regions`.
        seen: names of the values with a finite range.
    """
    every = [node for node in nodes(model) if node.name in plan.integer]
    integer, absorbed, left = plan.integer, plan.absorbed, dict[str, str]()
    while True:
        missing = {
            str(node.name): value
            for node in every
            if node.name in integer and (value := _missing(node, integer, absorbed, seen))
        }
        if not missing:
            break
        left |= missing
        integer = integer - missing.keys()
        absorbed = frozenset(
            str(node.name) for node in every if node.name in absorbed and _stays(node, integer)
        )
    if not left:
        return plan
    products = {n.name for n in every if n.name in left and is_op(n, "MatMul", "Gemm")}
    reasons = {
        name: f"{value!r} has no range: calibration saw no finite value of it, or a mask"
        for name, value in left.items()
        if name not in products
    }
    return replace(
        plan,
        integer=integer,
        absorbed=absorbed,
        dynamic=plan.dynamic | frozenset(str(name) for name in products),
        reasons=plan.reasons | reasons,
    )


def _missing(
    node: ir.Node, integer: frozenset[str], absorbed: frozenset[str], seen: Set[str]
) -> str | None:
    """The first value whose range a node on codes needs and that nobody saw."""
    row = find_row(node)
    assert row is not None
    values = [input_at(node, index) for index in row.data(node)]
    for value in (*values, *node.outputs):
        if value is None or is_constant(value) or not value.name:
            continue
        root = grid_root(value, integer, absorbed)
        if root is not None and not is_constant(root) and root.name not in seen:
            return root.name
    return None


def _stays(node: ir.Node, integer: frozenset[str]) -> bool:
    """Whether an absorbed activation and its producer are both still on codes."""
    producer = node.inputs[0].producer() if node.inputs[0] is not None else None
    return node.name in integer and producer is not None and producer.name in integer
