"""The noise of a tensor against its float twin, summed up by the native library.

The definition in numpy is in `lucid_fx.tensor_error`: counts and extremes are the same numbers,
sums of squares differ by rounding, as the order of additions is another.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_fx.native.library import NativeLibrary, Signature


class NoiseForm(ctypes.Structure):
    """How codes become real, and where their grid ends; real values have scale 1.

    Attributes:
        zero_point, scale: the real value of a code is (code - zero_point) * scale.
        needed_low, needed_high: real values are clamped to them.
        below, above: a float value is outside the grid when it is beyond them.
        low, high: ends of the grid.
    """

    _fields_ = (
        *((name, ctypes.c_float) for name in ("zero_point", "scale")),
        *((name, ctypes.c_float) for name in ("needed_low", "needed_high", "below", "above")),
        *((name, ctypes.c_double) for name in ("low", "high")),
    )


class NoiseSums(ctypes.Structure):
    """What is summed up of a tensor; see `lucid_fx.tensor_error.TensorError`."""

    _fields_ = (
        *((name, ctypes.c_double) for name in ("signal", "noise", "outside")),
        *((name, ctypes.c_float) for name in ("largest", "low", "high")),
        *((name, ctypes.c_int64) for name in ("elements", "clipped")),
    )

    @classmethod
    def of_nothing(cls) -> NoiseSums:
        """Sums that no element has been added to."""
        return cls(low=np.inf, high=-np.inf)


_FLOAT32 = np.dtype(np.float32)
_TYPES = {_FLOAT32: 1, np.dtype(np.uint8): 2, np.dtype(np.int8): 3}  # LFX_* of native/c_api.h


def _signatures() -> dict[str, Signature]:
    form, sums = ctypes.POINTER(NoiseForm), ctypes.POINTER(NoiseSums)
    operands = (ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    return {"lfx_noise_add": (ctypes.c_int, form, *operands, sums, ctypes.c_char_p)}


class NativeNoise:
    """The kernels.

    Args:
        library: the loaded library.
        isa: a kernel set by name; the best of this machine by default.
    """

    def __init__(self, library: NativeLibrary, isa: str | None = None) -> None:
        self._library = library
        self._add = library.bind(_signatures()).lfx_noise_add
        self._isa = None if isa is None else isa.encode()

    @staticmethod
    def takes(exact: NDArray[Any], given: NDArray[Any]) -> bool:
        """Whether there are kernels for these types, and the arrays are contiguous."""
        known = exact.dtype == _FLOAT32 and given.dtype in _TYPES
        return known and exact.flags.c_contiguous and given.flags.c_contiguous

    def sums(self, form: NoiseForm, exact: NDArray[Any], given: NDArray[Any]) -> NoiseSums:
        """The sums of float values and of their codes (or real values), of the same shape."""
        assert exact.size == given.size
        sums = NoiseSums.of_nothing()
        operands = (_TYPES[given.dtype], exact.ctypes.data, given.ctypes.data, exact.size)
        self._library.check(self._add(form, *operands, sums, self._isa))
        return sums
