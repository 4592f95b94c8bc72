"""The observe kernels against their definition in numpy, on every instruction set here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from native_build import native
from numpy.typing import NDArray

from lucid_fx.errors import NativeLibraryError
from lucid_fx.native.observers import KINDS, NativeObservers, ObserverState
from lucid_fx.quantization.histogram import regrow

KEY = "test_observers"
LIBRARY = native()
OBSERVERS = NativeObservers(LIBRARY)
ISAS = LIBRARY.isas()
WIDTHS = (4, 8, 16)
SIZES = sorted(
    {n for w in WIDTHS for n in (1, w - 1, w, w + 1, 3 * w + 1)} | {64, 1023, 1025, 5000}
)
F32 = np.finfo(np.float32)


@pytest.fixture
def observers() -> Iterator[NativeObservers]:
    OBSERVERS.reset(KEY)
    yield OBSERVERS
    OBSERVERS.reset(KEY)


def observe(*batches: NDArray[Any], **options: Any) -> ObserverState:
    OBSERVERS.reset(KEY)
    for batch in batches:
        OBSERVERS.update(KEY, batch, **options)
    state = OBSERVERS.state(KEY)
    assert state is not None
    return state


def same(a: ObserverState, b: ObserverState) -> None:
    for name in ObserverState.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def define_count(x: NDArray[np.float32], low: float, high: float, bins: int) -> NDArray[np.int64]:
    step = (high - low or 1.0) / bins
    index = np.trunc((x.astype(np.float64) - low) / step).astype(np.int64)
    return np.bincount(np.minimum(index, bins - 1), minlength=bins)


def define_histogram(batches: list[NDArray[np.float32]], bins: int) -> NDArray[np.int64]:
    counts, low, high = np.zeros(bins, np.int64), np.float32(np.inf), np.float32(-np.inf)
    for batch in batches:
        batch = batch[np.isfinite(batch)]
        if batch.size == 0:
            continue
        new_low, new_high = min(low, batch.min()), max(high, batch.max())
        if counts.any() and (new_low, new_high) != (low, high):
            counts = regrow(counts, (low, high), (new_low, new_high))
        low, high = new_low, new_high
        counts = counts + define_count(batch, float(low), float(high), bins)
    return counts


DATA: dict[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    "gauss": lambda x: x,
    "relu": lambda x: np.maximum(x, np.float32(0)),
    "negative": lambda x: -np.abs(x) - 1,
    "constant": lambda x: np.full_like(x, 0.1),
    "grid": lambda x: np.round(x * 64) / np.float32(64),  # values on bin edges
    "denormal": lambda x: x * F32.smallest_subnormal * 1000,
    "tiny": lambda x: x * np.float32(1e-35),
    "huge": lambda x: np.clip(x, -3, 3) * np.float32(F32.max / 3),
    "offset": lambda x: np.float32(1e6) + x,  # a few steps of float32 wide, far from zero
    "softmax": lambda x: np.exp(8 * x),  # nearly everything in the first bins
}


def data(name: str, n: int, seed: int = 0) -> NDArray[np.float32]:
    return DATA[name](np.random.default_rng(seed).standard_normal(n).astype(np.float32))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("bins", [1, 4, 100, 2048, 65536])
def test_histogram_counts_are_the_definition(isa: str, name: str, bins: int) -> None:
    for n in (*SIZES, 70_000):
        x = data(name, n)
        state = observe(x, kind="histogram", bins=bins, isa=isa)
        assert (state.min_val, state.max_val) == (x.min(), x.max())
        assert (state.histogram_min, state.histogram_max) == (x.min(), x.max())
        np.testing.assert_array_equal(state.histogram, define_histogram([x], bins), str(n))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bins", [3, 16, 2048])
def test_histogram_growth_is_the_definition(isa: str, bins: int) -> None:
    r = np.random.default_rng(1)
    for trial in range(20):
        batches = [
            (r.standard_normal(int(r.integers(1, 3000))) * 3.0 ** r.integers(-3, 3)).astype("f4")
            for _ in range(8)
        ]
        batches.insert(trial % 8, np.full(7, batches[0][0]))
        state = observe(*batches, kind="histogram", bins=bins, isa=isa)
        assert state.histogram is not None
        assert state.histogram.sum() == sum(b.size for b in batches)
        np.testing.assert_array_equal(state.histogram, define_histogram(batches, bins))


def test_growth_from_overflowing_and_vanishing_ranges_conserves_mass() -> None:
    tiny = np.array([0, F32.smallest_subnormal], np.float32)
    huge = np.array([-F32.max, F32.max], np.float32)
    state = observe(tiny, 2 * tiny, huge, -huge, kind="histogram", bins=1000)
    assert state.histogram is not None
    assert state.histogram.sum() == 8


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n", [*SIZES, 200_000])
def test_extent_with_every_tail(isa: str, n: int) -> None:
    for name in DATA:
        x = data(name, n)
        state = observe(x, kind="minmax", isa=isa)
        assert (state.min_val, state.max_val) == (x.min(), x.max())
    for where in {0, n // 2, n - 1}:  # the extremes in any lane
        x = np.zeros(n, np.float32)
        x[where] = -5
        x[n - 1 - where] = 7
        state = observe(x, kind="minmax", isa=isa)
        assert (state.min_val, state.max_val) == (x.min(), x.max())


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_values_that_are_not_finite_are_counted_and_ignored(
    isa: str, bad: float, kind: str
) -> None:
    for n in (1, 2, 17, 33, 3000, 70_000):
        for where in sorted({0, n // 2, n - 1}):
            x = data("gauss", n)
            x[where] = bad
            shaped = x.reshape(1, n) if n % 2 else x.reshape(2, n // 2)
            state = observe(shaped, kind=kind, isa=isa, ch_axis=1)
            rest = np.where(np.isfinite(shaped), shaped, np.float32(np.nan))
            assert state.nan_count == np.isnan(x).sum()
            assert state.inf_count == np.isinf(x).sum()
            assert (state.batches, state.elements, state.max_elements) == (1, n, n)
            if n == 1:
                assert (state.overall_min, state.overall_max) == (math.inf, -math.inf)
                assert state.histogram is None
                continue
            assert (state.overall_min, state.overall_max) == (np.nanmin(rest), np.nanmax(rest))
            if state.channel_min is not None and state.channel_max is not None:
                columns = ~np.isnan(rest).all(axis=0)
                np.testing.assert_array_equal(
                    state.channel_min[columns], np.nanmin(rest[:, columns], axis=0)
                )
                np.testing.assert_array_equal(
                    state.channel_max[columns], np.nanmax(rest[:, columns], axis=0)
                )
                assert np.isposinf(state.channel_min[~columns]).all()
            if state.histogram is not None:
                np.testing.assert_array_equal(state.histogram, define_histogram([x], 2048))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_channels_of_every_layout(isa: str, dtype: type[np.floating[Any]]) -> None:
    r = np.random.default_rng(2)
    shapes = [(5,), (3, 7), (2, 3, 4), (2, 3, 17), (4, 33, 1), (2, 3, 5, 49), (70, 3, 400)]
    for shape in [*shapes, (1, 1, 1), (9, 2000), (3000, 35), (2, 40_000, 2)]:
        x = r.standard_normal(shape).astype(dtype)
        for axis in range(-x.ndim, x.ndim):
            state = observe(x, kind="per_channel", ch_axis=axis, isa=isa)
            rest = tuple(i for i in range(x.ndim) if i != axis % x.ndim)
            np.testing.assert_array_equal(state.channel_min, x.min(axis=rest).astype("f4"))
            np.testing.assert_array_equal(state.channel_max, x.max(axis=rest).astype("f4"))
            assert (state.min_val, state.max_val) == (np.float32(x.min()), np.float32(x.max()))


@pytest.mark.parametrize("isa", ISAS)
def test_every_half_is_converted_exactly(isa: str) -> None:
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    state = observe(every, kind="per_channel", isa=isa)
    assert state.channel_min is not None
    finite = np.isfinite(every)
    np.testing.assert_array_equal(state.channel_min[finite], every[finite].astype(np.float32))
    assert state.nan_count == np.isnan(every).sum()
    assert state.inf_count == 2


def test_double_beyond_float32_counts_as_infinite() -> None:
    state = observe(np.array([1e300, 1.0]), kind="minmax")
    assert (state.inf_count, state.max_val) == (1, 1.0)


@pytest.mark.parametrize("isa", ISAS)
def test_all_instruction_sets_agree_bit_for_bit(isa: str) -> None:
    r = np.random.default_rng(3)
    batches = [data(name, int(r.integers(1, 100_000)), seed) for seed, name in enumerate(DATA)]
    for kind in ("minmax", "moving_average", "histogram"):
        same(observe(*batches, kind=kind, isa=isa), observe(*batches, kind=kind, isa="scalar"))
    zeros = np.array([0.0, -0.0] * 20, np.float32)
    for x in (zeros, -zeros):
        state = observe(x, kind="minmax", isa=isa)
        assert math.copysign(1, state.min_val) == math.copysign(1, state.max_val) == 1


def test_moving_average_in_float32() -> None:
    r = np.random.default_rng(4)
    batches = [r.standard_normal((6, 50)).astype(np.float32) for _ in range(30)]
    c = np.float32(0.1)
    low, high = batches[0].min(axis=1), batches[0].max(axis=1)
    one_low, one_high = batches[0].min(), batches[0].max()
    for batch in batches[1:]:
        low, high = low + c * (batch.min(axis=1) - low), high + c * (batch.max(axis=1) - high)
        one_low = one_low + c * (batch.min() - one_low)
        one_high = one_high + c * (batch.max() - one_high)
    state = observe(*batches, kind="per_channel_moving_average", averaging_constant=0.1)
    np.testing.assert_array_equal(state.channel_min, low)
    np.testing.assert_array_equal(state.channel_max, high)
    state = observe(*batches, kind="moving_average", averaging_constant=0.1)
    assert (state.min_val, state.max_val) == (one_low, one_high)
    everything = np.concatenate(batches)
    assert (state.overall_min, state.overall_max) == (everything.min(), everything.max())


def test_moving_average_survives_overflow_and_an_empty_channel() -> None:
    state = observe(
        np.array([F32.max, -F32.max], np.float32),
        np.array([-F32.max, F32.max], np.float32),
        np.array([np.nan, np.nan], np.float32),
        kind="per_channel_moving_average",
        averaging_constant=0.5,
    )
    np.testing.assert_array_equal(state.channel_min, np.zeros(2))


# The worked examples of the affine specification: constructor options, batches, expected state.
EXAMPLES: list[tuple[str, dict[str, Any], list[Any], dict[str, Any]]] = [
    ("minmax", {}, [[[-1, 2], [0.5, 3]], [[-2, 1]]], {"min_val": -2, "max_val": 3}),
    ("minmax", {}, [[1, 2, 3]], {"min_val": 1, "max_val": 3}),
    ("minmax", {}, [[0, 0]], {"min_val": 0, "max_val": 0}),
    ("moving_average", {}, [[0] * 4, [1000] * 4], {"min_val": 10, "max_val": 10}),
    (
        "moving_average",
        {"averaging_constant": 0.1},
        [[-1, 1], [-3, 2], [-0.5, 8]],
        {"min_val": -1.13, "max_val": 1.79},
    ),
    (
        "per_channel",
        {"ch_axis": 1},
        [[[1, 2, 3], [-4, 0.5, 0.1]]],
        {"channel_min": [-4, 0.5, 0.1], "channel_max": [1, 2, 3]},
    ),
    (
        "per_channel",
        {"ch_axis": 1},
        [[[[1, -2], [3, 4]], [[-5, 6], [7, -8]]]],
        {"channel_min": [-5, -8], "channel_max": [6, 7]},
    ),
    (
        "per_channel_moving_average",
        {"averaging_constant": 0.25},
        [[[1, -2, 3], [0.5, -0.25, 0.125]], [[2, 0, 0], [1, 1, 1]], [[0, -4, 0], [-1, 0, 0]]],
        {"channel_min": [-2.125, -0.203125], "channel_max": [2.0625, 0.46875]},
    ),
    (
        "histogram",
        {"bins": 4},
        [[0, 1, 2, 3, 4], [-4, 8]],
        {"min_val": -4, "max_val": 8, "histogram": [1, 2, 3, 1]},
    ),
    (
        "histogram",
        {"bins": 4},
        [[0, 1, 2, 3, 4], [1, 1, 3.5]],
        {"min_val": 0, "max_val": 4, "histogram": [1, 3, 1, 3]},
    ),
    (
        "histogram",
        {"bins": 4},
        [[2, 2, 2]],
        {"histogram_min": 2, "histogram_max": 2, "histogram": [3, 0, 0, 0]},
    ),
    ("histogram", {"bins": 4}, [[2, 2, 2], [0, 8]], {"histogram": [1, 3, 0, 1]}),
    (
        "histogram",
        {"bins": 16},
        [np.append(np.arange(200, dtype=np.float32) * np.float32(0.005), 10)],
        {"histogram": [125, 75, *[0] * 13, 1]},
    ),
    (
        "histogram",
        {"bins": 8},
        [[-1, -0.5, 0, 0.25, 0.5, 1, 2, 7]],
        {"histogram": [2, 3, 1, 1, 0, 0, 0, 1]},
    ),
]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("kind", "options", "batches", "expected"), EXAMPLES)
def test_worked_examples(
    isa: str,
    kind: str,
    options: dict[str, Any],
    batches: list[Any],
    expected: dict[str, Any],
) -> None:
    state = observe(*(np.asarray(b, np.float32) for b in batches), kind=kind, isa=isa, **options)
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(state, name), value, rtol=2e-6, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_state_continues_exactly(observers: NativeObservers, kind: str) -> None:
    r = np.random.default_rng(5)
    batches = [r.standard_normal((4, 100)).astype(np.float32) * (i + 1) for i in range(6)]
    whole = observe(*batches, kind=kind, bins=64)
    half = observe(*batches[:3], kind=kind, bins=64)
    observers.reset(KEY)
    observers.load_state(KEY, half, bins=64)
    loaded = observers.state(KEY)
    assert loaded is not None
    same(loaded, half)
    for batch in batches[3:]:
        observers.update(KEY, batch, kind=kind, bins=64)
    final = observers.state(KEY)
    assert final is not None
    same(final, whole)


def test_unknown_key_empty_tensor_and_reset_by_prefix(observers: NativeObservers) -> None:
    assert observers.state(KEY) is None
    observers.update(KEY, np.empty((0, 3), np.float32), kind="minmax")
    assert observers.state(KEY) is None
    for suffix in ("/a", "/b", ""):
        observers.update(KEY + suffix, np.float32(1.5).reshape(()), kind="per_channel")
    observers.reset(KEY + "/")
    assert observers.state(KEY + "/a") is observers.state(KEY + "/b") is None
    state = observers.state(KEY)
    assert state is not None
    assert state.channel_min is not None
    assert state.channel_min.tolist() == [1.5]


def test_views_and_strides_are_read_in_their_order(observers: NativeObservers) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    observers.update(KEY, x.transpose(2, 0, 1)[::2], kind="per_channel", ch_axis=0)
    state = observers.state(KEY)
    assert state is not None
    np.testing.assert_array_equal(state.channel_min, [0, 2])
    np.testing.assert_array_equal(state.channel_max, [20, 22])


def test_mistakes_are_named_and_record_nothing(observers: NativeObservers) -> None:
    x = np.ones((2, 3), np.float32)
    mistakes: list[tuple[NDArray[Any], dict[str, Any], str]] = [
        (x, {"kind": "median"}, "median"),
        (x, {"kind": "histogram", "bins": 0}, "bins"),
        (x, {"kind": "histogram", "bins": 65537}, "bins"),
        (x, {"kind": "moving_average", "averaging_constant": 2.0}, "averaging_constant"),
        (x, {"kind": "per_channel", "ch_axis": 2}, "ch_axis 2"),
        (x, {"kind": "minmax", "isa": "mmx"}, "mmx"),
        (x.astype(np.int32), {"kind": "minmax"}, "int32"),
    ]
    for array, options, word in mistakes:
        with pytest.raises(NativeLibraryError, match=word):
            observers.update(KEY, array, **options)
        assert observers.state(KEY) is None
    observers.update(KEY, x, kind="per_channel")
    before = observers.state(KEY)
    for array, options, word in [
        (x, {"kind": "minmax"}, "per_channel"),
        (x[:1], {"kind": "per_channel"}, "2 channels"),
    ]:
        with pytest.raises(NativeLibraryError, match=word):
            observers.update(KEY, array, **options)
    after = observers.state(KEY)
    assert before is not None
    assert after is not None
    same(before, after)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_gram_matrices_add_up_over_batches_of_any_shape(isa: str, dtype: type) -> None:
    rng = np.random.default_rng(0)
    for columns in (1, 15, 16, 17, 64, 100):
        OBSERVERS.reset(KEY)
        wanted, rows = np.zeros((columns, columns)), 0
        for lead in ((), (3,), (2, 65), (1, 128)):
            x = rng.standard_normal((*lead, columns)).astype(dtype)
            OBSERVERS.update(KEY, x, kind="gram", isa=isa)
            flat = x.reshape(-1, columns).astype(np.float32).astype(np.float64)
            wanted += flat.T @ flat
            rows += len(flat)
        state = OBSERVERS.state(KEY)
        assert state is not None
        assert (state.columns, state.elements) == (columns, rows * columns)
        got = OBSERVERS.gram(KEY, columns)
        # 64 rows at a time are summed in float32; magnitudes are at most 4.5 ** 2
        np.testing.assert_allclose(got, wanted, atol=rows * 4.5**2 * 64 * 2.0**-24)
        np.testing.assert_array_equal(got, got.T)


def test_gram_matrices_have_the_same_bits_on_every_instruction_set(
    observers: NativeObservers,
) -> None:
    x = np.random.default_rng(1).standard_normal((130, 70)).astype(np.float32)
    found = []
    for isa in ISAS:
        OBSERVERS.reset(KEY)
        OBSERVERS.update(KEY, x, kind="gram", isa=isa)
        found.append(OBSERVERS.gram(KEY, 70))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_gram_matrices_count_what_is_not_finite_as_zero(observers: NativeObservers) -> None:
    x = np.ones((4, 2), np.float32)
    x[1, 0], x[2, 1] = np.nan, np.inf
    OBSERVERS.update(KEY, x, kind="gram")
    np.testing.assert_array_equal(OBSERVERS.gram(KEY, 2), [[3, 2], [2, 3]])


def test_gram_matrices_of_another_width_are_refused(observers: NativeObservers) -> None:
    OBSERVERS.update(KEY, np.ones((4, 2), np.float32), kind="gram")
    with pytest.raises(NativeLibraryError, match="has seen 2 columns, but now gets 3"):
        OBSERVERS.update(KEY, np.ones((4, 3), np.float32), kind="gram")
    with pytest.raises(NativeLibraryError, match="has no Gram matrix of 3 columns"):
        OBSERVERS.gram(KEY, 3)


@pytest.mark.parametrize("size", [1, 3, 1000, 4099])
def test_counts_of_small_batches_survive_reading_growing_and_any_number(
    observers: NativeObservers, size: int
) -> None:
    """They wait in 16-bit counters; 70,000 of one value do not fit any of these."""
    first = np.linspace(0, 2, 50, dtype=np.float32)
    batches = [first] + [np.full(size, 1.5, np.float32)] * (70_000 // size + 2)
    batches[9] = np.full(size, 2.5, np.float32)  # the range grows
    seen = 0
    for at, batch in enumerate(batches):
        observers.update(KEY, batch, kind="histogram", bins=64)
        seen += batch.size
        if at in (5, 8, 10, len(batches) - 1):
            found = observers.state(KEY)
            assert found is not None and found.histogram is not None
            assert found.histogram.sum() == seen
    at = int(1.5 / (2.5 / 64))
    assert found.histogram[at - 1 : at + 1].sum() >= 70_000
