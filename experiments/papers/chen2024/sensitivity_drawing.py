# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Final accuracy over clips and server rates, points of each mechanism."""

from __future__ import annotations

from typing import Any

from dpfl import tasks

from .. import medium, plotting
from ..rows import Rows, mean_and_range, seeds, where
from .sensitivity_grid import COHORT_SIZE, MECHANISMS, NOISIER, SETTINGS, Tried

# By name: that of the legend, a key of `plotting.STYLES`, whether the marker is hollow
# and how its number is aligned: "right" puts it to the left of its point.
_LOOKS = {
    **{
        name: (plotting.TITLES[name], name, False, alignment)
        for name, alignment in zip(MECHANISMS, ("right", "left"))
    },
    NOISIER: ("matrix factorization, noise of 10-fold SGMF", "MF", True, "left"),
}


def draw(rows: Rows, scale: str) -> Any:
    """Draws a panel for each budget: means with ranges, and the means as numbers."""
    del scale
    picture, axes = plotting.panels(len(SETTINGS), 5.0, 4.2)
    for axis, (epsilon, settings) in zip(axes, SETTINGS.items()):
        for name in _LOOKS:
            _points(axis, where(rows, mechanism=name, epsilon=epsilon), name, settings)
        axis.set_xticks(range(len(settings)), [_words(tried) for tried in settings])
        axis.set_xlim(-0.6, len(settings) - 0.4)
        axis.set_title(rf"$\varepsilon$={epsilon:g}")
        axis.set_ylabel(f"final {tasks.task_entry(medium.MNIST).measure.label}")
    picture.suptitle(f"{medium.MNIST}, {COHORT_SIZE} clients a round; {seeds(rows)}")
    picture.tight_layout(rect=(0, 0.08, 1, 1))
    named = axes[0].get_legend_handles_labels()
    picture.legend(*named, loc="lower center", ncol=len(_LOOKS))
    return picture


def _words(tried: Tried) -> str:
    return f"clip {tried.clip_norm:g},\nrate {tried.server_lr:g}\n({tried.origin})"


def _points(axis: Any, rows: Rows, name: str, settings: tuple[Tried, ...]) -> None:
    """Draws the points of a mechanism at the settings at which it was run."""
    title, style, is_hollow, alignment = _LOOKS[name]
    color, marker = plotting.STYLES[style]
    column = tasks.task_entry(medium.MNIST).measure.final_column
    points: list[plotting.Point] = []
    for place, tried in enumerate(settings):
        own = {"clip_norm": tried.clip_norm, "server_lr": tried.server_lr}
        if runs := where(rows, **own):
            found = mean_and_range(runs, column)
            shift = plotting.aside(list(_LOOKS).index(name), len(_LOOKS))
            points.append((place + shift, *found))
    if not points:
        return
    look = {"color": color, "ls": "", "marker": marker, "ms": 7}
    plotting.ranges(axis, points, title, **look, **({"mfc": "w"} if is_hollow else {}))
    for x, mean, _, _ in points:
        axis.annotate(
            f"{mean:.3f}",
            (x, mean),
            (6 if alignment == "left" else -6, 0),
            textcoords="offset points",
            ha=alignment,
            va="center",
            color=color,
            fontsize=9,
        )
