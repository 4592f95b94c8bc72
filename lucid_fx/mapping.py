"""From a `QConfigMapping` to the recipe of each node."""

from __future__ import annotations

from typing import TypeVar

import onnx_ir as ir

from lucid_fx.errors import ConfigError
from lucid_fx.ir.ledger import Ledger, ledger_of
from lucid_fx.ir.naming import in_scope, near_matches, scopes
from lucid_fx.ir.provenance import origins
from lucid_fx.ir.walk import nodes
from lucid_fx.quantization import QConfigMapping

Entry = TypeVar("Entry")


def check_mapping(mapping: QConfigMapping[Entry], model: ir.Model, kind: type[Entry]) -> None:
    """Refuse names and types that match nothing, and recipes of another kind.

    Raises:
        ConfigError: with near matches.
    """
    every = list(nodes(model))
    names, types = {node.name or "" for node in every}, {node.op_type for node in every}
    for name in mapping.module_names:
        if not any(in_scope(found, name) for found in names):
            known = names.union(*map(scopes, names))
            raise ConfigError(f"no node or scope is named {name!r}", hint=near_matches(name, known))
    for op_type in mapping.object_types:
        if op_type not in types:
            raise ConfigError(
                f"the model has no node of type {op_type!r}", hint=near_matches(op_type, types)
            )
    tiers = [*mapping.module_names.items(), *mapping.object_types.items()]
    for where, recipe in [*tiers, ("all nodes", mapping.global_qconfig)]:
        if recipe is not None and not isinstance(recipe, kind):
            raise ConfigError(
                f"the recipe of {where!r} is a {type(recipe).__name__}",
                hint=f"give a {kind.__name__}, or None for float",
            )


def recipes_by_node(model: ir.Model, mapping: QConfigMapping[Entry]) -> dict[str, Entry | None]:
    """The recipe of each node, by the names and types that its source nodes had.

    A name counts for whatever its node was folded into; an op type only for nodes that still have
    it, so that excluding Add does not leave a Conv in float that took one in.
    """
    return {node.name or "": _recipe(node, ledger_of(model), mapping) for node in nodes(model)}


def _recipe(node: ir.Node, ledger: Ledger, mapping: QConfigMapping[Entry]) -> Entry | None:
    sources = origins(node) or (node.name or "",)
    types = {s: ledger[s].op_type if s in ledger else node.op_type for s in sources}
    same = [source for source in sources if types[source] == node.op_type]
    candidates = []
    for source in sources:
        scope = _innermost(mapping, source)
        if scope is not None or source in (same or sources):
            candidates.append(mapping.get_qconfig(types[source], scope or source))
    return None if None in candidates else candidates[0]


def _innermost(mapping: QConfigMapping[Entry], name: str) -> str | None:
    """The most specific name or scope in the mapping that holds a node."""
    held = [scope for scope in mapping.module_names if in_scope(name, scope)]
    return max(held, key=len, default=None)
