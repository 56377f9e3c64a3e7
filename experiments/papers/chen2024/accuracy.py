# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figs. 2, 4, 5, 6: runs of GM and L2-CSGM at equal epsilon.

Server momentum, rates and clips are those of the tasks' flag files, or of `medium`. All
figures but `csgm_tight` are views of one sweep.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Optional

from dpfl import mechanisms, tasks

from .. import medium, plotting
from ..result_rows import Rows, seeds, where
from ..sweep import Grid, Setting, Work
from ..trainings import training_work

COMPRESSION_RATES = {
    "small": (10, 100),
    "medium": (10, 100),
    "paper": (10, 50, 100, 500, 1000),
}
SEEDS = {"small": (1,), "medium": medium.SEEDS, "paper": (1,)}


@dataclasses.dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
      task: Name of the task.
      cohort_size: n.
      epsilon: The budget.
      accountant: That of both mechanisms; None is the default, which differs.
    """

    task: str
    cohort_size: int
    epsilon: float
    accountant: Optional[str] = None


# Panels of each figure by scale. The paper's own panels at "paper"; at "small" the data
# sets that need no download, with cohorts in about the same proportion of each other.
# At "medium" cohorts of an eighth, a half and a sixteenth of the writers meet at one
# budget.
PANELS: Mapping[str, Mapping[str, list[Panel]]] = {
    "csgm_fig2": {
        "small": [
            Panel("digits", 50, 4.0),
            Panel("digits", 50, 8.0),
            Panel("docs", 50, 8.0),
        ],
        "medium": [
            Panel("mnist", 100, 2.0),
            Panel("mnist", 100, 8.0),
            Panel("docs", 100, 8.0),
        ],
        "paper": [
            Panel("emnist", 1000, 5.0),
            Panel("emnist", 1000, 10.0),
            Panel("stackoverflow", 1000, 5.0),
            Panel("stackoverflow", 1000, 10.0),
        ],
    },
    "csgm_fig4": {
        "small": [Panel("digits", 50, eps) for eps in (2.0, 4.0, 8.0)],
        "medium": [Panel("mnist", 400, eps) for eps in (2.0, 8.0)],
        "paper": [Panel("emnist", 1000, eps) for eps in (1.0, 3.0, 5.0, 10.0)],
    },
    "csgm_fig5": {
        "small": [Panel("digits", 10, eps) for eps in (4.0, 8.0, 16.0)],
        "medium": [Panel("mnist", 50, eps) for eps in (2.0, 4.0, 8.0, 16.0)],
        "paper": [Panel("emnist", 100, eps) for eps in (1.0, 3.0, 5.0, 10.0)],
    },
    "csgm_fig6": {
        "small": [Panel("docs", 50, eps) for eps in (4.0, 8.0)],
        "medium": [Panel("docs", 100, eps) for eps in (2.0, 4.0, 8.0, 16.0)],
        "paper": [Panel("stackoverflow", 1000, eps) for eps in (1.0, 3.0, 5.0, 10.0)],
    },
    "csgm_tight": {
        "medium": [
            Panel("mnist", 100, 8.0, "tight"),
            Panel("docs", 100, 8.0, "tight"),
        ]
    },
}
# Those of them that train with `medium.CAREFUL`.
_CAREFUL = (
    Panel("mnist", 100, 2.0),
    Panel("mnist", 400, 2.0),
    *(Panel("mnist", 50, eps) for eps in (2.0, 4.0, 8.0, 16.0)),
)


def _problem(panel: Panel, scale: str) -> Mapping[str, Any]:
    """Returns the flags that do not depend on the mechanism."""
    if scale == "medium":
        careful = medium.CAREFUL if panel in _CAREFUL else {}
        return {**medium.FLAGS[panel.task], **careful}
    return {"flagfile": f"tasks/{panel.task}.flags"}


def _work(panel: Panel, compression_rate: int, seed: int, setting: Setting) -> Work:
    labels = {
        "task": panel.task,
        "cohort_size": panel.cohort_size,
        "epsilon": panel.epsilon,
        "compression_rate": compression_rate,
        "seed": seed,
    }
    flags = {
        **_problem(panel, setting.scale),
        **({"accountant": panel.accountant} if panel.accountant else {}),
        "cohort_size": panel.cohort_size,
        "epsilon": panel.epsilon,
        "seed": seed,
    }
    if compression_rate == 1:
        flags["mechanism"] = mechanisms.Gaussian.name
    else:
        flags["mechanism"] = mechanisms.L2Csgm.name
        flags["compression_rate"] = compression_rate
    return training_work(labels, flags, setting)


def grid(name: str) -> Grid:
    """Returns the grid of one of the figures in `PANELS`."""

    def runs(setting: Setting) -> list[Work]:
        return [
            _work(panel, rate, seed, setting)
            for panel in PANELS[name][setting.scale]
            for rate in (1, *COMPRESSION_RATES[setting.scale])
            for seed in SEEDS[setting.scale]
        ]

    return runs


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
