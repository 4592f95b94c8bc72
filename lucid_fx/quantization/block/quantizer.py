"""Quantizing every float parameter of a model: `Quantizer`.

Source: the block-scaled specification, section 9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_fx.quantization.block.arithmetic import QuantizedTensor, quantize
from lucid_fx.quantization.block.calibration import Calibration
from lucid_fx.quantization.block.scheme import QuantScheme


@dataclass(frozen=True)
class Quantizer:
    """Quantizes the parameters of a model, all with one scheme.

    Attributes:
        calibration: how ranges are found.
        scheme: how to quantize.
    """

    calibration: Calibration
    scheme: QuantScheme

    def quantize(
        self,
        parameters: Mapping[str, NDArray[Any]],
        *,
        group: Callable[[str], bool] | None = None,
    ) -> dict[str, QuantizedTensor | NDArray[Any]]:
        """Quantize every float parameter, biases and the weights of norms included.

        Args:
            parameters: name → array.
            group: whether a parameter is to be quantized, by name; None for all.

        Returns:
            name → quantized tensor; parameters that are not float or not in the group stay.
        """
        return {
            name: quantize(array, self.scheme, calibration=self.calibration)
            if np.issubdtype(array.dtype, np.floating) and (group is None or group(name))
            else array
            for name, array in parameters.items()
        }
