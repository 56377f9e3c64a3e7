# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Final accuracy over clips and server rates, a line of points for each mechanism."""

from __future__ import annotations

from typing import Any

from dpfl import tasks

from .. import medium, plotting
from ..rows import Rows, mean_and_range, seeds, where
from .sensitivity_grid import COHORT_SIZE, EPSILON, MECHANISMS, SETTINGS


def draw(rows: Rows, scale: str) -> Any:
    """Draws means with their ranges, and the mean in numbers beside each."""
    del scale
    measure = tasks.task_entry(medium.MNIST).measure
    picture, (axis,) = plotting.panels(1, 7.0, 3.6)
    for step, name in enumerate(MECHANISMS):
        color, marker = plotting.STYLES[name]
        points = []
        for place, tried in enumerate(SETTINGS):
            clip, rate = tried.clip_norm, tried.server_lr
            runs = where(rows, mechanism=name, clip_norm=clip, server_lr=rate)
            if runs:
                found = mean_and_range(runs, measure.final_column)
                points.append((place + plotting.aside(step, len(MECHANISMS)), *found))
        if points:
            look = {"color": color, "fmt": marker, "ms": 7}
            plotting.ranges(axis, points, plotting.TITLES[name], **look)
        for place, mean, _, _ in points:
            _number(axis, place, mean, color, -1 if step == 0 else 1)
    names = [
        f"clip {s.clip_norm:g}, rate {s.server_lr:g}\n({s.whose})" for s in SETTINGS
    ]
    axis.set_xticks(range(len(SETTINGS)), names)
    axis.set_xlim(-0.5, len(SETTINGS) - 0.5)
    plotting.finish(axis, ylabel=f"final {measure.label}")
    picture.suptitle(
        rf"{medium.MNIST}, {COHORT_SIZE} clients a round, $\varepsilon$={EPSILON:g}; "
        f"{seeds(rows)}"
    )
    picture.tight_layout()
    return picture


def _number(axis: Any, place: float, mean: float, color: str, side: int) -> None:
    """Writes a mean to the left of its point, or to the right."""
    axis.annotate(
        f"{mean:.3f}",
        (place, mean),
        (side * 6, 0),
        textcoords="offset points",
        ha="left" if side > 0 else "right",
        va="center",
        color=color,
        fontsize=9,
    )
