"""Rows of cells as aligned text and as HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence

Row = Sequence[str]


def shortened(cell: str, width: int = 48) -> str:
    """The end of a long name, which tells most."""
    return cell if len(cell) <= width else "…" + cell[1 - width :]


def text_table(rows: Sequence[Row], indent: str = "  ") -> list[str]:
    """Lines with aligned columns; the first row is the heading."""
    shown = [[shortened(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return [
        (indent + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True))).rstrip()
        for row in shown
    ]


def html_table(rows: Sequence[Row], caption: str = "") -> str:
    """An HTML table; the first row is the heading."""
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    tags = ["th", *["td"] * (len(rows) - 1)]
    body = "".join(
        "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in row) + "</tr>"
        for tag, row in zip(tags, rows, strict=True)
    )
    return f"<table>{title}{body}</table>"
