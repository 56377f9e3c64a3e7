# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Test loss over the rounds, a line for each way to add noise."""

from __future__ import annotations

from typing import Any

from dpfl import tasks

from .. import plotting
from ..rows import Rows, distinct, seeds, where
from .stream_training_grid import EPSILON, PANELS, SHARED, WAYS

# Color-blind safe (Okabe and Ito); the same way has the same color in both panels.
COLORS = dict(zip(WAYS, ("#000000", "#7f7f7f", "#e69f00", "#56b4e9", "#d55e00")))


def draw(rows: Rows, scale: str) -> Any:
    """Draws a panel without and one with compression."""
    del scale
    picture, axes = plotting.panels(len(PANELS), 5.2, 4.2, sharey=True)
    measure = tasks.task_entry("docs").measure
    for axis, rate in zip(axes, PANELS):
        shown = where(rows, rate=rate)
        for way in distinct(shown, "way"):
            runs = where(shown, way=way)
            label = f"{runs[0]['mechanism']}, {way}: " + "{last:.3f}"
            plotting.curves(axis, runs, measure.column, COLORS[way], label)
        if shown:
            plotting.finish(axis, xlabel="round")
        title = "all coordinates" if rate == 1 else f"{rate}-fold compression"
        axis.set_title(title, fontsize=10)
    axes[0].set_ylabel(measure.label)
    picture.suptitle(
        rf"docstrings of packages, {SHARED['cohort_size']} clients a round, "
        rf"$\varepsilon$={EPSILON:g}, $\delta=N^{{-1.1}}$; {seeds(rows)}",
        fontsize=10,
    )
    picture.tight_layout()
    return picture
