# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figs. 3, 7, 8: accuracy of MF and SGMF over the rounds."""

from __future__ import annotations

from typing import Any

from dpfl import tasks

from .. import plotting
from ..rows import Rows, distinct, seeds, where


def _label(rate: str) -> str:
    whole = "matrix factorization"
    name = whole if float(rate) == 1 else f"SGMF, {float(rate):g}-fold"
    return name + ": {last:.3f}"


def draw(rows: Rows, scale: str) -> Any:
    """Draws a panel for each problem and budget, a line for each rate."""
    del scale
    shown = list(dict.fromkeys((r["problem"], r["epsilon"]) for r in rows))
    picture, axes = plotting.panels(len(shown), 4.2, 3.6)
    for axis, (problem, epsilon) in zip(axes, shown):
        runs = where(rows, problem=problem, epsilon=epsilon)
        measure = tasks.task_entry(problem).measure
        for i, rate in enumerate(distinct(runs, "compression_rate")):
            chosen = where(runs, compression_rate=rate)
            look = (
                plotting.look("MF", marked=False)
                if float(rate) == 1
                else plotting.look("SGMF", i - 1, marked=False)
            )
            plotting.curves(axis, chosen, measure.column, _label(rate), look)
        plotting.finish(axis, xlabel="round", ylabel=measure.label)
        axis.set_title(rf"{problem}, $\varepsilon$={float(epsilon):g}")
    picture.suptitle(f"{seeds(rows)}, and where they end")
    picture.tight_layout()
    return picture
