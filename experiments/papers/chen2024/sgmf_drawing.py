# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figs. 3, 7, 8: accuracy of MF and SGMF over the rounds."""

from __future__ import annotations

import functools
from typing import Any

from dpfl import tasks

from .. import plotting
from ..rows import Rows, seeds, where
from ..sweep import Drawing
from .sgmf_grid import PANELS, cohort_size


def draw(name: str) -> Drawing:
    """Returns the drawing of one of the figures in `PANELS`."""
    return functools.partial(_draw, name)


def _setting(name: str, scale: str) -> str:
    """Returns clip and server's rate in words, if a figure's panels share them."""
    flags = [panel.problem.flags for panel in PANELS[name][scale]]
    found = {(each.get("clip_norm"), each.get("server_lr")) for each in flags}
    clip, rate = found.pop()
    if found or clip is None or rate is None:
        return ""
    return f"clip {clip:g}, server rate {rate:g}; "


def _draw(name: str, rows: Rows, scale: str) -> Any:
    """Draws a panel for each problem and budget, a line for each rate."""
    shown = list(dict.fromkeys((r["problem"], r["epsilon"]) for r in rows))
    picture, axes = plotting.pairs(len(shown), 4.4, 3.0)
    for pair, (problem, epsilon) in zip(axes, shown):
        runs = where(rows, problem=problem, epsilon=epsilon)
        measure = tasks.task_entry(problem).measure
        plotting.curves_by_rate(pair, runs, measure, "MF", "SGMF")
        n = cohort_size(problem, scale)
        pair[0].set_title(
            rf"{problem}, {n} clients a round, $\varepsilon$={float(epsilon):g}"
        )
    shared = _setting(name, scale)
    plotting.head(picture, f"{shared}{seeds(rows)}; numbers: the last round")
    return picture
