# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Fig. 4: loss against time of three solvers, measured in one run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpfl import factorization as mf

from ... import factorizations
from .. import plotting
from ..result_rows import Rows, read_columns, write_columns
from ..sweep import Setting, Work
from .errors import MOMENTUM, workload_title

# (rounds, momentum) and the seconds that the general-purpose solver may take.
PROBLEMS: Mapping[str, tuple[list[tuple[int, float]], float]] = {
    "small": ([(256, 0.0), (256, MOMENTUM)], 30.0),
    "paper": ([(512, 0.0), (512, MOMENTUM), (2048, 0.0), (2048, MOMENTUM)], 4800.0),
}
RTOL = 1e-8
SOLVERS = {
    "accelerated": "fixed point, accelerated",
    "plain": "fixed point, plain",
    "lbfgs": "L-BFGS",
}
# Columns of the seconds that each took, or words that it did not get there.
SECONDS = tuple(f"{name}_seconds" for name in SOLVERS)
# The excess loss that the table gives the time to.
REACHED = 1e-6


def _work(rounds: int, momentum: float, max_seconds: float) -> Work:
    """Returns all solvers one after the other: their times are of one machine."""

    def compute(folder: Path) -> Mapping[str, Any]:
        workload = mf.momentum(rounds, momentum)
        curves, bounds = {}, []
        for name, accelerated in (("accelerated", True), ("plain", False)):
            curves[name], bound = factorizations.fixed_point_curve(
                workload, accelerated=accelerated, rtol=RTOL
            )
            bounds.append(bound)
        bound = max(bounds)
        target = bound * (1 + REACHED)
        curves["lbfgs"] = factorizations.lbfgs_curve(workload, max_seconds, target)
        measured: dict[str, Any] = {"dual_bound": bound}
        for name, curve in curves.items():
            seconds, losses = (np.array(column) for column in zip(*curve))
            excess = losses / bound - 1
            columns = {"seconds": list(seconds), "excess": list(excess)}
            write_columns(folder / f"{name}.csv", columns)
            reached = seconds[excess <= REACHED]
            measured[f"{name}_evaluations"] = len(curve)
            measured[f"{name}_seconds"] = reached[0] if len(reached) else "not reached"
            measured[f"{name}_excess"] = excess[-1]
        return measured

    labels = {"rounds": rounds, "momentum": momentum}
    settings = {"rtol": RTOL, "reached": REACHED, "max_seconds": max_seconds}
    return Work(labels, settings, compute)


def grid(setting: Setting) -> list[Work]:
    """Returns one piece of work for each problem."""
    problems, max_seconds = PROBLEMS[setting.scale]
    return [_work(*problem, max_seconds) for problem in problems]


# All of them find the optimal matrix, and have shades of its color.
_MARKERS = {"accelerated": "o", "plain": "^", "lbfgs": "s"}


def draw(rows: Rows, scale: str) -> Any:
    """Draws a panel for each problem, a line for each solver."""
    from matplotlib import ticker

    del scale
    picture, axes = plotting.panels(len(rows), 4.5, 3.5, sharey=True)
    for axis, row in zip(axes, rows):
        for name, title in SOLVERS.items():
            curve = read_columns(Path(row["folder"]) / f"{name}.csv")
            # Rounding may put the excess of a converged loss below zero.
            excess = np.maximum(curve["excess"], 1e-12)
            step = list(_MARKERS).index(name)
            color = plotting.shade("optimal", step, len(_MARKERS), (-0.6, 0.5))
            look = {"color": color, "marker": _MARKERS[name], "ms": 3}
            axis.plot(curve["seconds"], excess, label=title, **look)
        title = workload_title(float(row["momentum"]))
        axis.set_title(f"{title}, T={row['rounds']}")
        axis.set(xscale="log", yscale="log", xlabel="seconds", ylim=(1e-10, None))
        # Few powers of ten are shown, and all between them would not have room.
        axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 3.0)))
        axis.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axis.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes[0].set_ylabel("loss / dual bound - 1")
    # Above the panels, where no curve is.
    picture.legend(*axes[0].get_legend_handles_labels(), loc="upper center", ncol=3)
    picture.tight_layout(rect=(0, 0, 1, 0.92))
    return picture
