"""The workflow functions: what they leave alone, whom they listen to, what they do not measure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from checks import model_from
from small_models import FASHION, fashion, warned

import lucid_fx
import lucid_fx.quantization as q
from lucid_fx import TARGETS, GraphModule, workflow
from lucid_fx.accuracy_guard import why_not_measured
from lucid_fx.errors import ConfigError
from lucid_fx.quantization import (
    MinMaxObserver,
    PerChannelMinMaxObserver,
    QConfig,
    QConfigMapping,
    get_default_qconfig,
    get_default_qconfig_mapping,
)

VNNI, AVX2 = TARGETS["cpu-avx512vnni"], TARGETS["cpu-avx2"]
ONES = ", ".join(["0.5"] * 144)
SCOPED = f"""g (float[1,4,16,16] x) => (float[1,4,16,16] y) <float[4,4,3,3] w = {{{ONES}}}> {{
    ["net/stem/conv"] t = Conv <pads = [1,1,1,1]> (x, w)
    ["net/head/conv"] u = Conv <pads = [1,1,1,1]> (t, w)
    ["net/head/last/conv"] y = Conv <pads = [1,1,1,1]> (u, w) }}"""

CALLS: dict[str, Callable[[Any], object]] = {
    "trace": lucid_fx.trace,
    "fuse": lucid_fx.fuse,
    "prepare_fx": lucid_fx.prepare_fx,
    "quantize": lambda model: lucid_fx.quantize(model, fashion(2)),
}


def statuses(mapping: QConfigMapping) -> list[str]:
    """What became of the three nodes of `SCOPED`."""
    sample = np.random.default_rng(0).standard_normal((1, 4, 16, 16)).astype(np.float32)
    done = lucid_fx.quantize(model_from(SCOPED, prepare=False), [sample], mapping)
    return [entry.status for entry in done.ledger]


def saved(module: GraphModule) -> tuple[bytes, str]:
    return module.to_bytes(), module.ledger.to_json()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_given_model_is_not_changed(call: Callable[[Any], object]) -> None:
    proto = onnx.load(FASHION.path())
    model, module = ir.from_proto(proto), lucid_fx.trace(proto)
    before = proto.SerializeToString(deterministic=True)
    read, traced = ir.to_proto(model).SerializeToString(deterministic=True), saved(module)
    for given in (proto, model, module):
        call(given)
    assert proto.SerializeToString(deterministic=True) == before
    assert ir.to_proto(model).SerializeToString(deterministic=True) == read
    assert saved(module) == traced


def test_inplace_changes_what_was_given() -> None:
    module = lucid_fx.trace(FASHION.path())
    assert lucid_fx.fuse(module, inplace=True) is module
    assert any("_folded" in name for name in module.model.graph.initializers)


def test_convert_leaves_the_prepared_model_as_it_was() -> None:
    prepared = lucid_fx.calibrate(lucid_fx.prepare_fx(FASHION.path()), fashion(2))
    plan, before = prepared.plan, saved(prepared)
    first = lucid_fx.convert_fx(prepared, format="qdq").to_bytes()
    assert (prepared.plan, saved(prepared)) == (plan, before)
    assert lucid_fx.convert_fx(prepared, format="qdq").to_bytes() == first


def test_a_clone_shares_the_weights_and_nothing_else() -> None:
    module = lucid_fx.trace(FASHION.path())
    twin, before = module.clone(), saved(module)
    for name, value in module.model.graph.initializers.items():
        assert twin.model.graph.initializers[name].const_value is value.const_value
    lucid_fx.fuse(twin, inplace=True)
    assert saved(module) == before


@pytest.mark.parametrize("format", ["qoperator", "qdq"])
def test_the_same_data_gives_the_same_bytes(format: Any) -> None:
    one, two = (lucid_fx.quantize(FASHION.path(), fashion(4), format=format) for _ in range(2))
    assert one.to_bytes() == two.to_bytes()
    assert one.ledger.to_json() == two.ledger.to_json()


def test_all_in_one_call_is_the_same_as_step_by_step() -> None:
    gm = lucid_fx.fuse(lucid_fx.trace(FASHION.path()))
    prepared = lucid_fx.prepare_fx(gm, example_inputs=fashion(1)[0])
    lucid_fx.calibrate(prepared, fashion(3))
    whole = lucid_fx.quantize(FASHION.path(), (sample for sample in fashion(3)))
    assert lucid_fx.convert_fx(prepared).to_bytes() == whole.to_bytes()


@pytest.mark.parametrize(
    ("kind", "name", "near"),
    [
        ("module", "fcc", "did you mean 'fc'"),
        ("module", "conv00", "did you mean 'conv0'"),
        ("type", "Convv", "did you mean 'Conv'"),
        ("type", "LSTM", "known are"),
    ],
)
def test_a_name_that_matches_nothing_is_an_error(kind: str, name: str, near: str) -> None:
    mapping = get_default_qconfig_mapping()
    set_one = mapping.set_module_name if kind == "module" else mapping.set_object_type
    set_one(name, None)
    with pytest.raises(ValueError, match=f"{name}.*{near}") as caught:
        lucid_fx.prepare_fx(FASHION.path(), mapping)
    assert isinstance(caught.value, ConfigError)


def test_near_matches_know_scopes_too() -> None:
    with pytest.raises(ConfigError, match=r"named 'net/haed'; did you mean 'net/head'"):
        statuses(get_default_qconfig_mapping().set_module_name("net/haed", None))


@pytest.mark.parametrize(
    ("scopes", "wanted"),
    [
        ((), "qqq"),
        (("net",), "fff"),
        (("net/head",), "qff"),
        (("net/head/conv",), "qfq"),
        (("net/head/last", "net/stem"), "fqf"),
    ],
)
def test_none_leaves_a_node_or_a_scope_in_float(scopes: tuple[str, ...], wanted: str) -> None:
    mapping = get_default_qconfig_mapping()
    for scope in scopes:
        mapping.set_module_name(scope, None)
    assert "".join(status[0] for status in statuses(mapping)) == wanted


def test_the_innermost_scope_counts() -> None:
    mapping = get_default_qconfig_mapping().set_module_name("net", None)
    mapping.set_module_name("net/head/last", get_default_qconfig())
    assert statuses(mapping) == ["float", "float", "quantized"]


def test_a_name_wins_over_a_type_and_a_type_over_the_rest() -> None:
    mapping = get_default_qconfig_mapping().set_object_type("Conv", None)
    mapping.set_module_name("net/stem", get_default_qconfig())
    assert statuses(mapping) == ["quantized", "float", "float"]
    assert statuses(QConfigMapping().set_object_type("Conv", get_default_qconfig())) == (
        ["quantized"] * 3
    )
    assert statuses(QConfigMapping()) == ["float"] * 3


def test_one_recipe_is_a_mapping_with_only_the_global_tier() -> None:
    recipe = QConfig(MinMaxObserver, PerChannelMinMaxObserver)
    prepared = lucid_fx.prepare_fx(FASHION.path(), recipe)
    assert set(prepared.recipes.values()) == {recipe}


def test_activations_on_a_grid_for_each_channel_are_refused() -> None:
    recipe = QConfig(PerChannelMinMaxObserver, PerChannelMinMaxObserver)
    with pytest.raises(ConfigError, match=r"grid for each channel.*'conv0.*per-tensor qscheme"):
        lucid_fx.prepare_fx(FASHION.path(), recipe)


@pytest.mark.parametrize("kind", [q.PlaceholderObserver, q.NoopObserver])
@pytest.mark.parametrize("where", ["activations", "weights"])
def test_observers_without_statistics_are_a_configuration_error(kind: Any, where: str) -> None:
    default = get_default_qconfig()
    config = (
        QConfig(kind, default.weight) if where == "activations" else default._replace(weight=kind)
    )
    with pytest.raises(ConfigError, match=rf"{kind.__name__} collects no statistics.*{where}") as e:
        lucid_fx.prepare_fx(model_from(SCOPED, prepare=False), config)
    assert e.value.node == "net/stem/conv" and "None as the recipe" in str(e.value)


def test_grids_without_a_kernel_are_a_configuration_error() -> None:
    weight = PerChannelMinMaxObserver.with_args(qdtype=q.qint4)
    config = get_default_qconfig()._replace(weight=weight)
    with pytest.raises(ConfigError, match=r"no kernel takes weights on qint4.*int8 or uint8"):
        lucid_fx.prepare_fx(model_from(SCOPED, prepare=False), config)
    narrow = q.QDtype("narrow", 4, True, -8, 7, "int8")  # the same codes, as a kernel takes them
    config = config._replace(weight=PerChannelMinMaxObserver.with_args(qdtype=narrow))
    assert statuses(QConfigMapping().set_global(config)) == ["quantized"] * 3


def test_recipes_of_training_give_their_observers() -> None:
    """The grid of a FakeQuantize's observer is that of the observer itself."""
    mapping, plain = q.get_default_qat_qconfig_mapping(), QConfigMapping()
    plain.set_global(
        QConfig(q.MovingAverageMinMaxObserver, PerChannelMinMaxObserver.with_args(ch_axis=0))
    )
    made = [lucid_fx.quantize(FASHION.path(), fashion(4), one) for one in (mapping, plain)]
    assert made[0].to_bytes() == made[1].to_bytes()


def test_a_type_is_that_of_the_node_and_not_of_what_it_took_in() -> None:
    """A Conv that folded an Add stays on codes when Adds are excluded; by name it does not."""
    text = f"""g (float[1,4,16,16] x) => (float[1,4,16,16] y)
        <float[4,4,3,3] w = {{{ONES}}}, float[4,1,1] b = {{1, 2, 3, 4}}> {{
        [conv] t = Conv <pads = [1,1,1,1]> (x, w)  [bias] y = Add (t, b) }}"""
    for mapping, expected in (
        (get_default_qconfig_mapping().set_object_type("Add", None), 1),
        (get_default_qconfig_mapping().set_module_name("bias", None), 0),
    ):
        assert len(lucid_fx.prepare_fx(model_from(text), mapping).plan.integer) == expected


def test_what_was_excluded_says_so_in_the_ledger() -> None:
    mapping = get_default_qconfig_mapping().set_module_name("fc", None)
    entry = lucid_fx.quantize(FASHION.path(), fashion(2), mapping).ledger["fc"]
    assert (entry.status, entry.reason) == ("float", "the configuration leaves it in float")


def test_unknown_targets_and_formats_are_errors() -> None:
    with pytest.raises(ConfigError, match="no target 'tpu'; known are auto, cpu-avx512vnni"):
        lucid_fx.prepare_fx(FASHION.path(), target="tpu")
    prepared = lucid_fx.calibrate(lucid_fx.prepare_fx(FASHION.path()), fashion(1))
    with pytest.raises(ConfigError, match="no format 'onnx'"):
        lucid_fx.convert_fx(prepared, format="onnx")  # type: ignore[arg-type]


def test_the_ledger_tells_the_measured_accuracy() -> None:
    notes = lucid_fx.quantize(FASHION.path(), fashion(3)).ledger.notes
    assert any(note.startswith("signal to noise of the outputs on 3 samples") for note in notes)


def test_accuracy_is_not_measured_on_a_machine_that_saturates_for_one_that_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert why_not_measured(AVX2, host=VNNI) is None  # its weights are safe on both
    assert why_not_measured(AVX2, host=AVX2) is None
    monkeypatch.setattr(workflow, "cpu_isa", lambda: "avx2")
    done: list[GraphModule] = []
    quantize = lambda: done.append(  # noqa: E731
        lucid_fx.quantize(FASHION.path(), fashion(2), target="cpu-avx512vnni")
    )
    assert not warned(quantize)
    notes = done[0].ledger.notes
    assert "accuracy was not measured: 8-bit products saturate on this machine (cpu-avx2)," in str(
        notes
    )
    assert not any(note.startswith("signal to noise") for note in notes)
