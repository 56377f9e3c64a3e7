# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The file that an audit writes, and the tables of docs/privacy/audit.md from it.

print(audit_page.page(audit_page.read("docs/privacy/audit.csv")))
"""

from __future__ import annotations

import collections
import csv
from collections.abc import Iterable, Mapping, Sequence

from . import tables

Line = Mapping[str, str]

COLUMNS = (
    *("check", "mechanism", "setting", "relation", "delta", "method", "claimed"),
    *("found", "ratio", "attainable", "trials", "verdict", "detail"),
)
"""The columns of a finding's row, in the order of a file."""

HEADS = {**{name: name for name in COLUMNS}, "method": "claimed by"}
"""Their heads on the terminal."""

_EPSILON = (
    *("mechanism", "canary", "relation", "delta", "claimed", "by"),
    *("lower bound", "ratio", "attainable", "trials"),
)
_SIZES = ("3", "4", "4.5", "5", "5.5", "5.7", "6", "6.5")
# What a relation is called in a narrow column.
_RELATIONS = {"add_or_remove": "add or remove", "replaced_by_zeros": "zeros"}


def content(rows: Sequence[tables.Row], path: str) -> str:
    """Returns rows as a file holds them, CSV or JSON by the ending of its path."""
    if path.lower().endswith(".json"):
        return tables.as_json(rows) + "\n"
    return tables.as_csv(rows, COLUMNS)


def read(path: str) -> list[Line]:
    """Returns the lines of a CSV file of `dpfl-audit`."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def page(lines: Sequence[Line]) -> str:
    """Returns all tables."""
    return "\n\n".join(make(lines) for make in (epsilons, tails, verdicts))


def epsilons(lines: Iterable[Line]) -> str:
    """Returns the table of claims and what was found of them."""
    rows = [
        (
            f"`{line['mechanism']}`",
            line["setting"],
            _RELATIONS[line["relation"]],
            f"{float(line['delta']):g}",
            f"{float(line['claimed']):.3f}",
            line["method"],
            f"{float(line['found']):.3f}",
            f"{float(line['ratio']):.2f}",
            f"{float(line['attainable']):.2f}",
            f"{int(line['trials']):,}",
        )
        for line in lines
        if line["check"] == "epsilon"
    ]
    return _table(_EPSILON, rows)


def tails(lines: Iterable[Line]) -> str:
    """Returns the table of counts, with what was expected in parentheses."""
    drawn: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for line in lines:
        if line["check"] == "tails":
            size = line["setting"].split()[1]
            cell = f"{float(line['found']):.0f} ({float(line['claimed']):.3g})"
            if float(line["claimed"]) >= 1000:
                cell = f"{float(line['found']):,.0f} ({float(line['claimed']):,.0f})"
            own = drawn[line["mechanism"]]
            own[size] = cell
            own["draws"] = f"{int(line['trials']):,}"
    rows = [
        (f"`{name}`", own["draws"], *(own.get(size, "") for size in _SIZES))
        for name, own in drawn.items()
    ]
    return _table(("noise of", "draws", *_SIZES), rows)


def verdicts(lines: Iterable[Line]) -> str:
    """Returns the table of how many lines each check has, and how many are sound."""
    counts: dict[str, list[int]] = {}
    for line in lines:
        own = counts.setdefault(line["check"], [0, 0])
        own[0] += 1
        own[1] += line["verdict"] in ("ok", "below")
    rows = [(f"`{name}`", str(n), str(sound)) for name, (n, sound) in counts.items()]
    return _table(("check", "lines", "sound"), rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines
    )
