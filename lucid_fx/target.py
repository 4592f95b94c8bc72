"""Where the model will run: which integer kernels there are exact, and what things cost there.

Data, not code. Prices are nanoseconds on one thread, measured on onnxruntime 1.32 (see
``docs/targets.md``); only their ratios matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lucid_fx.errors import ConfigError

Isa = Literal["scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "neon", "neondot"]


@dataclass(frozen=True)
class Target:
    """A deployment target.

    Attributes:
        name: what the user calls it.
        isa: instruction set of the CPU.
        provider: onnxruntime execution provider.
        saturates: whether u8×s8 kernels add products in saturating 16 bits (AVX2 and
            AVX-512 without VNNI), so that weights must be proved safe or repaired.
        integer_mac, float_mac: price of one multiply-add of a dense Conv, Gemm or MatMul.
        integer_depthwise_mac, float_depthwise_mac: the same for depthwise convolutions.
        depthwise_width: channels in a vector of the integer depthwise kernel.
    """

    name: str
    isa: Isa
    provider: str = "CPUExecutionProvider"
    saturates: bool = False
    integer_mac: float = 1 / 190
    float_mac: float = 1 / 55
    integer_depthwise_mac: float = 1 / 22
    float_depthwise_mac: float = 1 / 40
    depthwise_width: int = 16


TARGETS = {
    target.name: target
    for target in (
        Target("cpu-avx512vnni", "avx512vnni"),
        Target("cpu-avxvnni", "avxvnni", integer_mac=1 / 110, float_mac=1 / 40),
        Target("cpu-avx512", "avx512", saturates=True, integer_mac=1 / 110),
        Target("cpu-avx2", "avx2", saturates=True, integer_mac=1 / 80, float_mac=1 / 40),
        Target("cpu-arm", "neondot", integer_mac=1 / 80, float_mac=1 / 25),
    )
}
"""All targets by name; ``"auto"`` picks the one of this machine."""

_OF_ISA = {
    "scalar": "cpu-avx2",
    "avx2": "cpu-avx2",
    "avxvnni": "cpu-avxvnni",
    "avx512": "cpu-avx512",
    "avx512vnni": "cpu-avx512vnni",
    "neon": "cpu-arm",
    "neondot": "cpu-arm",
}


def find_target(name: str | Target, isa: str) -> Target:
    """The target of that name; ``"auto"`` gives that of a machine with ``isa``.

    Raises:
        ConfigError: no such target; the text lists all.
    """
    if isinstance(name, Target):
        return name
    if name == "auto":
        return TARGETS[_OF_ISA[isa]]
    if name not in TARGETS:
        known = ", ".join(["auto", *TARGETS])
        raise ConfigError(f"there is no target {name!r}", hint=f"known are {known}")
    return TARGETS[name]
