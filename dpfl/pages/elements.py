# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Self-contained HTML: no script, nothing loaded, light and dark, any width.

    body = [elements.heading("Privacy"), elements.facts({"epsilon": 8.0})]
    text = elements.page("A run", body)

Every value is escaped, so that markup in a name is shown literally. A template engine
would be another dependency, whose import takes 80 ms, for the few functions below.
"""

from __future__ import annotations

import html
import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_STYLE = pathlib.Path(__file__).with_suffix(".css").read_text("utf-8")
# Policy under which nothing is loaded and nothing runs, whatever the page contains.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def escaped(value: Any) -> str:
    """Escapes a value for HTML."""
    return html.escape(shown(value), quote=True)


def shown(value: Any) -> str:
    """Formats a value for people: few digits, a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if math.isinf(value):
            return "∞" if value > 0 else "-∞"
        # Large numbers are shown without fraction and exponent.
        is_whole = math.isfinite(value) and (value == int(value) or abs(value) >= 1e5)
        return f"{value:,.0f}" if is_whole and abs(value) < 1e15 else f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {shown(part)}" for name, part in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(shown, value)) or "–"
    return str(value)


def page(title: str, body: Iterable[str]) -> str:
    """A whole page with a title, as text, and a body of elements, as HTML."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escaped(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body></html>\n"
    )


def heading(text: str, level: int = 2) -> str:
    """A heading."""
    return f"<h{level}>{escaped(text)}</h{level}>"


def paragraph(text: str, *, is_soft: bool = False) -> str:
    """A paragraph."""
    return f"<p{' class=soft' if is_soft else ''}>{escaped(text)}</p>"


def cards(values: Mapping[str, Any]) -> str:
    """Cards with a large number and its name each."""
    parts = (
        f"<div><b>{escaped(value)}</b><span>{escaped(name)}</span></div>"
        for name, value in values.items()
    )
    return f'<div class="cards">{"".join(parts)}</div>'


def charts(drawings: Iterable[str]) -> str:
    """Charts beside each other if there is room."""
    return f'<div class="charts">{"".join(drawings)}</div>'


def facts(values: Mapping[str, Any]) -> str:
    """A table of two columns, names and values."""
    rows = (
        f"<tr><th scope=row>{escaped(name)}</th><td>{escaped(value)}</td></tr>"
        for name, value in values.items()
    )
    return f'<div class="wide"><table>{"".join(rows)}</table></div>'


def table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    """A table, with heads by column, that scrolls if it does not fit."""
    heads = "".join(f"<th scope=col>{escaped(head)}</th>" for head in columns.values())
    lines = ""
    for row in rows:
        cells = "".join(f"<td>{escaped(row.get(name))}</td>" for name in columns)
        lines += f"<tr>{cells}</tr>"
    head, body = f"<thead><tr>{heads}</tr></thead>", f"<tbody>{lines}</tbody>"
    return f'<div class="wide across"><table>{head}{body}</table></div>'


def folded(summary: str, content: str) -> str:
    """Collapsible content under a summary (HTML's details element)."""
    return f"<details><summary>{escaped(summary)}</summary>{content}</details>"
