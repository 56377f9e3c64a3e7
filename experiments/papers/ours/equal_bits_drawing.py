# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Final accuracy against bits up, a color for each mechanism."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl import tasks

from .. import beyond, plotting
from ..rows import Row, Rows, distinct, mean_and_range, numbers, where
from ..sweep import Drawing
from .equal_bits_grid import EPSILON, PROBLEMS, Problem

_ARROW = beyond.arrow(is_above=True)
# Bits within this ratio count as equal, and how many times the next one's place is.
_EQUAL = 1.01
_NEXT = 1.05


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


def _beside(
    lines: Mapping[str, list[plotting.Point]],
) -> dict[str, list[plotting.Point]]:
    """Returns points of several lines, those of equal bits side by side."""
    places = sorted(point[0] for points in lines.values() for point in points)
    found: dict[str, list[plotting.Point]] = {name: [] for name in lines}
    while places:
        near = [place for place in places if place < places[0] * _EQUAL]
        places = places[len(near) :]
        group = [
            (name, point)
            for name, points in lines.items()
            for point in points
            if point[0] in near
        ]
        for number, (name, (place, *reach)) in enumerate(group):
            away = _NEXT ** (number - (len(group) - 1) / 2)
            found[name].append((place * away, *reach))
    return {name: sorted(points) for name, points in found.items()}


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
    lines = {
        name: _points(where(rows, mechanism=name), measure.final_column)
        for name in problem.curves
        if where(rows, mechanism=name)
    }
    found: list[plotting.Drawn] = []
    for name, points in _beside(lines).items():
        title = _curve_title(problem, name, points)
        # The star is not to be hidden.
        front = 3 if name == "gaussian" else 2
        plotting.ranges(axis, points, title, zorder=front, **plotting.look(name))
        found += [(point, plotting.STYLES[name][0]) for point in points]
    axis.set(
        xscale="log",
        xlabel="bits up a parameter, client and round, helpers' included; "
        "equal ones side by side",
        ylabel=f"final {measure.label}, {less} is better",
    )
    if problem.most_shown is not None:
        axis.set_ylim(top=problem.most_shown)
        beyond.name_beyond(axis, found, is_above=True)
    is_cut = any(_is_beyond(problem, points) for points in lines.values())
    arrow = f"; {_ARROW}: beyond the axis" if is_cut else ""
    axis.set_title(_title(rows, problem) + arrow)
    # So that the axis has two numbers and more.
    axis.set_xlim(left=min(axis.get_xlim()[0], 0.095))
    plotting.plain_numbers(axis)
    picture.legend(
        loc="outside lower center", ncol=3, title="mechanism, how clients are chosen"
    )
    return picture


def _is_beyond(problem: Problem, points: Sequence[plotting.Point]) -> bool:
    """Returns whether a mean is beyond what the axis shows."""
    most = problem.most_shown
    return most is not None and any(mean > most for _, mean, _, _ in points)


def _curve_title(problem: Problem, name: str, points: Sequence[plotting.Point]) -> str:
    """Returns what the legend calls a curve, and that the arrow is its own."""
    title = problem.curves[name].title
    return f"{title} {_ARROW}" if _is_beyond(problem, points) else title


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
