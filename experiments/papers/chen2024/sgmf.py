# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figs. 3, 7, 8: runs of uncompressed MF and of SGMF at equal epsilon."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any

from dpfl import mechanisms, tasks

from .. import medium, plotting
from ..result_rows import Rows, seeds, where
from ..sweep import Drawing, Grid, Setting, Work
from ..trainings import Problem

RATES = {"small": (1, 10, 100), "medium": (1, 10, 100), "paper": (1, 5, 10, 50, 100)}
SEEDS = {"small": (1, 2), "medium": medium.SEEDS, "paper": (1,)}
_DIGITS = Problem(
    "digits",
    {
        "task": "digits",
        "cohort_size": 10,
        "rounds": 40,
        "delta": 1e-3,
        "eval_every": 5,
    },
)
# Two epochs. Debian's Python comes without some modules and has 281 clients.
_DOCS = Problem(
    "docs",
    {
        "task": "docs",
        "cohort_size": 10,
        "rounds": 48,
        "rounds_per_epoch": 24,
        "delta": 1e-3,
        "eval_every": 8,
    },
)
# Six epochs of eight rounds.
_MNIST = Problem(medium.MNIST, {**medium.FLAGS[medium.MNIST], "cohort_size": 100})
# The paper's 16 epochs of 32 rounds of 100 clients.
_EMNIST = Problem(
    "emnist",
    {
        "flagfile": "tasks/emnist.flags",
        "cohort_size": 100,
        "rounds": 512,
        "rounds_per_epoch": 32,
        "delta": 1e-5,
        "eval_every": 8,
    },
)
# Clip and server rate of the two settings.
_WIDE = {"clip_norm": 1.0, "server_lr": 0.1}
_NARROW = {"clip_norm": 0.03, "server_lr": 0.5}


@dataclasses.dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
      problem: What is trained.
      epsilon: The budget.
    """

    problem: Problem
    epsilon: float


def _panels(
    problem: Problem, epsilons: Iterable[float], **flags: Any
) -> tuple[Panel, ...]:
    extended = Problem(problem.name, {**problem.flags, **flags})
    return tuple(Panel(extended, epsilon) for epsilon in epsilons)


PANELS: Mapping[str, Mapping[str, tuple[Panel, ...]]] = {
    "sgmf_fig3": {
        "small": (*_panels(_DIGITS, (8.0, 16.0)), *_panels(_DOCS, (8.0,))),
        "medium": _panels(_MNIST, (8.0,)),
        "paper": _panels(_EMNIST, (10.0,), **_WIDE),
    },
    "sgmf_fig7": {
        "small": _panels(_DIGITS, (8.0, 16.0), **_WIDE),
        "medium": _panels(_MNIST, (2.0, 4.0, 8.0, 16.0), **_WIDE),
        "paper": _panels(_EMNIST, (1.0, 3.0, 5.0, 10.0), **_WIDE),
    },
    "sgmf_fig8": {
        "small": _panels(_DIGITS, (8.0, 16.0), **_NARROW),
        "medium": _panels(_MNIST, (2.0, 4.0, 8.0, 16.0), **_NARROW),
        "paper": _panels(_EMNIST, (1.0, 3.0, 5.0, 10.0), **_NARROW),
    },
}


def cohort_size(problem: str, scale: str) -> int:
    """Returns how many clients a round of a problem has, in all figures of a scale."""
    (found,) = {
        int(panel.problem.flags["cohort_size"])
        for figure in PANELS.values()
        for panel in figure[scale]
        if panel.problem.name == problem
    }
    return found


def work(panel: Panel, rate: int, seed: int, setting: Setting) -> Work:
    """Returns one run; MF itself if the rate is 1."""
    labels = {"epsilon": panel.epsilon, "compression_rate": rate, "seed": seed}
    flags: dict[str, Any] = {"epsilon": panel.epsilon, "seed": seed}
    if rate == 1:
        flags["mechanism"] = mechanisms.MatrixFactorization.name
    else:
        flags["mechanism"] = mechanisms.Sgmf.name
        flags["compression_rate"] = rate
    return panel.problem.work(labels, flags, setting)


def grid(name: str) -> Grid:
    """Returns the grid of one of the figures in `PANELS`."""

    def runs(setting: Setting) -> list[Work]:
        return [
            work(panel, rate, seed, setting)
            for panel in PANELS[name][setting.scale]
            for rate in RATES[setting.scale]
            for seed in SEEDS[setting.scale]
        ]

    return runs


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
