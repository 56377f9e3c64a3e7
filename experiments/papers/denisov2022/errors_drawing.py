# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Fig. 1: errors of each step; Table 2: losses, as bars and numbers."""

from __future__ import annotations

from typing import Any

from .. import plotting
from ..rows import Rows, distinct, where
from ..trainings import curve
from .errors_grid import STEP_ROUNDS, STEPS, TABLE_METHODS
from .methods import TITLES, workload_title

# Those of the mechanisms that are trained, and others.
_COLORS = {
    **{method: color for method, (color, _) in plotting.STYLES.items()},
    "band-low-rank": "#0072b2",
    "banded": "#56b4e9",
    "toeplitz": "#009e73",
    "blt": "#66c2a5",
}


def draw_steps(rows: Rows, scale: str) -> Any:
    """Draws the squared error of each step, a panel for each momentum."""
    values = distinct(rows, "momentum")
    picture, axes = plotting.panels(len(values), 4.7, 3.5)
    for axis, momentum in zip(axes, values):
        highest = 0.0
        for row in where(rows, momentum=momentum):
            places, steps = zip(*curve(row, STEPS.columns[0], STEPS))
            highest = max(highest, *steps)
            look = plotting.look(row["method"], marked=False)
            label = TITLES[row["method"]]
            axis.plot(places, steps, label=label, **look)
        axis.set_title(workload_title(float(momentum)))
        axis.set(xlabel="round", ylabel="squared error of the iterate")
        # Room for the legend above the lines.
        axis.set_ylim(0, 1.3 * highest)
        axis.legend(fontsize=8, ncol=2, loc="upper left")
    picture.suptitle(
        f"T={STEP_ROUNDS[scale]}; per coordinate, at noise multiplier 1 and clip 1",
    )
    picture.tight_layout()
    return picture


def draw_table(rows: Rows, scale: str) -> Any:
    """Draws losses over the optimal one as bars, and the losses as a table."""
    del scale
    losses = {(r["rounds"], r["method"]): float(r["loss"]) for r in rows}
    sizes = distinct(rows, "rounds")
    picture, (axis,) = plotting.panels(1, 8.5, 3.6)
    width = 0.8 / len(TABLE_METHODS)
    colors = [_COLORS[method] for method in TABLE_METHODS]
    for i, method in enumerate(TABLE_METHODS):
        shown = [
            (j + width * (i + 0.5) - 0.4, losses[n, method] / losses[n, "optimal"])
            for j, n in enumerate(sizes)
            if (n, method) in losses and (n, "optimal") in losses
        ]
        if shown:
            axis.bar(*zip(*shown), width=width, color=colors[i])
    axis.set_xticks([])
    axis.set(xlim=(-0.5, len(sizes) - 0.5), ylabel="loss / optimal loss")
    axis.axhline(1, color="k", lw=0.5)
    axis.grid(visible=False, axis="x")
    table = axis.table(
        [
            [f"{losses[n, m]:.6g}" if (n, m) in losses else "-" for n in sizes]
            for m in TABLE_METHODS
        ],
        rowLabels=list(TABLE_METHODS.values()),
        rowColours=[(color, 0.5) for color in colors],
        colLabels=[f"T={n}" for n in sizes],
        loc="bottom",
        cellLoc="center",
    )
    table.auto_set_font_size(False)
    table.set_fontsize(8)
    axis.set_title("prefix sum: loss over the optimal one (bars) and loss (table)")
    return picture
