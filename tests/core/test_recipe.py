"""Recipe files: what they say, what wins, and every way in which they can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lucid_fx.errors import ConfigError
from lucid_fx.quantization import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    PerChannelMinMaxObserver,
    QConfig,
    QConfigMapping,
    quint8,
)
from lucid_fx.recipe import Recipe, parse_recipe, read_recipe


def qconfig(mapping: QConfigMapping, op_type: str, name: str) -> QConfig:
    found = mapping.get_qconfig(op_type, name)
    assert found is not None
    return found


def test_an_empty_recipe_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text("{}")
    recipe = read_recipe(tmp_path / "r.json")
    assert recipe == Recipe()
    default = qconfig(recipe.mapping(), "Conv", "c")
    assert type(default.activation()) is HistogramObserver
    assert type(default.weight()) is PerChannelMinMaxObserver


def test_json_and_toml_say_the_same(tmp_path: Path) -> None:
    said: dict[str, Any] = {
        "format": "qdq",
        "target": "cpu-avx2",
        "observer": "minmax",
        "exclude": ["head"],
        "exclude_op": ["Softmax"],
    }
    (tmp_path / "r.json").write_text(json.dumps(said))
    (tmp_path / "r.toml").write_text(
        'format = "qdq"\ntarget = "cpu-avx2"\nobserver = "minmax"\n'
        'exclude = ["head"]\nexclude_op = ["Softmax"]\n'
    )
    assert read_recipe(tmp_path / "r.json") == read_recipe(tmp_path / "r.toml")
    mapping = read_recipe(tmp_path / "r.json").mapping()
    assert mapping.module_names == {"head": None}
    assert mapping.object_types == {"Softmax": None}


def test_overrides_for_nodes_and_types() -> None:
    mapping = parse_recipe(
        {
            "observer": "minmax",
            "modules": {
                "stem": {"activation": {"observer": "moving-average", "averaging_constant": 0.1}},
                "head": None,
                "tail": "float",
            },
            "types": {
                "Conv": {
                    "activation": {"observer": "histogram", "bins": 512},
                    "weight": {"observer": "minmax", "dtype": "quint8"},
                }
            },
        }
    ).mapping()
    stem, conv = qconfig(mapping, "Conv", "stem"), qconfig(mapping, "Conv", "other")
    averaged = stem.activation()
    assert type(averaged) is MovingAverageMinMaxObserver
    assert averaged.averaging_constant == 0.1
    assert type(stem.weight()) is PerChannelMinMaxObserver, "what is not said stays"
    counted = conv.activation()
    assert type(counted) is HistogramObserver
    assert counted.bins == 512
    assert type(conv.weight()) is MinMaxObserver
    assert conv.weight().qdtype == quint8
    assert mapping.get_qconfig("Conv", "head") is None
    assert mapping.get_qconfig("Conv", "tail") is None
    assert type(qconfig(mapping, "Gemm", "g").activation()) is MinMaxObserver


def test_the_command_line_wins_and_exclusions_add_up() -> None:
    recipe = parse_recipe(
        {"format": "qdq", "observer": "minmax", "exclude": ["a"], "modules": {"b": {}}}
    ).with_options(format="qoperator", exclude=["b"], exclude_op=["Conv"])
    assert (recipe.format, recipe.observer) == ("qoperator", "minmax")
    assert recipe.mapping().module_names == {"a": None, "b": None}
    assert recipe.mapping().object_types == {"Conv": None}


WRONG: dict[str, tuple[Any, str]] = {
    "a list": ([], "the file must hold keys and values, not []"),
    "key": ({"fromat": "qdq"}, "there is no key 'fromat'; did you mean 'format'"),
    "format": ({"format": "qd"}, 'format cannot be "qd"; known are qoperator, qdq'),
    "target": ({"target": "gpu"}, 'target cannot be "gpu"; known are auto, cpu-avx512vnni'),
    "observer": ({"observer": 3}, "observer cannot be 3; known are minmax, histogram"),
    "exclude": ({"exclude": "conv0"}, 'exclude must be a list of names, not "conv0"'),
    "exclude_op": ({"exclude_op": [1]}, "exclude_op must be a list of names, not [1]"),
    "modules": ({"modules": ["a"]}, 'modules must map names to recipes, not ["a"]'),
    "module": ({"modules": {"a": 1}}, "modules.a must hold keys and values, not 1"),
    "module key": (
        {"modules": {"a": {"activations": {}}}},
        "modules.a has no key 'activations'; did you mean 'activation'",
    ),
    "activation key": (
        {"types": {"Conv": {"activation": {"obsever": "minmax"}}}},
        "types.Conv.activation has no key 'obsever'; did you mean 'observer'",
    ),
    "activation without observer": (
        {"types": {"Conv": {"activation": {"bins": 10}}}},
        "types.Conv.activation.observer is missing",
    ),
    "setting of another observer": (
        {"types": {"Conv": {"activation": {"observer": "minmax", "bins": 10}}}},
        "types.Conv.activation.bins belongs to the observer histogram, not minmax",
    ),
    "bins": (
        {"types": {"Conv": {"activation": {"observer": "histogram", "bins": 1.5}}}},
        "types.Conv.activation.bins must be a whole number from 2 to 65536, not 1.5",
    ),
    "averaging constant": (
        {"modules": {"a": {"activation": {"observer": "moving-average", "averaging_constant": 2}}}},
        "averaging_constant must be a number from 0.0 to 1.0, not 2",
    ),
    "weight observer": (
        {"modules": {"a": {"weight": {"observer": "histogram"}}}},
        'modules.a.weight.observer cannot be "histogram"; known are per-channel, minmax',
    ),
    "weight dtype": (
        {"modules": {"a": {"weight": {"dtype": "int8"}}}},
        'modules.a.weight.dtype cannot be "int8"; known are qint8, quint8',
    ),
}


@pytest.mark.parametrize(("data", "text"), WRONG.values(), ids=WRONG)
def test_wrong_recipes_are_refused(tmp_path: Path, data: Any, text: str) -> None:
    (tmp_path / "r.json").write_text(json.dumps(data))
    with pytest.raises(ConfigError) as caught:
        read_recipe(tmp_path / "r.json")
    assert text in str(caught.value)
    assert "r.json" in str(caught.value)


def test_files_that_do_not_parse(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no recipe file"):
        read_recipe(tmp_path / "none.json")
    (tmp_path / "r.json").write_text("{")
    with pytest.raises(ConfigError, match=r"is not JSON: .*line 1"):
        read_recipe(tmp_path / "r.json")
    (tmp_path / "r.toml").write_text("a =\nb = 1\n")
    with pytest.raises(ConfigError, match=r"is not TOML: .*line 1"):
        read_recipe(tmp_path / "r.toml")
