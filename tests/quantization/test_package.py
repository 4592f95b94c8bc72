"""What the package offers, under which names."""

import subprocess
import sys

import pytest

import lucid_fx
import lucid_fx.quantization as q

OF_THE_MODULE_LAYER = (
    "convert",
    "fuse_modules",
    "fuse_modules_qat",
    "prepare",
    "prepare_qat",
    "quantize_dynamic",
)


def test_dir_shows_the_public_names_only():
    assert dir(q) == sorted(q.__all__)
    assert all(hasattr(q, name) for name in q.__all__)


@pytest.mark.parametrize("name", OF_THE_MODULE_LAYER)
def test_what_is_not_there_yet_is_not_there(name):
    assert name not in q.__all__
    with pytest.raises(AttributeError, match=name):
        getattr(q, name)


def test_whole_graph_functions_are_those_of_the_package_above():
    assert q.prepare_fx is lucid_fx.prepare_fx
    assert q.convert_fx is lucid_fx.convert_fx


def test_they_are_there_whatever_is_imported_first():
    code = "from lucid_fx.quantization import *; print(prepare_fx.__module__, qint2)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["lucid_fx.workflow", "lucid_fx.quantization.qint2"]
