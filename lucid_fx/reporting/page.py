"""The HTML file: template, style, script, libraries and data put into one text."""

from __future__ import annotations

import html
import importlib
import json
import math
import re
from importlib import resources
from typing import Any

from lucid_fx.errors import ConfigError

_PLACE = re.compile(r"\{\{(\w+)\}\}")


def page(content: dict[str, Any]) -> str:
    """One HTML text that needs nothing else.

    Args:
        content: what the page shows; its texts may come out of any model file.

    Raises:
        ConfigError: the library that draws the charts is not installed.
    """
    files = resources.files("lucid_fx.reporting")
    parts = {
        "title": html.escape(str(content["title"])),
        "style": files.joinpath("page.css").read_text(encoding="utf-8"),
        "charts": library("plotly.offline").get_plotlyjs(),
        "data": _script_json(content),
        "graphs": files.joinpath("graphs.js").read_text(encoding="utf-8"),
        "script": files.joinpath("page.js").read_text(encoding="utf-8"),
    }
    template = files.joinpath("page.html").read_text(encoding="utf-8")
    return _PLACE.sub(lambda place: parts[place[1]], template)


def _script_json(content: Any) -> str:
    """JSON in which nothing can end the script element that holds it."""
    text = json.dumps(finite(content), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def finite(content: Any) -> Any:
    """The same data with None for numbers that JSON does not know."""
    if isinstance(content, dict):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def library(name: str) -> Any:
    """A library that only reports need.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigError(
            f"a report needs {name.split('.', maxsplit=1)[0]}, which is not installed",
            hint="pip install 'lucid-fx[report]'",
        ) from None
