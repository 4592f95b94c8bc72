"""Text that every Python brings along: the help topics of ``pydoc``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

_WORD = re.compile(r"[A-Za-z]{2,12}")


@cache
def topics_text() -> str:
    """Give all help topics as one ASCII text; it differs a little between Python versions."""
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name] for name in sorted(topics))
    return text.encode("ascii", "ignore").decode("ascii")


@cache
def words() -> Sequence[str]:
    """Give the text's distinct words, sorted."""
    return sorted(set(_WORD.findall(topics_text())))
