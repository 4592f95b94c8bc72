"""The native engine gives the bits of the numpy one, on tensors of many pieces and tasks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_build import native
from numpy.typing import NDArray

from lucid_fx.errors import LucidFxWarning, NativeLibraryError
from lucid_fx.native import library
from lucid_fx.native.block import NativeBlocks
from lucid_fx.quantization.block import (
    Packing,
    QuantMode,
    QuantStore,
    QuantValue,
    Rounding,
    engines,
)
from lucid_fx.quantization.block.engines import Definition
from lucid_fx.quantization.block.rounding import make_encoder

LIBRARY = native()
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [  # with blocks
    ((200_001,), (32,)),
    ((3, 70_001), (1, 128)),
    ((5000, 7), (32, 1)),
    ((130, 2100), (2, 16)),
    ((2, 3000, 70), (2, 255, 3)),
    ((4, 3, 65, 66), (1, 1, 65, 1)),
    ((2_200_000,), (2_200_000,)),
]
FLOATS = ("E4M3", "E5M2", "E2M1")
VALUES = [QuantValue.Q8S, QuantValue.Q4F, QuantValue.Q2S, *map(QuantValue, FLOATS)]


def real(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Numbers of all sizes, exact ties, zeros of both signs; one float past an aligned address."""
    r = np.random.default_rng(0)
    size = int(np.prod(shape))
    x = np.empty(size + 1, np.float32)[1:]
    x[:] = r.standard_normal(size) * 2.0 ** r.integers(-20, 4, size)
    x[::7] = r.integers(-20, 20, x[::7].size) / np.float32(2)
    x[::11], x[::13] = 0.0, -0.0
    return x.reshape(shape)


def scales_of(shape: tuple[int, ...], block: tuple[int, ...]) -> NDArray[np.float32]:
    grid = [-(-size // extent) for size, extent in zip(shape, block, strict=True)]
    r = np.random.default_rng(1)
    return r.choice(np.float32([1, 0.5, 0.0123, 3.7, 0.0]), grid)


def everything(
    engine: Any, value: QuantValue, rounding: Rounding, dim: int | None, case: Any
) -> list[bytes]:
    shape, block = case
    store = QuantStore.Native if dim is None else QuantStore.PackedU32(dim)
    packing = Packing.of(value, store, shape)
    x, scales = real(shape), scales_of(shape, block)
    encoder = make_encoder(value, rounding, QuantMode.Symmetric, None)
    data = np.full(packing.nbytes + 1, 255, np.uint8)[1:]
    finite = engine.quantize(x, scales, block, packing, encoder, data)
    codes, back = np.empty(shape, np.uint8), np.empty(shape, np.float32)
    engine.unpack(data, packing, 0 if value.is_float else value.size_bits, codes)
    again = np.full_like(data, 255)
    engine.pack(codes, packing, again)
    engine.dequantize(data, scales, block, packing, value.table(), back)
    low, high, known = engine.extremes(x, block)
    assert finite and known
    return [part.tobytes() for part in (data, codes, again, back, low, high)]


@pytest.mark.parametrize("case", SHAPES, ids=lambda case: "x".join(map(str, case[0])))
@pytest.mark.parametrize("value", VALUES, ids=lambda value: value.name)
def test_bit_for_bit(value: QuantValue, case: Any) -> None:
    rank = len(case[0])
    for dim in (None, 0, rank - 1):
        rounding = Rounding.half_even if dim is None else Rounding.half_away
        wanted = everything(Definition(), value, rounding, dim, case)
        for number, isa in enumerate(LIBRARY.isas()):
            engine = NativeBlocks(LIBRARY, 1 + (number + rank) % 4, isa)
            assert everything(engine, value, rounding, dim, case) == wanted, (dim, isa)


def test_the_number_of_threads_does_not_show() -> None:
    results = [
        everything(NativeBlocks(LIBRARY, n), QuantValue.Q4F, Rounding.half_away, 0, SHAPES[4])
        for n in (1, 2, 3, 4)
    ]
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("isa", LIBRARY.isas())
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [0, 1, 40_000, 70_000])
def test_what_is_not_finite_is_seen(isa: str, bad: float, where: int) -> None:
    x = np.ones(70_001, np.float32)
    x[where] = bad
    packing = Packing.of(QuantValue.Q8S, QuantStore.Native, x.shape)
    engine = NativeBlocks(LIBRARY, 2, isa)
    out = np.empty(packing.nbytes, np.uint8)
    for value in (QuantValue.Q8S, QuantValue.E4M3):
        encoder = make_encoder(value, Rounding.half_away, QuantMode.Symmetric, None)
        scale = np.ones(1, np.float32)
        assert not engine.quantize(x, scale, x.shape, packing, encoder, out)
    for block in (1, 32, x.size):
        assert not engine.extremes(x, (block,))[2]
        assert not Definition().extremes(x, (block,))[2]


@pytest.mark.parametrize("isa", LIBRARY.isas())
@pytest.mark.parametrize("name", FLOATS)
def test_every_float_is_cast_as_the_definition_casts_it(isa: str, name: str) -> None:
    """Every number of the format, every midpoint, and the floats next to both."""
    value = QuantValue(name)
    table = value.table()
    every = np.unique(table[np.isfinite(table)])
    middle = (every[1:] + every[:-1]) / np.float32(2)
    points = np.concatenate([every, middle, [np.float32(-0.0)]]).astype(np.float32)
    inf = np.float32(np.inf)
    x = np.concatenate([points, np.nextafter(points, inf), np.nextafter(points, -inf)])
    encoder = make_encoder(value, Rounding.half_away, QuantMode.Symmetric, None)
    packing = Packing.of(value, QuantStore.Native, x.shape)
    out = np.empty(packing.nbytes, np.uint8)
    NativeBlocks(LIBRARY, 1, isa).quantize(
        x, np.ones(1, np.float32), x.shape, packing, encoder, out
    )
    np.testing.assert_array_equal(out, encoder.encode(x))


def test_the_kernel_set_is_one_of_this_machine() -> None:
    engine = NativeBlocks(LIBRARY, 1, "mmx")
    packing = Packing.of(QuantValue.Q8S, QuantStore.Native, (4,))
    with pytest.raises(NativeLibraryError, match="mmx"):
        engine.pack(np.zeros(4, np.uint8), packing, np.zeros(4, np.uint8))
    with pytest.raises(NativeLibraryError, match="mmx"):
        engine.extremes(np.zeros(4, np.float32), (2,))


@pytest.fixture
def no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def forget() -> None:
        for function in (library.load, library.say_missing):
            function.cache_clear()

    monkeypatch.setenv("LUCID_FX_LIBRARY", str(tmp_path / "absent.so"))
    forget()
    yield
    monkeypatch.undo()
    forget()


def test_small_tensors_and_machines_without_the_library_use_numpy(no_library: None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(engines.choose(engines.NATIVE_ELEMENTS - 1), Definition)
    with pytest.warns(LucidFxWarning, match="block quantization") as caught:
        assert isinstance(engines.choose(engines.NATIVE_ELEMENTS), Definition)
        assert isinstance(engines.choose(engines.NATIVE_ELEMENTS), Definition)
    assert len(caught) == 1


def test_large_tensors_use_the_library() -> None:
    if library.load() is None:
        pytest.skip("this installation has no native library")
    assert isinstance(engines.choose(engines.NATIVE_ELEMENTS), NativeBlocks)
