# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figs. 2, 4, 5, 6: accuracy of GM and L2-CSGM over the rounds."""

from __future__ import annotations

from typing import Any

from dpfl import tasks

from .. import plotting
from ..rows import Rows, seeds, where
from .accuracy_grid import Panel


def draw(rows: Rows, scale: str, said: str = "") -> Any:
    """Draws a panel for each task, cohort and budget, a line for each rate.

    Args:
      rows: Runs of the figure.
      scale: Is not needed.
      said: What the title says first, of what tells the figure from its like.
    """
    del scale
    shown = list(
        dict.fromkeys(
            Panel(row["task"], int(row["cohort_size"]), float(row["epsilon"]))
            for row in rows
        )
    )
    picture, axes = plotting.pairs(len(shown), 4.4, 3.0)
    for pair, panel in zip(axes, shown):
        measure = tasks.task_entry(panel.task).measure
        n, epsilon = panel.cohort_size, panel.epsilon
        runs = where(rows, task=panel.task, cohort_size=n, epsilon=epsilon)
        plotting.curves_by_rate(pair, runs, measure, "GM", "CSGM")
        pair[0].set_title(
            rf"{panel.task}, {n} clients a round, $\varepsilon$={epsilon:g}"
        )
    plotting.head(picture, f"{said}{seeds(rows)}; numbers: the last round")
    return picture
