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
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_STYLE = """
:root{color-scheme:light dark;--back:#fff;--fore:#1b1f24;--soft:#59636e;--rule:#d5dae0;
--card:#f5f7f9;--grid:#e4e8ec;--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b0508f;
--c4:#b88600;--c5:#3d9bd1;--c6:#6b6b6b;--c7:#8c4a2f}
@media (prefers-color-scheme:dark){:root{--back:#14171a;--fore:#e4e8ec;--soft:#9aa4af;
--rule:#343b43;--card:#1d2227;--grid:#2a3037;--c0:#58b4ec;--c1:#ff8b4a;--c2:#3ccfa0;
--c3:#e59acb;--c4:#efbd45;--c5:#9ad4f5;--c6:#b5b5b5;--c7:#d89a80}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:72rem;padding:1rem;background:var(--back);
color:var(--fore);font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.25;margin:.5rem 0}
h2{font-size:1.15rem;margin:2rem 0 .5rem}
p{margin:.4rem 0;max-width:48rem}.soft{color:var(--soft)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.6rem;
margin:1rem 0}
.cards div{background:var(--card);border:1px solid var(--rule);border-radius:6px;
padding:.5rem .7rem}
.cards b{display:block;font-size:1.35rem;line-height:1.3}
.cards span{color:var(--soft);font-size:.85rem}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(19rem,100%),1fr));
gap:1rem}
figure{margin:0}figcaption{font-size:.9rem;font-weight:600}
svg{width:100%;height:auto;display:block}svg text{fill:var(--soft);font-size:11px}
.grid{stroke:var(--grid);stroke-width:1}.line{fill:none;stroke-width:1.6}
.legend{display:flex;flex-wrap:wrap;gap:.1rem 1rem;font-size:.8rem;color:var(--soft)}
.legend span{display:flex;align-items:center}
.legend i{flex:none;width:1.3rem;border-top:2px;margin-right:.35rem}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem}
th,td{text-align:left;vertical-align:top;padding:.25rem 1.2rem .25rem 0;
border-bottom:1px solid var(--rule);min-width:4rem}
th{color:var(--soft);font-weight:600;overflow-wrap:normal}
td{font-variant-numeric:tabular-nums}
.across th,.across td{white-space:nowrap;overflow-wrap:normal}
.across td:first-child{white-space:normal;overflow-wrap:anywhere;min-width:11rem}
details{margin:.5rem 0}summary{cursor:pointer;font-weight:600}
"""
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
