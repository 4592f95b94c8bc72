"""Options of the test run; lets tests import their helpers beside this file."""

from __future__ import annotations

import os

import pytest

from lucid_fx.native.library import load


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/golden from what comes out now"
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    """CI skips nothing: the package that is tested must have its native library."""
    if os.environ.get("CI") and load() is None:
        pytest.exit("CI needs the native library, and this installation has none", returncode=4)
