"""The affine system on the specification's worked examples: one function for each op."""

from functools import partial

import numpy as np
import pytest
from examples import Function, array, check, dtype, options, outcome, records

import lucid_fx.quantization as q

MODULE_LAYER = (
    "lucid.conv_transpose_weight",
    "lucid.convert_map",
    "lucid.dynamic_linear",
    "lucid.dynamic_lstm",
    "lucid.fold_conv_bn",
    "lucid.fuse_pattern",
    "lucid.qat_convbn1d",
    "lucid.qat_linear",
    "lucid.qfunctional",
    "lucid.quantize_stub",
    "lucid.quantized_activation",
    "lucid.quantized_conv2d",
    "lucid.quantized_embedding",
    "lucid.quantized_linear",
    "lucid.workflow_types",
)
"""Ops on modules, which the package does not have yet."""


def qdtype_info(record):
    found = dtype(record["input"]["name"])
    return {
        **{name: getattr(found, name) for name in ("bits", "signed", "quant_min", "quant_max")},
        "levels": found.levels,
        "lucid_storage": found.signed_storage,
        "recommended_storage": found.storage,
        "repr_suffix": ".".join(repr(found).split(".")[-2:]),
    }


def qscheme_info(record):
    scheme = getattr(q, record["input"]["alias"])
    assert scheme is q.QScheme[scheme.name]
    return {
        "member": scheme.name,
        "value": scheme.value,
        "is_per_channel": scheme.is_per_channel,
        "is_symmetric": scheme.is_symmetric,
    }


def calculate_qparams(record):
    scale, zero_point = q.calculate_qparams(**options(record["input"]), **options(record["params"]))
    return {"scale": scale, "zero_point": zero_point}


def quantize(record):
    params = options(record["params"])
    codes = q.quantize(**options(record["input"]), **params)
    assert codes.dtype == params["qdtype"].numpy_dtype
    return {"codes": codes}


def dequantize(record):
    return {"x": q.dequantize(**options(record["input"]), **options(record["params"]))}


def fake_quantize(record):
    x, params = array(record["input"]["x"]), options(record["params"])
    ones = np.ones(x.shape, np.float32)
    return {
        "y": q.fake_quantize(x, **params),
        "grad_of_sum": q.fake_quantize_backward(ones, x, **params),
    }


def observer(record):
    """A state is loaded before the batches are seen; either may be absent."""
    made = getattr(q, record["params"]["class"])(**options(record["params"].get("kwargs", {})))
    if state := record["input"].get("state"):
        made.load_state_dict({name: array(value) for name, value in state.items()})
    for batch in map(array, record["input"].get("batches", ())):
        assert made(batch) is batch  # every observer passes its input on
    scale, zero_point = made.calculate_qparams()
    state = {name: np.asarray(value) for name, value in made.state_dict().items()}
    if isinstance(made, q.HistogramObserver):
        state["clip_range"] = [float(end) for end in made.range()]
    return {
        **described(made),
        "scale": scale,
        "zero_point": zero_point,
        "state": state,
        "forward_is_identity": True,
    }


def fake_quantize_module(record):
    params = record["params"]
    kind = getattr(q, params["observer"])
    made, outputs = q.FakeQuantize(kind, **options(params.get("kwargs", {}))), []
    for step in record["input"]["steps"]:
        if "call" in step:
            assert (
                getattr(made, step["call"])(*step.get("args", ()), **step.get("kwargs", {})) is made
            )
            continue
        x = array(step["forward"])
        y = made(x)
        grad = made.backward(np.ones(x.shape, np.float32), x)
        outputs.append(
            {"y": y, "grad_of_sum": grad, "scale": made.scale, "zero_point": made.zero_point}
        )
    return {"outputs": outputs}


def default_qconfig(record):
    config = DEFAULTS[f"{record['input']['kind'].upper()}_DEFAULT"].global_qconfig
    return {"activation": described(config.activation()), "weight": described(config.weight())}


def described(made):
    inner = made.activation_post_process if isinstance(made, q.FakeQuantize) else made
    names = ("bins", "averaging_constant", "ch_axis", "eps")
    return {
        "class": type(made).__name__,
        "observer": type(inner).__name__,
        "qscheme": made.qscheme.value,
        "qdtype": made.qdtype.name,
        **{name: getattr(inner, name, None) for name in names},
    }


DEFAULTS = {
    "PTQ_DEFAULT": q.get_default_qconfig_mapping(),
    "QAT_DEFAULT": q.get_default_qat_qconfig_mapping(),
}


def qconfig_mapping(record):
    """Recipes by name; the defaults are resolved in the mappings that the package makes."""
    steps = record["input"]["set"]
    given = {step[-1] for step in steps} - {None}
    mapping = next((DEFAULTS[name] for name in given if name in DEFAULTS), q.QConfigMapping())
    recipes = {name: q.QConfig(partial(str, name), partial(str, name)) for name in given}
    recipes |= {name: made.global_qconfig for name, made in DEFAULTS.items()}
    for tier, *key, name in steps:
        if name not in DEFAULTS:
            method = {"global": "global", "type": "object_type", "name": "module_name"}[tier]
            recipe = None if name is None else recipes[name]
            assert getattr(mapping, f"set_{method}")(*key, recipe) is mapping
    resolved = [mapping.get_qconfig(*query) for query in record["input"]["query"]]
    named = {id(recipe): name for name, recipe in recipes.items()}
    return {"resolved": [None if one is None else named[id(one)] for one in resolved]}


TABLE: dict[str, Function] = {
    f"lucid.{function.__name__}": function
    for function in (
        qdtype_info,
        qscheme_info,
        calculate_qparams,
        quantize,
        dequantize,
        fake_quantize,
        observer,
        fake_quantize_module,
        default_qconfig,
        qconfig_mapping,
    )
}


@pytest.mark.parametrize(
    "record", [r for r in records("lucid") if r["op"] in TABLE], ids=lambda r: r["id"]
)
def test_example(record):
    check(record, outcome(record, TABLE[record["op"]]))


def test_every_op_is_run_or_belongs_to_the_module_layer():
    ops = {record["op"] for record in records("lucid")}
    assert ops <= {*TABLE, *MODULE_LAYER}
    assert not {*TABLE} & {*MODULE_LAYER}
