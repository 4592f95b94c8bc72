"""Recipe files: what the command line can say, and overrides for single nodes and op types."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from lucid_fx.conversion import Format
from lucid_fx.errors import ConfigError
from lucid_fx.ir.naming import near_matches
from lucid_fx.quantization import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    PerChannelMinMaxObserver,
    QConfig,
    QConfigMapping,
    QDtype,
    get_default_qconfig,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
    qint8,
    quint8,
)
from lucid_fx.quantization.observers import ObserverFactory
from lucid_fx.quantization.qconfig import Entry
from lucid_fx.quantization.weight_only import Compute, Method, WeightConfig
from lucid_fx.quantization.weight_only.config import BLOCK_SIZES, SCHEMES
from lucid_fx.target import TARGETS
from lucid_fx.weight_only import Op

ActivationObserver = Literal["minmax", "histogram", "moving-average"]
WeightObserver = Literal["per-channel", "minmax"]

_WEIGHT_DTYPES: dict[str, QDtype] = {"qint8": qint8, "quint8": quint8}
_IN_FLOAT = "float"


@dataclass(frozen=True)
class WeightsRecipe:
    """What weights become that are quantized alone; None stands for the default.

    Attributes:
        scheme, block, method, op, compute: see `quantize_weights`, ``block`` being its block size;
            ``op`` is for the whole model.
    """

    scheme: str | None = None
    block: int | None = None
    method: Method | None = None
    compute: Compute | None = None
    op: Op | None = None

    def over(self, base: WeightsRecipe) -> WeightsRecipe:
        """The full recipe: what is not said here comes from ``base``."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        return replace(base, **given)

    def config(self) -> WeightConfig:
        """The recipe as a configuration.

        Raises:
            ConfigError: what no kernel takes.
        """
        settings = {"block_size": self.block, "method": self.method, "compute": self.compute}
        try:
            return WeightConfig.parse(self.scheme or "int4", **settings)
        except ValueError as error:
            raise ConfigError(str(error)) from None


@dataclass(frozen=True)
class NodeRecipe:
    """What one node, scope or op type has of its own; None means as everywhere else."""

    activation: ObserverFactory | None = None
    weight: ObserverFactory | None = None
    weights: WeightsRecipe | None = None

    def over(self, base: QConfig) -> QConfig:
        """The full recipe: what is not said here comes from ``base``."""
        return QConfig(self.activation or base.activation, self.weight or base.weight)


@dataclass(frozen=True)
class Recipe:
    """Everything a user can ask of `lucid-fx quantize`.

    Attributes:
        format: ``"qoperator"`` or ``"qdq"``.
        target: ``"auto"`` or the name of a target.
        observer: how activation ranges are found.
        exclude: nodes or scopes to leave in float.
        exclude_op: op types to leave in float.
        modules: node or scope → its own recipe, None for float.
        types: op type → its own recipe, None for float.
        weights: what weights become, where they alone are quantized; None to quantize all.
    """

    format: Format = "qoperator"
    target: str = "auto"
    observer: ActivationObserver = "histogram"
    exclude: tuple[str, ...] = ()
    exclude_op: tuple[str, ...] = ()
    modules: Mapping[str, NodeRecipe | None] = field(default_factory=dict)
    types: Mapping[str, NodeRecipe | None] = field(default_factory=dict)
    weights: WeightsRecipe | None = None

    def with_options(
        self,
        *,
        format: Format | None = None,
        target: str | None = None,
        observer: ActivationObserver | None = None,
        exclude: Iterable[str] = (),
        exclude_op: Iterable[str] = (),
        weights: WeightsRecipe | None = None,
    ) -> Recipe:
        """This recipe with command-line options on top; exclusions add up."""
        if weights is not None:
            weights = weights.over(self.weights or WeightsRecipe())
        return replace(
            self,
            weights=weights or self.weights,
            format=format or self.format,
            target=target or self.target,
            observer=observer or self.observer,
            exclude=(*self.exclude, *exclude),
            exclude_op=(*self.exclude_op, *exclude_op),
        )

    def mapping(self) -> QConfigMapping[QConfig]:
        """The recipe as a `QConfigMapping`; an exclusion wins over a recipe of the same name.

        Raises:
            ConfigError: a node has weights of its own, which go with weights for the model only.
        """
        default = get_default_qconfig()
        base = QConfig(activation_observer(self.observer), default.weight)
        found = QConfigMapping[QConfig]().set_global(base)
        for tier, name, recipe in self._own():
            if recipe is not None and recipe.weights is not None:
                raise ConfigError(
                    f"{tier}.{name}.weights is for models whose weights alone are quantized",
                    hint='say so with "weights" at the top, or --weights',
                )
            place = found.set_object_type if tier == "types" else found.set_module_name
            place(name, None if recipe is None else recipe.over(base))
        return self._excluding(found)

    def weights_mapping(self) -> QConfigMapping[WeightConfig]:
        """The same where weights alone are quantized.

        Raises:
            ConfigError: something is said of activations, or a configuration that no kernel takes.
        """
        base, found = self.weights or WeightsRecipe(), QConfigMapping[WeightConfig]()
        found.set_global(base.config())
        for tier, name, recipe in self._own():
            if recipe is not None and (recipe.weights is None or recipe.activation):
                raise ConfigError(
                    f"{tier}.{name} is about activations, and weights alone are quantized",
                    hint="give it weights, or null for float",
                )
            own = recipe.weights if recipe is not None else None
            place = found.set_object_type if tier == "types" else found.set_module_name
            place(name, None if own is None else own.over(base).config())
        return self._excluding(found)

    def _own(self) -> Iterator[tuple[str, str, NodeRecipe | None]]:
        """Tier, name and recipe of what has one of its own."""
        for tier, recipes in (("types", self.types), ("modules", self.modules)):
            for name, recipe in recipes.items():
                yield tier, name, recipe

    def _excluding(self, mapping: QConfigMapping[Entry]) -> QConfigMapping[Entry]:
        for op_type in self.exclude_op:
            mapping.set_object_type(op_type, None)
        for name in self.exclude:
            mapping.set_module_name(name, None)
        return mapping


def activation_observer(
    name: ActivationObserver, *, bins: int = 2048, averaging_constant: float = 0.01
) -> ObserverFactory:
    """The factory of an activation observer, per tensor on quint8."""
    grid: dict[str, Any] = {"qscheme": per_tensor_affine, "qdtype": quint8}
    if name == "histogram":
        return HistogramObserver.with_args(bins=bins, **grid)
    if name == "moving-average":
        return MovingAverageMinMaxObserver.with_args(averaging_constant=averaging_constant, **grid)
    return MinMaxObserver.with_args(**grid)


def weight_observer(name: WeightObserver, dtype: QDtype = qint8) -> ObserverFactory:
    """The factory of a weight observer, symmetric, per output channel or per tensor."""
    if name == "minmax":
        return MinMaxObserver.with_args(qscheme=per_tensor_symmetric, qdtype=dtype)
    return PerChannelMinMaxObserver.with_args(
        ch_axis=0, qscheme=per_channel_symmetric, qdtype=dtype
    )


def read_recipe(path: str | Path) -> Recipe:
    """Read a recipe file, TOML where the name ends in ``.toml``, otherwise JSON.

    Raises:
        ConfigError: no such file, not JSON or TOML, an unknown key or a wrong value.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"there is no recipe file {str(path)!r}")
    kind = "TOML" if path.suffix == ".toml" else "JSON"
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text) if kind == "TOML" else json.loads(text)
    except ValueError as error:
        raise ConfigError(f"recipe {str(path)!r} is not {kind}: {error}") from error
    try:
        return parse_recipe(data)
    except ConfigError as error:
        raise ConfigError(f"recipe {str(path)!r}: {error.message}", hint=error.hint) from None


def parse_recipe(data: Any) -> Recipe:
    """Check what a recipe file holds.

    Raises:
        ConfigError: an unknown key or a wrong value; the text says where.
    """
    readers: dict[str, Callable[[Any, str], Any]] = {
        "format": lambda value, where: _choice(value, where, get_args(Format)),
        "target": lambda value, where: _choice(value, where, ("auto", *TARGETS)),
        "observer": lambda value, where: _choice(value, where, get_args(ActivationObserver)),
        "exclude": _names,
        "exclude_op": _names,
        "modules": _node_recipes,
        "types": _node_recipes,
        "weights": lambda value, where: _weights(value, where, own=False),
    }
    return Recipe(**_table(data, "", readers))


def _table(data: Any, where: str, readers: Mapping[str, Callable[[Any, str], Any]]) -> Any:
    """The values of a table, each through the reader of its key."""
    if not isinstance(data, dict):
        raise ConfigError(f"{where or 'the file'} must hold keys and values, not {_shown(data)}")
    for key in data:
        if key not in readers:
            what = f"{where} has no key {key!r}" if where else f"there is no key {key!r}"
            raise ConfigError(what, hint=near_matches(key, readers))
    return {key: readers[key](value, f"{where}.{key}".strip(".")) for key, value in data.items()}


def _choice(value: Any, where: str, known: Iterable[str]) -> Any:
    if not isinstance(value, str) or value not in (known := tuple(known)):
        raise ConfigError(
            f"{where} cannot be {_shown(value)}", hint=f"known are {', '.join(known)}"
        )
    return value


def _names(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"{where} must be a list of names, not {_shown(value)}")
    return tuple(value)


def _node_recipes(value: Any, where: str) -> dict[str, NodeRecipe | None]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must map names to recipes, not {_shown(value)}")
    return {name: _node_recipe(one, f"{where}.{name}") for name, one in value.items()}


def _node_recipe(value: Any, where: str) -> NodeRecipe | None:
    if value is None or value == _IN_FLOAT:  # TOML has no null
        return None
    readers = {
        "activation": _activation,
        "weight": _weight,
        "weights": lambda one, at: _weights(one, at, own=True),
    }
    return NodeRecipe(**_table(value, where, readers))


def _weights(value: Any, where: str, *, own: bool) -> WeightsRecipe:
    """What weights become; the op is the same for all nodes."""
    readers: dict[str, Callable[[Any, str], Any]] = {
        "scheme": lambda one, at: _choice(one, at, SCHEMES),
        "block": lambda one, at: _number(one, at, int, min(BLOCK_SIZES), max(BLOCK_SIZES)),
        "method": lambda one, at: _choice(one, at, get_args(Method)),
        "compute": lambda one, at: _choice(one, at, get_args(Compute)),
    }
    if not own:
        readers["op"] = lambda one, at: _choice(one, at, get_args(Op))
    return WeightsRecipe(**_table(value, where, readers))


def _activation(value: Any, where: str) -> ObserverFactory:
    settings = _table(
        value,
        where,
        {
            "observer": lambda one, at: _choice(one, at, get_args(ActivationObserver)),
            "bins": lambda one, at: _number(one, at, int, 2, 65536),
            "averaging_constant": lambda one, at: _number(one, at, float, 0.0, 1.0),
        },
    )
    if "observer" not in settings:
        raise ConfigError(f"{where}.observer is missing")
    name = settings.pop("observer")
    for key, owner in (("bins", "histogram"), ("averaging_constant", "moving-average")):
        if key in settings and name != owner:
            raise ConfigError(f"{where}.{key} belongs to the observer {owner}, not {name}")
    return activation_observer(name, **settings)


def _weight(value: Any, where: str) -> ObserverFactory:
    settings = _table(
        value,
        where,
        {
            "observer": lambda one, at: _choice(one, at, get_args(WeightObserver)),
            "dtype": lambda one, at: _choice(one, at, _WEIGHT_DTYPES),
        },
    )
    dtype = _WEIGHT_DTYPES[settings.get("dtype", "qint8")]
    return weight_observer(settings.get("observer", "per-channel"), dtype)


def _number(value: Any, where: str, kind: type, low: float, high: float) -> Any:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not (whole or (kind is float and isinstance(value, float))) or not low <= value <= high:
        noun = "a whole number" if kind is int else "a number"
        raise ConfigError(f"{where} must be {noun} from {low} to {high}, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    return json.dumps(value, default=str)[:60]
