# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Final accuracy against bits up, a color for each mechanism."""

from __future__ import annotations

import functools
from typing import Any

from dpfl import tasks

from .. import beyond, plotting
from ..rows import Row, Rows, distinct, mean_and_range, numbers, where
from ..sweep import Drawing
from .equal_bits_grid import EPSILON, PROBLEMS, Problem

_ARROW = beyond.arrow(is_above=True)


def _points(rows: Rows, column: str) -> list[plotting.Point]:
    """Returns bits, mean and range of each point of a curve, from few bits to many."""
    groups: dict[str, list[Row]] = {}
    for name in distinct(rows, "point"):
        groups[name] = where(rows, point=name)
    found = []
    for runs in groups.values():
        bits = numbers(runs, "uplink_bits_per_parameter")
        found.append((sum(bits) / len(bits), *mean_and_range(runs, column)))
    return sorted(found)


def draw(name: str) -> Drawing:
    """Returns the drawing of one of the figures in `PROBLEMS`."""
    return functools.partial(_draw, PROBLEMS[name])


def _draw(problem: Problem, rows: Rows, scale: str) -> Any:
    """Draws a line for each mechanism, the range over seeds at each point."""
    import matplotlib.pyplot as plt

    del scale
    measure = tasks.task_entry(problem.task).measure
    less = "less" if measure.lower_is_better else "more"
    picture, axis = plt.subplots(figsize=(9.4, 5.6), layout="constrained")
    found: list[plotting.Drawn] = []
    has_arrow = False
    for name, curve in problem.curves.items():
        own = where(rows, mechanism=name)
        if not own:
            continue
        points = _points(own, measure.final_column)
        found += [(point, plotting.STYLES[name][0]) for point in points]
        places, means, down, up = zip(*points)
        most = problem.most_shown
        is_beyond = most is not None and max(means) > most
        # The legend says whose arrow it is.
        has_arrow |= is_beyond
        axis.errorbar(
            places,
            means,
            yerr=(down, up),
            elinewidth=1,
            # The star is not to be hidden.
            zorder=3 if name == "gaussian" else 2,
            label=f"{curve.title} {_ARROW}" if is_beyond else curve.title,
            **plotting.look(name),
        )
    axis.set(
        xscale="log",
        xlabel="bits up a parameter, client and round, helpers' included",
        ylabel=f"final {measure.label}, {less} is better",
    )
    if problem.most_shown is not None:
        axis.set_ylim(top=problem.most_shown)
        beyond.name_beyond(axis, found, is_above=True)
    arrow = f"; {_ARROW}: beyond the axis" if has_arrow else ""
    axis.set_title(_title(rows, problem) + arrow)
    plotting.plain_numbers(axis)
    picture.legend(
        loc="outside lower center", ncol=3, title="mechanism, how clients are chosen"
    )
    return picture


def _title(rows: Rows, problem: Problem) -> str:
    """Returns what all curves share, and over how many seeds each point speaks."""
    counts = {
        len(where(rows, mechanism=row["mechanism"], point=row["point"])) for row in rows
    }
    least, most = min(counts), max(counts)
    count = f"{most}" if least == most else f"{least} to {most}"
    word = "seed" if count == "1" else "seeds"
    budget = rf"$\varepsilon$={EPSILON:g}"
    return f"{problem.title}, {budget}; mean and range of {count} {word}"
