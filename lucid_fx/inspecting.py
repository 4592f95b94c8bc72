"""What `lucid-fx inspect` tells of a model file, as data and as text."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from lucid_fx.ir.grids import codes_type, grid_values
from lucid_fx.ir.ledger import METADATA_KEY, Ledger
from lucid_fx.ir.serde import load_model, tensors
from lucid_fx.ir.walk import constant, nodes

ROWS_SHOWN = 40
"""Rows of a long table that the text shows; the JSON has all."""


def stored_bytes(path: str | Path) -> int:
    """Bytes on disk of a model file and of the external data it names."""
    return _stored_bytes(Path(path), load_model(path))


def _stored_bytes(path: Path, model: ir.Model) -> int:
    beside = {Path(t.path) for t in tensors(model) if isinstance(t, ir.ExternalTensor)}
    return path.stat().st_size + sum(data.stat().st_size for data in beside)


def inspect_model(path: str | Path) -> dict[str, Any]:
    """Everything that `inspect_text` shows, JSON-safe.

    Raises:
        ModelError: no such file, or not an ONNX model.
    """
    path, model = Path(path), load_model(path)
    every = list(nodes(model))
    ops = Counter(_op_name(node) for node in every)
    inputs = [value for value in model.graph.inputs if value.const_value is None]
    return {
        "file": str(path),
        "bytes": _stored_bytes(path, model),
        "ir_version": model.ir_version,
        "opsets": {domain or "ai.onnx": v for domain, v in model.graph.opset_imports.items()},
        "producer": " ".join(filter(None, (model.producer_name, model.producer_version))),
        "inputs": [_interface(value) for value in inputs],
        "outputs": [_interface(value) for value in model.graph.outputs],
        "nodes": len(every),
        "local_functions": [identifier[1] for identifier in model.functions],
        "ops": dict(ops.most_common()),
        "weights": _weights(model),
        "grids": list(_grids(every)),
        "ledger": _ledger(model),
    }


def _op_name(node: ir.Node) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def _interface(value: ir.Value) -> dict[str, Any]:
    dims = None if value.shape is None else [_dim(dim) for dim in value.shape]
    kind = value.dtype.name.lower() if value.dtype is not None else str(value.type or "unknown")
    return {"name": value.name, "dtype": kind, "shape": dims}


def _dim(dim: int | ir.SymbolicDim) -> int | str:
    return dim if isinstance(dim, int) else dim.value or "?"


def _weights(model: ir.Model) -> list[dict[str, Any]]:
    count: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for tensor in tensors(model):
        count[tensor.dtype.name.lower()] += 1
        size[tensor.dtype.name.lower()] += int(tensor.nbytes)
    return [{"dtype": d, "tensors": count[d], "bytes": b} for d, b in size.most_common()]


def _grids(every: Iterable[ir.Node]) -> Iterator[dict[str, Any]]:
    """Each grid once, at the first tensor that a node puts on it."""
    seen: set[str | None] = set()
    for node in every:
        for tensor, scale, zero_point in grid_values(node):
            if tensor is None or scale is None or tensor.name in seen:
                continue
            seen.add(tensor.name)
            if node.op_type == "QuantizeLinear":
                seen.add(node.outputs[0].name)
            yield {"tensor": tensor.name, "node": node.name} | _grid(tensor, scale, zero_point)


def _grid(tensor: ir.Value, scale: ir.Value, zero_point: ir.Value | None) -> dict[str, Any]:
    scales, zeros = constant(scale), constant(zero_point)
    kind = codes_type(tensor, zero_point)
    return {
        "scale": None if scales is None else scales.astype(float).reshape(-1).tolist(),
        "zero_point": [0] if zeros is None else zeros.astype(int).reshape(-1).tolist(),
        "dtype": "uint8" if kind is None else kind.name.lower(),
    }


def _ledger(model: ir.Model) -> dict[str, Any] | None:
    stored = model.metadata_props.get(METADATA_KEY)
    if not stored:
        return None
    try:
        ledger = Ledger.from_json(stored)
    except (ValueError, KeyError, TypeError):
        return {"counts": {}, "entries": [], "notes": ["the stored ledger cannot be read"]}
    entries = [
        {"node": e.node, "op_type": e.op_type, "status": e.status, "reason": e.reason}
        for e in ledger
    ]
    return {"counts": ledger.counts(), "entries": entries, "notes": ledger.notes}


def inspect_text(report: dict[str, Any], rows: int = ROWS_SHOWN) -> str:
    """The report of `inspect_model` as text; tables longer than ``rows`` are cut, with a count."""
    opsets = ", ".join(f"{domain} {version}" for domain, version in report["opsets"].items())
    producer = f", made by {report['producer']}" if report["producer"] else ""
    lines = [
        f"{report['file']}: {report['bytes']:,} bytes",
        f"IR version {report['ir_version']}, operator sets {opsets}{producer}",
    ]
    for title in ("inputs", "outputs"):
        cells = [[v["name"], v["dtype"], _shape(v["shape"])] for v in report[title]]
        lines += ["", title, *_table(cells, rows)]
    if report["local_functions"]:
        lines += ["", f"local functions: {', '.join(report['local_functions'])}"]
    lines += ["", f"nodes: {report['nodes']}"]
    lines += _table([[str(count), op] for op, count in report["ops"].items()], rows)
    total = sum(row["bytes"] for row in report["weights"])
    lines += ["", f"weights: {total:,} bytes"]
    lines += _table(
        [
            [w["dtype"], f"{w['bytes']:,} bytes", f"{w['tensors']} tensors"]
            for w in report["weights"]
        ],
        rows,
    )
    return "\n".join(lines + _grids_text(report["grids"], rows) + _ledger_text(report, rows))


def inspect_json(report: dict[str, Any]) -> str:
    """The report of `inspect_model` as JSON; numbers that are not finite become text."""
    return json.dumps(_json_safe(report), indent=1, allow_nan=False)


def _json_safe(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _json_safe(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_json_safe(value) for value in data]
    return str(data) if isinstance(data, float) and not math.isfinite(data) else data


def _grids_text(grids: list[dict[str, Any]], rows: int) -> list[str]:
    if not grids:
        return ["", "grids: none, the model holds no quantized tensors"]
    cells = [["tensor", "dtype", "scale", "zero point"]]
    for grid in grids:
        scale, zero_point = _range(grid["scale"], ".6g"), _range(grid["zero_point"], "d")
        channels = len(grid["scale"] or ())
        more = f" ({channels} channels)" if channels > 1 else ""
        cells.append([grid["tensor"], grid["dtype"], scale + more, zero_point])
    return ["", f"grids: {len(grids)}", *_table(cells, rows + 1)]


def _range(numbers: Sequence[float] | None, form: str) -> str:
    if numbers is None:
        return "computed"
    if not numbers:
        return "none"
    low, high = format(min(numbers), form), format(max(numbers), form)
    return low if low == high else f"{low} … {high}"


def _ledger_text(report: dict[str, Any], rows: int) -> list[str]:
    ledger = report["ledger"]
    if ledger is None:
        return ["", "ledger: none stored in this file"]
    counts = ", ".join(f"{count} {status}" for status, count in ledger["counts"].items())
    cells = [[e["node"], e["op_type"], e["status"], e["reason"]] for e in ledger["entries"]]
    notes = [f"note: {note}" for note in ledger["notes"]]
    return ["", f"ledger: {counts or 'empty'}", *_table(cells, rows), *notes]


def _shape(dims: list[int | str] | None) -> str:
    return "shape unknown" if dims is None else f"[{', '.join(map(str, dims))}]"


def _shortened(cell: str, width: int = 60) -> str:
    """The end of a long name, which tells most."""
    return cell if len(cell) <= width else "…" + cell[1 - width :]


def _table(cells: list[list[str]], rows: int) -> list[str]:
    shown = [[*map(_shortened, row[:-1]), row[-1]] for row in cells[:rows]]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = [
        "  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in shown
    ]
    left = len(cells) - len(shown)
    return [*lines, f"  … and {left} more (--json shows all)"] if left else lines
