"""Recipes: which observers to use (`QConfig`), and where (`QConfigMapping`).

Source: the affine specification, section 7. Here object types are ONNX op names (``"Conv"``) and
module names are node names or the scopes that hold them (``"encoder.layer.0"``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Self, TypeVar

from lucid_fx.quantization.dtypes import per_channel_symmetric, per_tensor_affine, qint8, quint8
from lucid_fx.quantization.fake_quantizer import FakeQuantize
from lucid_fx.quantization.histogram_observer import HistogramObserver
from lucid_fx.quantization.observers import (
    MovingAverageMinMaxObserver,
    ObserverBase,
    PerChannelMinMaxObserver,
)

Factory = Callable[[], ObserverBase | FakeQuantize]
Entry = TypeVar("Entry")


class QConfig(NamedTuple):
    """Factories of what watches activations and weights: an observer, or one in a FakeQuantize.

    Attributes:
        activation, weight: called without arguments wherever a fresh one is needed, usually made
            by ``with_args`` of its class.
    """

    activation: Factory
    weight: Factory

    def activation_observer(self) -> ObserverBase:
        """A fresh observer of an activation, out of its FakeQuantize where it is in one."""
        return _observer(self.activation())

    def weight_observer(self) -> ObserverBase:
        """A fresh observer of a weight, out of its FakeQuantize where it is in one."""
        return _observer(self.weight())


def _observer(made: ObserverBase | FakeQuantize) -> ObserverBase:
    return made.activation_post_process if isinstance(made, FakeQuantize) else made


class QConfigMapping(Generic[Entry]):
    """Which recipe applies where; the first tier with an entry wins, also when it is None.

    Tiers: exact name, then op type, then global. None leaves the node in float. A recipe is a
    `QConfig`, or a `WeightConfig` where only weights are quantized.
    """

    def __init__(self) -> None:
        self.global_qconfig: Entry | None = None
        self.object_types: dict[str, Entry | None] = {}
        self.module_names: dict[str, Entry | None] = {}

    def set_global(self, qconfig: Entry | None) -> Self:
        """The recipe of everything that no other tier names."""
        self.global_qconfig = qconfig
        return self

    def set_object_type(self, object_type: str, qconfig: Entry | None) -> Self:
        """The recipe of all nodes of an ONNX op type."""
        self.object_types[object_type] = qconfig
        return self

    def set_module_name(self, module_name: str, qconfig: Entry | None) -> Self:
        """The recipe of one node, or of all nodes in a scope."""
        self.module_names[module_name] = qconfig
        return self

    def get_qconfig(self, module_type: object, module_name: str) -> Entry | None:
        """The recipe for an exact type and an exact name."""
        if module_name in self.module_names:
            return self.module_names[module_name]
        if module_type in self.object_types:
            return self.object_types[module_type]
        return self.global_qconfig


def get_default_qconfig() -> QConfig:
    """For quantization after training (section 7).

    Activations on quint8 per tensor from a histogram whose tails are clipped in pairs, weights on
    qint8 per channel from their extremes, symmetric.
    """
    return QConfig(
        HistogramObserver.with_args(qscheme=per_tensor_affine, qdtype=quint8),
        PerChannelMinMaxObserver.with_args(ch_axis=0, qscheme=per_channel_symmetric, qdtype=qint8),
    )


def get_default_qat_qconfig() -> QConfig:
    """For training on grids (section 7).

    Activations move onto quint8 per tensor by a moving average of their extremes (constant 0.01),
    weights onto qint8 per channel by their extremes, symmetric.
    """
    return QConfig(
        FakeQuantize.with_args(
            observer=MovingAverageMinMaxObserver,
            qscheme=per_tensor_affine,
            qdtype=quint8,
            averaging_constant=0.01,
        ),
        FakeQuantize.with_args(
            observer=PerChannelMinMaxObserver,
            ch_axis=0,
            qscheme=per_channel_symmetric,
            qdtype=qint8,
        ),
    )


def get_default_qconfig_mapping() -> QConfigMapping[QConfig]:
    """A fresh mapping with only the global tier set, to `get_default_qconfig`."""
    return QConfigMapping[QConfig]().set_global(get_default_qconfig())


def get_default_qat_qconfig_mapping() -> QConfigMapping[QConfig]:
    """A fresh mapping with only the global tier set, to `get_default_qat_qconfig`."""
    return QConfigMapping[QConfig]().set_global(get_default_qat_qconfig())
