"""Quantizing and dequantizing: scales that are stored, levels, tables, tiles, memory maps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lucid_fx.quantization.block as b
from lucid_fx.quantization.block import (
    QParams,
    QuantScheme,
    QuantStore,
    QuantValue,
    ScaleDtype,
    engines,
)
from lucid_fx.quantization.block import tiles as tiles_module

Q8S = QuantScheme(QuantValue.Q8S, QuantStore.Native)
X = np.random.default_rng(0).standard_normal((6, 40)).astype(np.float32)


def test_the_stored_scale_is_rounded_up_before_dividing() -> None:
    scheme = Q8S.per_tensor(ScaleDtype.UE4M3)
    tensor = b.quantize([1.0, -0.5], scheme)
    assert tensor.qparams.scales == b.scale_to_dtype(1 / 127, ScaleDtype.UE4M3)
    step = tensor.qparams.scales[0]
    np.testing.assert_array_equal(tensor.codes(), np.round(np.float32([1, -0.5]) / step))


@pytest.mark.parametrize("dtype", list(ScaleDtype), ids=lambda dtype: dtype.name)
def test_a_scale_of_zero_becomes_the_smallest_and_codes_are_zero(dtype: ScaleDtype) -> None:
    for scheme in (Q8S.per_tensor(dtype), Q8S.per_block([2], dtype)):
        tensor = b.quantize(np.zeros(4), scheme)
        smallest = b.scale_to_dtype(2.0**-126, dtype)
        assert (tensor.qparams.scales == smallest).all()
        assert (smallest > 0).all()
        assert not tensor.codes().any()
        assert not b.dequantize(tensor).any()


@pytest.mark.parametrize("dtype", [ScaleDtype.F16, ScaleDtype.UE4M3])
def test_two_levels_of_zeros_and_of_tiny_values(dtype: ScaleDtype) -> None:
    scheme = Q8S.per_block([2], dtype).per_tensor(ScaleDtype.F32)
    tensor = b.quantize(np.zeros(4), scheme)
    assert tensor.qparams.global_scale == np.float32(2.0**-126)
    assert not tensor.codes().any()
    tiny = np.float32([2.0**-149, 0, 1e-40, -1e-40])
    assert np.isfinite(b.dequantize(b.quantize(tiny, scheme))).all()


def test_the_effective_scale_is_a_float32_product() -> None:
    params = QParams(np.float32([3, 448]), np.float32(0.1))
    scheme = Q8S.per_block([1, 20], ScaleDtype.UE4M3).per_tensor(ScaleDtype.F32)
    tensor = b.quantize(np.ones((1, 40), np.float32), scheme, params)
    wanted = np.float32(0.1) * np.float32([3, 448])
    np.testing.assert_array_equal(tensor.effective_scales().ravel(), wanted)
    codes = np.round(1 / wanted.astype(np.float64))
    np.testing.assert_array_equal(tensor.codes()[0, ::20], codes)
    np.testing.assert_array_equal(b.dequantize(tensor)[0, ::20], wanted * codes.astype(np.float32))


@pytest.mark.parametrize("tile", [30, 1 << 22])
@pytest.mark.parametrize("native", [True, False])
def test_tiles_and_engines_do_not_show(
    tile: int, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [QuantStore.Native, QuantStore.PackedU32(0), QuantStore.PackedU32(1)]
    schemes = [
        QuantScheme(value, store).per_block([2, 8], ScaleDtype.F16)
        for value in (QuantValue.Q4S, QuantValue.E2M1, QuantValue.Q8F)
        for store in (*stores, QuantStore.PackedNative(1))
    ] + [QuantScheme(QuantValue.Q2F, store) for store in stores]
    monkeypatch.setattr(engines, "NATIVE_ELEMENTS", 1 << 60)
    wanted = [b.quantize(X, scheme) for scheme in schemes]
    back = [b.dequantize(tensor) for tensor in wanted]
    monkeypatch.setattr(engines, "NATIVE_ELEMENTS", 0 if native else 1 << 60)
    monkeypatch.setattr(tiles_module, "TILE_ELEMENTS", tile)
    for scheme, tensor, real in zip(schemes, wanted, back, strict=True):
        found = b.quantize(X, scheme, threads=2)
        assert found.data.tobytes() == tensor.data.tobytes()
        assert found.qparams == tensor.qparams
        assert b.dequantize(found, threads=3).tobytes() == real.tobytes()
        np.testing.assert_array_equal(found.codes(), tensor.codes())


def test_any_float_type_any_strides_and_given_places() -> None:
    scheme = QuantScheme(QuantValue.Q4F, QuantStore.PackedU32(0)).per_block([8], ScaleDtype.F32)
    wanted = b.quantize(X, scheme)
    for x in (X.astype(np.float64), np.asfortranarray(X), X.tolist(), X[::-1][::-1]):
        assert b.quantize(x, scheme).data.tobytes() == wanted.data.tobytes()
    half = X.astype(np.float16)
    np.testing.assert_array_equal(
        b.quantize(half, scheme).codes(), b.quantize(half.astype(np.float32), scheme).codes()
    )
    data, real = np.zeros_like(wanted.data), np.empty_like(X)
    assert b.quantize(X, scheme, out=data).data is data
    assert b.dequantize(wanted, out=real) is real
    strided = np.empty((6, 80), np.float32)[:, ::2]
    np.testing.assert_array_equal(b.dequantize(wanted, out=strided), real)
    assert data.tobytes() == wanted.data.tobytes()
    with pytest.raises(ValueError, match="data holds 3 bytes"):
        b.quantize(X, scheme, out=np.empty(3, np.uint8))
    with pytest.raises(ValueError, match=r"out is float64"):
        b.dequantize(wanted, out=np.empty(X.shape))


def test_a_memory_mapped_tensor_is_read_in_tiles_and_its_pages_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(1).standard_normal((64, 1024)).astype(np.float32)
    x.tofile(tmp_path / "x")
    monkeypatch.setattr(tiles_module, "TILE_ELEMENTS", 8 * 1024)
    released = []
    release = tiles_module.release
    for module in ("arithmetic", "calibration"):
        name = f"lucid_fx.quantization.block.{module}.release"
        monkeypatch.setattr(name, lambda *given: (released.append(given[0]), release(*given)))
    scheme = QuantScheme(QuantValue.Q4S).per_block([32], ScaleDtype.F16)
    wanted = b.quantize(x, scheme)
    released.clear()
    for mapped in (
        np.memmap(tmp_path / "x", np.float32, "r", shape=x.shape),
        np.memmap(tmp_path / "x", np.float32, "c", shape=x.shape),
        np.memmap(tmp_path / "x", np.float32, "r", offset=8 * 4096, shape=(56, 1024)),
    ):
        rows = 64 - len(mapped)
        found = b.quantize(mapped, scheme)
        np.testing.assert_array_equal(found.codes(), wanted.codes()[rows:])
    assert len(released) == 2 * (8 + 8 + 7)


def test_explicit_parameters_are_checked() -> None:
    two = Q8S.per_block([20], ScaleDtype.UE4M3).per_tensor(ScaleDtype.F32)
    cases = [
        (Q8S, QParams([-1.0]), "scale is negative"),
        (Q8S, QParams([np.nan]), "scales holds NaN or infinity"),
        (Q8S, QParams([1.0, 1.0]), "holds 2 scales, but the shape .6, 40. has 1"),
        (Q8S, QParams([1.0], 1.0), "does not take a per-tensor scale"),
        (two, QParams(np.ones(12)), "requires a per-tensor scale"),
        (two, QParams(np.ones(12), np.inf), "global_scale holds NaN or infinity"),
    ]
    for scheme, params, word in cases:
        with pytest.raises(ValueError, match=word):
            b.quantize(X, scheme, params)
    with pytest.raises(ValueError, match="NaN or infinite"):
        b.quantize([1.0, np.nan], Q8S, QParams([1.0]))
    with pytest.raises(ValueError, match="half_up"):
        b.quantize(X, Q8S, rounding="half_up")
    with pytest.raises(ValueError, match="under a tensor scale"):
        b.quantize(X, Q8S.per_block([20], ScaleDtype.F32).per_tensor(ScaleDtype.F32))


def test_lookup() -> None:
    scheme = QuantScheme(QuantValue.Q2S).with_mode(b.QuantMode.Lookup)
    table = np.float32([-1, -0.25, 0.25, 1])
    x = np.float32([2, -2, 0.4, -0.3, 1.4])
    tensor = b.quantize(x, scheme, table=table)
    assert tensor.qparams.scales == 2  # the largest magnitude is the largest entry
    assert tensor.codes().tolist() == [3, 0, 2, 1, 3]
    assert b.dequantize(tensor, table=table).tolist() == [2, -2, 0.5, -0.5, 2]
    np.testing.assert_array_equal(b.lookup_dequantize([3, 0], 2, table, 2.0), [2, -2])
    with pytest.raises(ValueError, match="table is missing"):
        b.dequantize(tensor)
    with pytest.raises(ValueError, match="not 4 finite entries"):
        b.quantize(x, scheme, table=[1.0, 2.0])
    with pytest.raises(ValueError, match="use the store PackedU32"):
        b.quantize(x, scheme.with_store(QuantStore.Native), table=table)
    with pytest.raises(ValueError, match="only schemes with the mode Lookup"):
        b.quantize(x, Q8S, table=table)
    with pytest.raises(ValueError, match="give 16 entries"):
        b.lookup_dequantize([0], 4, table, 1.0)
    with pytest.raises(ValueError, match="outside 0 to 3"):
        b.lookup_dequantize([4], 2, table, 1.0)


def test_lookup_with_large_tables_is_the_same_native_and_in_numpy() -> None:
    r = np.random.default_rng(2)
    table = np.sort(r.standard_normal(256)).astype(np.float32)
    table[0] = -table[-1]  # so that nothing saturates
    scheme = QuantScheme(QuantValue.Q8F).with_mode(b.QuantMode.Lookup)
    x = r.standard_normal(40_000).astype(np.float32)
    tensor = b.quantize(x, scheme.per_block([64], ScaleDtype.F16), table=table)
    steps = np.repeat(tensor.effective_scales(), 64)
    real = b.dequantize(tensor, table=table)
    np.testing.assert_array_equal(real, table[tensor.codes()] * steps)
    gap = np.diff(table).max() / 2
    assert (np.abs(real - x) <= (gap + 1e-4) * steps).all()
