"""Calibration: what counts, what does not, and what is left when it is interrupted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from native_build import native
from small_models import FASHION, Feed, branch, branch_feeds, fashion, warned

import lucid_fx
from lucid_fx import PreparedModule, recording, tapped_session
from lucid_fx.errors import CalibrationError, DataError, ModelError, NativeLibraryError
from lucid_fx.native.lanes import LaneSession
from lucid_fx.quantization import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    ObserverBase,
    PerChannelMinMaxObserver,
    QConfig,
    get_default_qconfig,
    get_default_qconfig_mapping,
    per_tensor_affine,
    quint8,
)
from lucid_fx.runtime import session

MINMAX = QConfig(MinMaxObserver, PerChannelMinMaxObserver)


class Middle(ObserverBase):
    """A user's own observer: the mean of each batch's 1st and 99th percentile."""

    shapes: list[tuple[int, ...]]

    def __init__(self) -> None:
        super().__init__(per_tensor_affine, quint8)

    def reset(self) -> None:
        self.shapes, self.ends = [], []

    def forward(self, x: Any) -> Any:
        self.shapes.append(x.shape)
        self.ends.append(np.percentile(x, [1, 99]))
        return x

    def range(self) -> tuple[Any, Any]:
        low, high = np.mean(self.ends, axis=0).astype(np.float32)
        return low, high


def prepared(recipe: QConfig | None = None) -> PreparedModule:
    return lucid_fx.prepare_fx(FASHION.path(), recipe or get_default_qconfig())


def grids(module: PreparedModule) -> dict[str, tuple[Any, Any]]:
    return {v: (g.scale.tolist(), g.zero_point.tolist()) for v, g in module.grids().items()}


def with_nan(where: int) -> list[Feed]:
    samples = fashion(3)
    samples[where]["image"][0, 0, 5, 5] = np.nan
    return samples


def same_states(one: PreparedModule, other: PreparedModule) -> None:
    assert one.states().keys() == other.states().keys()
    for value, state in one.states().items():
        twin = other.states()[value]
        for field in dataclasses.fields(state):
            mine, its = getattr(state, field.name), getattr(twin, field.name)
            np.testing.assert_array_equal(mine, its, err_msg=f"{value} {field.name}")


def test_a_prepared_model_computes_what_the_float_model_does() -> None:
    image = fashion(1)[0]["image"]
    np.testing.assert_allclose(
        prepared()(image), lucid_fx.trace(FASHION.path())(image), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("observer", [MinMaxObserver, HistogramObserver])
def test_calling_it_in_a_loop_is_the_same_as_calibrate(observer: type) -> None:
    recipe = QConfig(observer, PerChannelMinMaxObserver)
    called, calibrated = prepared(recipe), prepared(recipe)
    for sample in fashion(4):
        called(sample["image"])
    lucid_fx.calibrate(calibrated, fashion(4))
    assert called.samples == calibrated.samples == 4
    assert lucid_fx.convert_fx(called).to_bytes() == lucid_fx.convert_fx(calibrated).to_bytes()


@pytest.mark.parametrize(
    "observer", [MinMaxObserver, MovingAverageMinMaxObserver, HistogramObserver]
)
def test_samples_side_by_side_give_the_bits_of_one_after_the_other(
    observer: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = fashion(40)
    for at, sample in enumerate(samples):  # no two orders of them give the same statistics
        sample["image"] = sample["image"] * np.float32(1 + at % 7)
    recipe = QConfig(observer, PerChannelMinMaxObserver)
    alone, together = prepared(recipe), prepared(recipe)
    monkeypatch.setattr(recording, "cores", lambda: 3)
    lucid_fx.calibrate(together, samples)
    monkeypatch.setattr(recording, "SMALL_BYTES", 0)
    lucid_fx.calibrate(alone, samples)
    assert (together._lanes is None, alone._lanes is None) == (together.native is None, True)
    assert alone.samples == together.samples == 40
    same_states(alone, together)
    for mine, other in zip(alone.kept, together.kept, strict=True):
        np.testing.assert_array_equal(mine["image"], other["image"])
    assert grids(alone) == grids(together)


@pytest.mark.parametrize("observer", [MovingAverageMinMaxObserver, HistogramObserver])
def test_observers_of_blocked_layouts_see_what_those_of_the_usual_one_see(
    observer: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = QConfig(observer, PerChannelMinMaxObserver)
    blocked, usual, called = prepared(recipe), prepared(recipe), prepared(recipe)
    lucid_fx.calibrate(blocked, fashion(5))
    monkeypatch.setattr(tapped_session, "MOST_WEIGHTS", 0)
    lucid_fx.calibrate(usual, fashion(5))
    for sample in fashion(5):
        called(sample["image"])
    same_states(blocked, called)
    same_states(usual, called)


def test_a_graph_that_onnxruntime_does_not_take_back_is_run_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refusing(*given: Any, optimize: bool, **options: Any) -> LaneSession:
        opened.append(optimize)
        if not optimize:
            raise NativeLibraryError("no kernel")
        return LaneSession(*given, optimize=optimize, **options)

    native()
    opened: list[bool] = []
    monkeypatch.setattr(tapped_session, "LaneSession", refusing)
    lucid_fx.calibrate(module := prepared(), fashion(2))
    assert opened == [False, True] and module.samples == 2


def test_models_too_large_for_one_protobuf_and_with_weights_elsewhere_run_side_by_side(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    native()
    model = onnx.load(FASHION.path())
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    usual = lucid_fx.calibrate(prepared(), fashion(4))
    outside = lucid_fx.prepare_fx(tmp_path / "m.onnx", example_inputs=fashion(1)[0])
    monkeypatch.setattr(session, "INLINE_LIMIT", 1000)
    for module in (
        lucid_fx.calibrate(outside, fashion(4)),
        lucid_fx.calibrate(prepared(), fashion(4)),
    ):
        assert module._lanes is not None
        same_states(module, usual)


def test_two_threads_may_calibrate_one_model() -> None:
    module, samples = prepared(MINMAX), fashion(60)
    with ThreadPoolExecutor(2) as pool:
        halves = samples[:30], samples[30:]
        list(pool.map(lambda half: lucid_fx.calibrate(module, half), halves, timeout=60))
    assert module.samples == 60
    assert grids(module) == grids(lucid_fx.calibrate(prepared(MINMAX), samples))


def test_progress_may_calibrate_the_same_model_again() -> None:
    def again(done: int, total: int | None) -> None:
        if total == 5:
            lucid_fx.calibrate(module, fashion(2), progress=again)

    module = prepared(MINMAX)
    lucid_fx.calibrate(module, fashion(5), progress=again)
    assert module.samples == 15


def test_a_source_may_fill_its_array_anew() -> None:
    def refilled() -> Iterator[Feed]:
        array = np.empty_like(fashion(1)[0]["image"])
        for sample in fashion(12):
            array[...] = sample["image"]
            yield {"image": array}

    module = lucid_fx.calibrate(prepared(), refilled())
    assert grids(module) == grids(lucid_fx.calibrate(prepared(), fashion(12)))


def test_a_sample_that_fails_while_others_run_is_an_error_and_not_a_wait() -> None:
    node = onnx.helper.make_node("Conv", ["x", "w"], ["c"])
    other = onnx.helper.make_node("Conv", ["c", "v"], ["y"])
    kernel = np.ones((4, 3, 3, 3), np.float32)
    weights = [onnx.numpy_helper.from_array(kernel, "w")]
    weights.append(onnx.numpy_helper.from_array(np.ones((2, 4, 3, 3), np.float32), "v"))
    graph = onnx.helper.make_graph(
        [node, other],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [1, 3, "h", "w"])],
        [onnx.helper.make_tensor_value_info("y", 1, None)],
        weights,
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    module = lucid_fx.prepare_fx(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9))
    shapes = [9, 9, 9, 9, 9, 4, 9, 9, 9, 9]  # the second Conv cannot take what is left of 4
    with pytest.raises(ModelError, match="failed to run the model"):
        lucid_fx.calibrate(module, [np.ones((1, 3, n, n), np.float32) for n in shapes])
    assert 5 <= module.samples < len(shapes)
    lucid_fx.calibrate(module, [np.ones((1, 3, 9, 9), np.float32)])


def test_order_and_split_of_the_data_do_not_change_min_and_max() -> None:
    samples = fashion(6)
    forwards, backwards, split = prepared(MINMAX), prepared(MINMAX), prepared(MINMAX)
    lucid_fx.calibrate(forwards, samples)
    lucid_fx.calibrate(backwards, samples[::-1])
    for part in (samples[4:], samples[:1], samples[1:4]):
        lucid_fx.calibrate(split, part)
    assert grids(forwards) == grids(backwards) == grids(split)


def test_statistics_can_be_forgotten() -> None:
    module = prepared(MINMAX)
    lucid_fx.calibrate(module, fashion(6)[3:])
    module.reset()
    lucid_fx.calibrate(module, fashion(3))
    once = lucid_fx.calibrate(prepared(MINMAX), fashion(3))
    assert grids(module) == grids(once) and module.samples == 3


def test_two_prepared_models_do_not_share_statistics() -> None:
    first, second = prepared(MINMAX), prepared(MINMAX)
    lucid_fx.calibrate(first, fashion(1))
    lucid_fx.calibrate(second, fashion(3)[1:])
    alone = lucid_fx.calibrate(prepared(MINMAX), fashion(1))
    assert grids(first) == grids(alone) != grids(second)


def test_progress_is_told_after_each_sample() -> None:
    told: list[tuple[int, int | None]] = []
    lucid_fx.calibrate(prepared(), fashion(3), progress=lambda *done: told.append(done))
    lucid_fx.calibrate(prepared(), iter(fashion(1)), progress=lambda *done: told.append(done))
    assert told == [(1, 3), (2, 3), (3, 3), (1, None)]


def test_an_observer_of_the_users_own_gets_one_batch_at_a_time() -> None:
    mapping = get_default_qconfig_mapping()
    mapping.set_object_type("Add", QConfig(Middle, PerChannelMinMaxObserver))
    module = lucid_fx.prepare_fx(FASHION.path(), mapping)
    own = {v: o for v, o in module.observers.items() if isinstance(o, Middle)}
    assert own and len(own) < len(module.observers)
    lucid_fx.calibrate(module, fashion(5))
    for value, observer in own.items():
        assert len(observer.shapes) == 5 and {shape[0] for shape in observer.shapes} == {1}
        scale, zero_point = observer.calculate_qparams()
        assert grids(module)[value] == (scale.tolist(), zero_point.tolist())
    assert lucid_fx.convert_fx(module)(fashion(1)[0]["image"]).shape == (1, 10)


def test_nobody_else_takes_over_what_the_users_own_observer_watches() -> None:
    """Evening out channels has observers of its own; it keeps away from the user's."""
    module = prepared(QConfig(Middle, PerChannelMinMaxObserver))
    assert module.observers.keys() >= module.plan.observed.keys()
    assert all(isinstance(module.observers[value], Middle) for value in module.plan.observed)


def test_an_interrupted_calibration_leaves_what_was_seen() -> None:
    def interrupted() -> Iterator[Feed]:
        yield from fashion(3)
        raise KeyboardInterrupt

    module = prepared()
    with pytest.raises(KeyboardInterrupt):
        lucid_fx.calibrate(module, interrupted())
    whole = lucid_fx.calibrate(prepared(), fashion(3))
    assert module.samples == 3
    assert lucid_fx.convert_fx(module).to_bytes() == lucid_fx.convert_fx(whole).to_bytes()


def test_calibration_can_go_on_after_a_conversion() -> None:
    """A branch that ran late is quantized late: converting does not narrow the plan for good."""
    module = lucid_fx.prepare_fx(branch())
    lucid_fx.calibrate(module, branch_feeds(True))
    early = lucid_fx.convert_fx(module).ledger
    lucid_fx.calibrate(module, branch_feeds(False))
    late = lucid_fx.convert_fx(module).ledger
    if module.native is not None:
        assert early["inner"].status == late["inner"].status == "quantized"
        assert (early["other"].status, late["other"].status) == ("float", "quantized")


@pytest.mark.parametrize("where", [0, 2])
def test_nan_is_left_out_with_a_warning_that_counts(where: int) -> None:
    module = prepared()
    told = warned(lambda: lucid_fx.calibrate(module, with_nan(where)))
    assert "tensor 'image': 1 NaN and 0 infinite values in 2352 were ignored" in told
    assert all(np.isfinite(grid.scale).all() for grid in module.grids().values())


def test_nan_is_left_out_without_a_word_when_told_to() -> None:
    assert not warned(lambda: lucid_fx.calibrate(prepared(), with_nan(1), nonfinite="ignore"))


def test_nan_is_refused_when_told_to() -> None:
    with pytest.raises(CalibrationError, match=r"\d+ NaN and 0 infinite values in \d+") as caught:
        lucid_fx.calibrate(prepared(), with_nan(1), nonfinite="error")
    assert caught.value.tensor is not None and caught.value.tensor in str(caught.value)


def test_a_sample_that_does_not_fit_is_named() -> None:
    bad = [*fashion(1), {"picture": fashion(1)[0]["image"]}]
    with pytest.raises(DataError, match="sample 1: the model has no input 'picture'"):
        lucid_fx.calibrate(prepared(), bad)


def test_no_samples_and_no_calibration_are_errors() -> None:
    with pytest.raises(DataError, match="no calibration samples"):
        lucid_fx.calibrate(prepared(), [])
    with pytest.raises(CalibrationError, match="has seen no data; run calibrate"):
        lucid_fx.convert_fx(prepared())
