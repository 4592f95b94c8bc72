"""Without the native library everything works, slower, and says so once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from small_models import FASHION, branch, branch_feeds, fashion, warned

import lucid_fx
from lucid_fx import LucidFxWarning, PreparedModule
from lucid_fx.native import library
from lucid_fx.quantization import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    PerChannelMinMaxObserver,
    QConfig,
)

OBSERVERS = [MinMaxObserver, MovingAverageMinMaxObserver, HistogramObserver]


def forget_library() -> None:
    library.load.cache_clear()
    library.say_missing.cache_clear()


@pytest.fixture
def no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installation whose library is not where it should be."""
    monkeypatch.setenv("LUCID_FX_LIBRARY", str(tmp_path / "absent.so"))
    forget_library()
    yield
    monkeypatch.undo()
    forget_library()


@pytest.fixture
def quietly(no_library: None) -> Iterator[None]:
    """The same, where the warning is not what is tested."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "lucid_fx runs without", LucidFxWarning)
        yield


def calibrated(observer: type, samples: int = 6) -> PreparedModule:
    prepared = lucid_fx.prepare_fx(FASHION.path(), QConfig(observer, PerChannelMinMaxObserver))
    return lucid_fx.calibrate(prepared, fashion(samples))


def test_it_says_so_once(no_library: None) -> None:
    with pytest.warns(LucidFxWarning, match="without its native library.*absent.so") as caught:
        lucid_fx.prepare_fx(FASHION.path())
        lucid_fx.prepare_fx(FASHION.path())
    assert len(caught) == 1


def test_nobody_is_bothered_who_does_not_calibrate(no_library: None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lucid_fx.trace(FASHION.path())(fashion(1)[0]["image"])
        assert library.cpu_isa() == library.python_cpu_isa()


@pytest.mark.parametrize("observer", OBSERVERS)
def test_grids_are_those_of_the_native_observers(
    observer: type, request: pytest.FixtureRequest
) -> None:
    native = calibrated(observer)
    if native.native is None:
        pytest.skip("this installation has no native library to compare with")
    request.getfixturevalue("quietly")
    python = calibrated(observer)
    assert python.native is None
    wanted, found = native.grids(), python.grids()
    assert found.keys() == wanted.keys()
    for value, grid in wanted.items():
        np.testing.assert_array_equal(found[value].scale, grid.scale, err_msg=value)
        np.testing.assert_array_equal(found[value].zero_point, grid.zero_point, err_msg=value)
    assert lucid_fx.convert_fx(python).to_bytes() == lucid_fx.convert_fx(native).to_bytes()


def test_histograms_are_equal_bin_by_bin(request: pytest.FixtureRequest) -> None:
    native = calibrated(HistogramObserver)
    states = native.states()
    request.getfixturevalue("quietly")
    python = calibrated(HistogramObserver)
    for value, state in states.items():
        if state.histogram is not None:
            counts = python.observers[value].histogram  # type: ignore[attr-defined]
            np.testing.assert_array_equal(counts, state.histogram, err_msg=value)


def test_nonfinite_values_are_counted_and_left_out(quietly: None) -> None:
    samples = fashion(2)
    samples[1]["image"][0, 0, 5, 5] = np.nan
    prepared = lucid_fx.prepare_fx(FASHION.path())
    told = warned(lambda: lucid_fx.calibrate(prepared, samples))
    assert "tensor 'image': 1 NaN and 0 infinite values in 1568 were ignored" in told
    assert all(np.isfinite(grid.scale).all() for grid in prepared.grids().values())


def test_what_python_cannot_see_stays_in_float_and_says_why(quietly: None) -> None:
    """Values inside bodies are no outputs of the graph; only native observers reach them."""
    quantized = lucid_fx.quantize(branch(), branch_feeds(True, False))
    assert quantized.ledger["outer"].status == "quantized"
    for name in ("inner", "other"):
        assert quantized.ledger[name].status == "float"
        assert "has no range" in quantized.ledger[name].reason


def test_with_the_library_bodies_are_quantized_too() -> None:
    if library.load() is None:
        pytest.skip("this installation has no native library")
    quantized = lucid_fx.quantize(branch(), branch_feeds(True, False))
    assert {quantized.ledger[name].status for name in ("outer", "inner", "other")} == {"quantized"}
