# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What one choice changes, and what the sketch sees over the rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpfl import tasks

from .. import plotting
from ..rows import Rows, distinct, mean_and_range, seeds, where
from .ablation_grid import NO_PROBES, SEEN, ablations, grid
from .compared_flags import dome_flags
from .comparison_drawing import budget_label, budgets, dots, shared
from .comparison_grid import TITLES

SEEN_COLUMNS = {
    "aggregator_explained_energy": "share of energy seen",
    "aggregator_subspace_overlap": "overlap with the round before",
    "aggregator_retained_rank": "kept directions r",
}
# The first round has none before it.
_SKIPPED = {"aggregator_subspace_overlap": 1}
# By which the runs of one color are told apart, and the rounds that are marked.
_MARKERS = "os^"
_MARKED = 8
_SEEN_TITLES = {**TITLES, NO_PROBES: "DOME, no probes"}
_BELOW: Mapping[str, Any] = {"loc": "lower center", "ncol": 4}


def draw(rows: Rows, scale: str) -> Any:
    """Draws a line for each ablation; dotted where the first of them is.

    The references, which change more than one choice, are in the table alone.
    """
    titles = {name: each.title for name, each in ablations(scale).items()}
    base = next(iter(titles))
    rows = [row for row in rows if row["mechanism"] in titles] or rows
    measure = tasks.task_entry(rows[0]["task"]).measure
    picture, (axis,) = plotting.panels(1, 8.0, 1.4 + 0.27 * len(titles))
    label = "nothing changed"
    for epsilon in budgets(rows):
        plain = where(rows, mechanism=base, epsilon=epsilon)
        if plain:
            mean, _, _ = mean_and_range(plain, measure.final_column)
            color = plotting.STYLES["dome"][0]
            axis.axvline(mean, color=color, ls=":", lw=1.4, label=label)
            # Once in the legend.
            label = "_"
    title = f"{shared(rows, grid, scale)}; {seeds(rows)}"
    dots(axis, rows, titles, title, with_bits=False)
    picture.tight_layout()
    return picture


def _seen_look(name: str, epsilon: str) -> dict[str, Any]:
    """Returns how a curve looks: hollow and dashed without noise."""
    step = list(SEEN).index(name)
    color = plotting.shade("dome", step, len(SEEN), (-0.75, 0.4))
    is_hollow = math.isinf(float(epsilon))
    return {
        "color": color,
        "ls": "--" if is_hollow else "-",
        "marker": _MARKERS[step],
        "ms": 4,
        "mfc": "white" if is_hollow else color,
        # Not at the same rounds, where lines of one budget meet.
        "markevery": (step + is_hollow * _MARKED // 2, _MARKED),
    }


def draw_energy(rows: Rows, scale: str) -> Any:
    """Draws energy, overlap and rank over the rounds, a row of panels for a task."""
    import matplotlib.pyplot as plt

    del scale
    shown = distinct(rows, "task")
    picture, axes = plt.subplots(
        len(shown),
        len(SEEN_COLUMNS),
        figsize=(3.3 * len(SEEN_COLUMNS), 2.6 * len(shown) + 0.6),
        squeeze=False,
    )
    for line, task in zip(axes, shown):
        runs = where(rows, task=task)
        for axis, (column, words) in zip(line, SEEN_COLUMNS.items()):
            for name, epsilon in dict.fromkeys(
                (row["mechanism"], row["epsilon"]) for row in runs
            ):
                own = plotting.Line(
                    where(runs, mechanism=name, epsilon=epsilon),
                    f"{_SEEN_TITLES[name]}, {budget_label(epsilon)}",
                    _seen_look(name, epsilon),
                )
                plotting.curves(axis, own, column, skipped=_SKIPPED.get(column, 0))
            axis.set(xlabel="round")
            axis.set_title(f"{task}: {words}")
        share = int(dome_flags(task)["sketch_size"]) / tasks.task_entry(task).dimension
        line[0].axhline(share, color="k", ls=":", lw=1, label="random rows (k/d)")
        line[0].set_yscale("log")
        line[-1].set_yscale("log")
    picture.suptitle(seeds(rows))
    picture.tight_layout(rect=(0, 0.5 / picture.get_figheight(), 1, 1))
    picture.legend(*axes[0, 0].get_legend_handles_labels(), **_BELOW)
    return picture
