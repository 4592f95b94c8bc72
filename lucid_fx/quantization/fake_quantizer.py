"""An observer and the grid that it moves, for training (affine specification, section 6)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lucid_fx.quantization.affine import fake_quantize, fake_quantize_backward
from lucid_fx.quantization.arrays import as_float32
from lucid_fx.quantization.observers import Ends, MovingAverageMinMaxObserver, ObserverBase
from lucid_fx.quantization.qparams import QParams


class FakeQuantize:
    """Moves real values onto a grid that follows what passes by.

    Args:
        observer: class of the observer.
        observer_kwargs: arguments of its constructor.

    Attributes:
        activation_post_process: the observer.
        scale, zero_point: the grid that `forward` used last, float32, ``()`` or ``(C,)``; 1 and 0
            before.
        observer_enabled, fake_quant_enabled: the two switches; both start on.
    """

    def __init__(
        self,
        observer: Callable[..., ObserverBase] = MovingAverageMinMaxObserver,
        **observer_kwargs: Any,
    ) -> None:
        self.activation_post_process = observer(**observer_kwargs)
        self.qscheme = self.activation_post_process.qscheme
        self.qdtype = self.activation_post_process.qdtype
        self.ch_axis = self.activation_post_process.ch_axis
        self.scale = np.asarray(1, np.float32)
        self.zero_point = np.asarray(0, np.float32)
        self.observer_enabled = self.fake_quant_enabled = True

    def __call__(self, x: ArrayLike) -> ArrayLike:
        """The same as `forward`."""
        return self.forward(x)

    def forward(self, x: ArrayLike) -> ArrayLike:
        """Observe ``x``, take the new grid, and give ``x`` on that grid (float32).

        Either half can be switched off; without the second, ``x`` itself is given back.
        """
        if self.observer_enabled:
            self.activation_post_process.forward(x)
            self.scale, self.zero_point = self.calculate_qparams()
        return fake_quantize(x, self._grid()) if self.fake_quant_enabled else x

    def backward(self, dy: ArrayLike, x: ArrayLike) -> NDArray[np.float32]:
        """Gradient by ``x``, from that by ``forward(x)``, which must have been the last call."""
        if not self.fake_quant_enabled:
            return as_float32(dy)
        return fake_quantize_backward(dy, x, self._grid())

    def _grid(self) -> QParams:
        return QParams(self.scale, self.zero_point, self.qscheme, self.qdtype, self.ch_axis)

    def enable_observer(self, enabled: bool = True) -> Self:
        """Let the grid follow the data, or not; returns itself."""
        self.observer_enabled = bool(enabled)
        return self

    def disable_observer(self) -> Self:
        """Freeze the grid; returns itself."""
        return self.enable_observer(False)

    def enable_fake_quant(self, enabled: bool = True) -> Self:
        """Move values onto the grid, or let them through; returns itself."""
        self.fake_quant_enabled = bool(enabled)
        return self

    def disable_fake_quant(self) -> Self:
        """Let values through; the observer goes on. Returns itself."""
        return self.enable_fake_quant(False)

    def calculate_qparams(self) -> Ends:
        """Scale and zero point of the observer, not those last used."""
        return self.activation_post_process.calculate_qparams()

    def state_dict(self) -> dict[str, Any]:
        """Statistics, grid and switches; exact and JSON-safe."""
        return {
            "activation_post_process": self.activation_post_process.state_dict(),
            "scale": self.scale.tolist(),
            "zero_point": self.zero_point.tolist(),
            "observer_enabled": self.observer_enabled,
            "fake_quant_enabled": self.fake_quant_enabled,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take all of `state_dict`, a grid of whatever shape.

        Raises:
            ValueError: a part is missing.
        """
        if missing := [name for name in self.state_dict() if name not in state]:
            raise ValueError(f"the state of a FakeQuantize has no {', '.join(missing)}")
        self.activation_post_process.load_state_dict(state["activation_post_process"])
        self.scale, self.zero_point = as_float32(state["scale"]), as_float32(state["zero_point"])
        self.enable_observer(state["observer_enabled"])
        self.enable_fake_quant(state["fake_quant_enabled"])

    @classmethod
    def with_args(cls, **kwargs: Any) -> Callable[[], Self]:
        """A factory with these constructor arguments, for `QConfig`."""
        return partial(cls, **kwargs)
