"""Text that every Python brings along: the help topics of ``pydoc``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,:()=+-]{1,11}")


@cache
def topics_text() -> str:
    """Give all help topics as one ASCII text; it differs a little between Python versions."""
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name] for name in sorted(topics))
    return text.encode("ascii", "ignore").decode("ascii")


@cache
def tokens() -> Sequence[str]:
    """Give the text's distinct words, with the punctuation that sticks to them, sorted."""
    return sorted(filter(_TOKEN.fullmatch, set(topics_text().split())))
