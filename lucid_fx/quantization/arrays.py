"""Arrays of any library as numpy arrays, without importing the library.

Inputs of this package may be numpy arrays (also with ml_dtypes), Python numbers and sequences, or
tensors of another library that can be read through DLPack or ``__array__``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def as_numpy(value: ArrayLike) -> NDArray[Any]:
    """The elements of anything array-like; tensors lose their gradient and come to the CPU."""
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    tensor: Any = value
    for strip in ("detach", "cpu"):  # only who has a gradient or a device has these
        tensor = getattr(tensor, strip, lambda tensor=tensor: tensor)()
    try:
        return np.asarray(np.from_dlpack(tensor))
    except (BufferError, RuntimeError, TypeError):
        # numpy reads no bfloat16 through DLPack; float32 holds every value of it
        if not hasattr(tensor, "float"):
            return np.asarray(tensor)
        return np.asarray(np.from_dlpack(tensor.float()))


def as_float32(value: ArrayLike) -> NDArray[np.float32]:
    """Real values in float32, rounded to nearest where they were wider."""
    with np.errstate(over="ignore"):
        return np.asarray(as_numpy(value), dtype=np.float32)
