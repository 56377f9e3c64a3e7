# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Panels of the sweep: one for each task and each amount of noise, and its title."""

from __future__ import annotations

import math

from ..rows import Row, Rows, numbers


def noise(row: Row) -> tuple[str, str]:
    """Returns name and value of the label that says how much noise a run has."""
    name = "budget" if row.get("budget") else "noise_multiplier"
    return name, row[name]


def panels(rows: Rows) -> list[tuple[str, list[Row]]]:
    """Returns task and rows of each task and each amount of noise."""
    found: dict[tuple[str, tuple[str, str]], list[Row]] = {}
    for row in rows:
        found.setdefault((row["task"], noise(row)), []).append(row)
    return [(task, runs) for (task, _), runs in found.items()]


def amount_label(row: Row) -> str:
    """Returns how much noise a run was given, as its budget or its multiplier."""
    name, value = noise(row)
    words = r"$\varepsilon$=" if name == "budget" else "noise multiplier "
    return f"{words}{float(value):g}"


def noise_label(rows: Rows) -> str:
    """Returns how much noise there is, and the epsilon that the runs spent or had."""
    _, value = noise(rows[0])
    if float(value) == 0:
        return "no noise"
    return f"{amount_label(rows[0])}{epsilon_label(rows)}"


def epsilon_label(rows: Rows) -> str:
    """Returns the epsilon that the runs spent, in brackets.

    Nothing if it is infinite, or if it was given as their budget.
    """
    epsilons = numbers(rows, "epsilon")
    if rows[0].get("budget") or not all(map(math.isfinite, epsilons)):
        return ""
    low, high = min(epsilons), max(epsilons)
    spread = f"{low:.1f}" if high < 1.05 * low else f"{low:.1f} to {high:.1f}"
    return rf" ($\varepsilon$={spread})"
