# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Fig. 3: final accuracy over budgets; Fig. 6: accuracy in the second half."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl import tasks

from .. import beyond, plotting
from ..rows import Rows, distinct, mean_and_range, seeds, where
from .accuracy_grid import FINAL_EPSILON, FINAL_STREAMS, NO_NOISE, STREAMS
from .methods import TITLES

_STREAM_TITLES = {
    **{(method, "constant"): title for method, title in TITLES.items()},
    ("optimal", "constant"): "optimal, momentum in the matrix",
    ("optimal", "drop"): "optimal, momentum, rate drops",
    ("optimal", "cooldown"): "optimal, momentum, cooldown",
}
# Schedules of one matrix have its color; what tells them from a constant rate.
_SCHEDULES: Mapping[str, Mapping[str, Any]] = {
    "constant": {},
    "drop": {"marker": "s", "mfc": "white"},
    "cooldown": {"marker": "^", "mfc": "white"},
}
_LOOKS = {
    (method, schedule): {
        **plotting.look(method, list(_SCHEDULES).index(schedule)),
        **_SCHEDULES[schedule],
    }
    for method, schedule in STREAMS
}
_PANELS = {
    "rate constant over rounds": [s for s in STREAMS if s[1] == "constant"],
    "rate schedules in the matrix": [s for s in STREAMS if s[0] == "optimal"],
}
# Share of the training that Fig. 6 shows; the schedules change the last quarter.
_FINAL_PART = 0.5
# Inches below the panels in which the legend stands.
_LEGEND = 0.6


def _legend(picture: Any, axes: Sequence[Any]) -> None:
    """Draws one legend for all panels below them, where it hides no data."""
    found: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        found |= dict(zip(labels, handles))
    share = _LEGEND / picture.get_figheight()
    picture.tight_layout(rect=(0, share, 1, 1))
    if found:
        picture.legend(found.values(), found, loc="lower center", ncol=3)


def _rates(scale: str) -> str:
    """Returns what a title says of the server's rates."""
    return "each with its own server rate; " if scale == "medium" else ""


def _arrows(is_cut: bool) -> str:
    """Returns what a title says of arrows, if there are any."""
    return "; arrows: beyond the axis" if is_cut else ""


def draw_budgets(rows: Rows, scale: str) -> Any:
    """Draws constant rates on the left and schedules on the right.

    Each problem has a line of panels, whose axis leaves out what is far below the
    others, or above them where less is better, and writes it at its end.
    """
    import matplotlib.pyplot as plt

    problems = distinct(rows, "problem")
    picture, axes = plt.subplots(
        len(problems),
        len(_PANELS),
        figsize=(9.5, 3.3 * len(problems) + _LEGEND),
        sharey="row",
        squeeze=False,
    )
    is_cut = [
        _budgets(line, where(rows, problem=problem), problem)
        for line, problem in zip(axes, problems)
    ]
    beside = r"side by side at each $\varepsilon$"
    shown = f"{seeds(rows)}, {beside}{_arrows(any(is_cut))}"
    picture.suptitle(f"one pass; {_rates(scale)}{shown}")
    _legend(picture, axes.flat)
    return picture


def _budgets(line: Sequence[Any], rows: Rows, problem: str) -> bool:
    """Draws the panels of one problem; returns whether points are beyond their axis."""
    plain = where(rows, mechanism=NO_NOISE)
    budgets = [e for e in distinct(rows, "epsilon") if math.isfinite(float(e))]
    places = [float(e) for e in budgets]
    # How many times the budget before the next one is.
    step = min((b / a for a, b in zip(places, places[1:])), default=1.0)
    measure = tasks.task_entry(problem).measure
    found: list[plotting.Drawn] = []
    for axis, (title, streams) in zip(line, _PANELS.items()):
        for number, stream in enumerate(streams):
            runs = where(rows, mechanism=stream[0], schedule=stream[1])
            groups = {float(e): where(runs, epsilon=e) for e in budgets}
            points = plotting.range_points(groups, measure.final_column)
            look = _LOOKS[stream]
            if points:
                # Budgets are on a logarithmic axis.
                away = step ** plotting.aside(number, len(streams))
                shown = [(place * away, *reach) for place, *reach in points]
                plotting.ranges(axis, shown, _STREAM_TITLES[stream], **look)
                found += [(point, look["color"]) for point in points]
        if plain:
            best, below, above = mean_and_range(plain, measure.final_column)
            axis.axhline(
                best, color="k", ls=":", lw=1.2, label="no noise: mean and range"
            )
            axis.axhspan(best - below, best + above, color="k", alpha=0.06, lw=0)
            # A point of it keeps the line within the axis.
            found.append(((max(places), best, 0.0, 0.0), "k"))
        axis.set_title(f"{problem}, {title}")
        axis.set(xscale="log", xlabel=r"$\varepsilon$")
        axis.set_xticks(places, [f"{place:g}" for place in places], minor=False)
        axis.minorticks_off()
        # Room for what is written beside the least and the largest budget.
        axis.margins(x=0.08)
    less = measure.lower_is_better
    line[0].set_ylabel(f"final {measure.label}")
    return beyond.leave_out_far(line[0], found, lower_is_better=less)


def draw_final(rows: Rows, scale: str) -> Any:
    """Draws the final part of the training, a panel a problem, a line a stream."""
    problems = distinct(rows, "problem")
    picture, axes = plotting.panels(len(problems), 6, 4)
    is_cut = False
    for axis, problem in zip(axes, problems):
        measure = tasks.task_entry(problem).measure
        streams = {
            stream: where(
                rows, problem=problem, mechanism=stream[0], schedule=stream[1]
            )
            for stream in FINAL_STREAMS
        }
        lines = [
            plotting.Line(runs, _STREAM_TITLES[stream], _LOOKS[stream])
            for stream, runs in streams.items()
            if runs
        ]
        found = plotting.last_rounds(axis, lines, measure.column, _FINAL_PART)
        less = measure.lower_is_better
        is_cut |= beyond.leave_out_far(axis, found, lower_is_better=less)
        epsilon = rf"$\varepsilon$={FINAL_EPSILON[scale]:g}"
        axis.set_title(f"{problem}, one pass, {epsilon}")
        axis.set(xlabel="round", ylabel=measure.label)
    shown = f"{seeds(rows)}{_arrows(is_cut)}"
    picture.suptitle(f"second half of the rounds; {_rates(scale)}{shown}")
    _legend(picture, axes)
    return picture
