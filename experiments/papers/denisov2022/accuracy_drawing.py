# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Fig. 3: final accuracy over budgets; Fig. 6: accuracy in the second half."""

from __future__ import annotations

from typing import Any

from dpfl import tasks

from .. import plotting
from ..rows import Rows, distinct, seeds, where
from .accuracy_grid import FINAL_EPSILON, FINAL_STREAMS, STREAMS
from .methods import TITLES

_SCHEDULES = ("constant", "drop", "cooldown")
_STREAM_TITLES = {
    **{(method, "constant"): title for method, title in TITLES.items()},
    ("optimal", "drop"): "optimal M, rate drop",
    ("optimal", "cooldown"): "optimal M, cooldown",
}
# Schedules of one matrix have its color.
_LOOKS = {
    (method, schedule): plotting.look(method, _SCHEDULES.index(schedule))
    for method, schedule in STREAMS
}
# Share of the training that Fig. 6 shows; the schedules change the last quarter.
_FINAL_PART = 0.5


def draw_budgets(rows: Rows, scale: str) -> Any:
    """Draws constant rates on the left and schedules on the right."""
    del scale
    picture, axes = plotting.panels(2, 4.75, 3.8, sharey=True)
    panels = (
        ("constant rate", [s for s in STREAMS if s[1] == "constant"]),
        ("rate schedules in the matrix", [s for s in STREAMS if s[0] == "optimal"]),
    )
    budgets = distinct(rows, "epsilon")
    measure = tasks.task_entry(rows[0]["problem"]).measure
    for axis, (title, streams) in zip(axes, panels):
        for stream in streams:
            runs = where(rows, mechanism=stream[0], schedule=stream[1])
            groups = {float(e): where(runs, epsilon=e) for e in budgets}
            points = plotting.range_points(groups, measure.final_column)
            if points:
                plotting.ranges(axis, points, _STREAM_TITLES[stream], **_LOOKS[stream])
        axis.set_title(title)
        axis.set(xscale="log", xlabel=r"$\varepsilon$")
        axis.set_xticks(
            [float(e) for e in budgets], [f"{float(e):g}" for e in budgets], minor=False
        )
        axis.minorticks_off()
        if axis.containers:
            axis.legend()
    axes[0].set_ylabel(f"final {measure.label}")
    picture.suptitle(f"{rows[0]['problem']}, one pass; {seeds(rows)}")
    picture.tight_layout()
    return picture


def draw_final(rows: Rows, scale: str) -> Any:
    """Draws accuracy over the final part of the training, a line for each stream."""
    picture, (axis,) = plotting.panels(1, 6, 4)
    measure = tasks.task_entry(rows[0]["problem"]).measure
    for stream in FINAL_STREAMS:
        runs = where(rows, mechanism=stream[0], schedule=stream[1])
        if runs:
            plotting.curves(
                axis,
                runs,
                measure.column,
                _STREAM_TITLES[stream],
                _LOOKS[stream],
                final_part=_FINAL_PART,
                alpha=0.12,
            )
    axis.set_title(
        rf"{rows[0]['problem']}, one pass, $\varepsilon$={FINAL_EPSILON[scale]:g}; "
        + seeds(rows),
    )
    plotting.finish(axis, xlabel="round", ylabel=measure.label)
    picture.tight_layout()
    return picture
