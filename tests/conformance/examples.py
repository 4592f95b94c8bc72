"""Worked examples as data: read them, run one, compare as it says.

``LUCID_FX_EXAMPLES`` names another file of the same form. A test file has a table of one small
function for each op; a function takes a record and gives a dict with the keys of ``expect``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import lucid_fx.quantization as q

DATA = Path(os.environ.get("LUCID_FX_EXAMPLES", Path(__file__).parent / "data/examples.json"))
RECORDS: list[dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))["examples"]

Record = Mapping[str, Any]
Function = Callable[[Record], dict[str, Any]]


def records(system: str) -> list[dict[str, Any]]:
    """The records whose op starts with ``<system>.``"""
    return [record for record in RECORDS if record["op"].startswith(f"{system}.")]


def is_array(value: Any) -> bool:
    return isinstance(value, dict) and {"dtype", "shape", "data"} <= value.keys()


def array(value: Any) -> Any:
    """An array from {dtype, shape, data}; anything else is given back as it is."""
    if not is_array(value):
        return value
    data = [float(v) if isinstance(v, str) else v for v in np.ravel(value["data"]).tolist()]
    return np.array(data, dtype=value["dtype"]).reshape(value["shape"])


def dtype(value: str | Mapping[str, Any]) -> q.QDtype:
    """A grid by its alias, or one of the record's own as a dict of its fields."""
    if isinstance(value, str):
        found = getattr(q, value)
        assert isinstance(found, q.QDtype)
        return found
    bounds = [value.get(f"quant_{end}", value.get(f"q{end}")) for end in ("min", "max")]
    return q.QDtype(value["name"], value["bits"], value["signed"], *bounds, value["storage"])


def options(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as arguments: arrays, grids and schemes are decoded."""
    found = {key: array(value) for key, value in params.items()}
    if "qdtype" in found:
        found["qdtype"] = dtype(params["qdtype"])
    if "qscheme" in found:
        found["qscheme"] = q.QScheme(params["qscheme"])
    return found


def outcome(record: Record, function: Function) -> dict[str, Any]:
    """What a function gives; an exception that the record allows becomes ``{"error": it}``."""
    try:
        return function(record)
    except Exception as error:
        if "error" in record["expect"] or _may_refuse(record, error):
            return {"error": error}
        raise


def check(record: Record, result: Mapping[str, Any]) -> None:
    """Assert that a result is what the record expects, compared as it says.

    Arrays that are not float32 and JSON integers are exact, and shapes must match. Where an error
    is expected, ``result["error"]`` is the exception (see `outcome`).
    """
    error = result.get("error")
    if isinstance(error, Exception):
        _check_error(record, error)
        return
    assert "error" not in record["expect"], f"no error, but {dict(result)}"
    compare = record["compare"]
    tolerance = (0.0, 0.0) if compare == "exact" else (compare["rtol"], compare["atol"])
    for key, expected in record["expect"].items():
        assert key in result, f"{key} is missing in {sorted(result)}"
        _same(result[key], expected, tolerance, key)


def _may_refuse(record: Record, error: Exception) -> bool:
    return "quirk" in record.get("tags", ()) and isinstance(error, ValueError)


def _check_error(record: Record, error: Exception) -> None:
    expect = record["expect"]
    if "error" not in expect:
        assert _may_refuse(record, error)
        return
    if expect["error"] is not True:
        names = [cls.__name__ for cls in type(error).__mro__]
        assert expect["error"] in names, f"{error!r} is no {expect['error']}"
    assert expect.get("message_contains", "") in str(error)


def _same(got: Any, expected: Any, tolerance: tuple[float, float], where: str) -> None:
    if is_array(expected):
        wanted = array(expected)
        found = np.asarray(got)
        assert found.shape == wanted.shape, f"{where}: shape {found.shape}, not {wanted.shape}"
        if wanted.dtype != np.float32:
            tolerance = (0.0, 0.0)
        _close(found.astype(np.float64), wanted.astype(np.float64), tolerance, where)
    elif isinstance(expected, dict):
        for key, value in expected.items():
            assert key in got, f"{where}.{key} is missing"
            _same(got[key], value, tolerance, f"{where}.{key}")
    elif isinstance(expected, list):
        items = got.tolist() if isinstance(got, np.ndarray) else list(got)
        assert len(items) == len(expected), f"{where}: {len(items)} items, not {len(expected)}"
        for index, (item, value) in enumerate(zip(items, expected, strict=True)):
            _same(item, value, tolerance, f"{where}[{index}]")
    elif isinstance(expected, float):
        _close(np.float64(got), np.float64(expected), tolerance, where)
    elif isinstance(expected, bool) or expected is None:
        assert got is expected or (got is not None and got == expected), f"{where}: {got!r}"
    else:
        assert got == expected, f"{where}: {got!r}, not {expected!r}"


def _close(got: Any, wanted: Any, tolerance: tuple[float, float], where: str) -> None:
    rtol, atol = tolerance
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol, err_msg=where)
