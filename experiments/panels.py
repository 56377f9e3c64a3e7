# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Panels of a drawing: lines of means with their ranges.

    plot = Plot("rounds", "method", y="loss")
    counts = panels.draw(axis, plot, rows, "loss")

`plotting` puts panels into pictures.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpfl import files, privacy_coverage

from . import effects, tables
from .tables import HEADS, Row, Rows, distinct, head, mean_and_range, numbers

# Color and marker of each mechanism, by its name in a grid and in the papers.
# Color-blind safe (Okabe and Ito); related mechanisms share a color, and markers
# distinguish them in grey too.
STYLES: Mapping[str, tuple[str, str]] = {
    row["name"]: (row["color"], row["marker"])
    for row in files.read_csv(Path(__file__).with_name("styles.csv"))
}
# Colors of lines that are not mechanisms (Tol's muted colors).
_COLORS = ("#332288", "#cc6677", "#44aa99", "#999933", "#aa4499", "#88ccee", "#117733")
_MARKERS = "o^svDPX*"
_DASHES = ("-", "--", ":", "-.")
# Number of points beyond which a line has no markers, and a band for its range.
_MOST_MARKED = 24
# Distance between the dots of series, as a share of that between names.
_APART = 0.16
_HEADS = {**HEADS, "noise_multiplier": "noise multiplier z"}
# Most places of an axis with a tick at each.
_FEW_PLACES = 4
# The same in a grid of a user's own.
_MOST_RATES = 8


@dataclasses.dataclass(frozen=True)
class Plot:
    """The drawing of the rows of a figure.

    Attributes:
      x: Column of the x axis. If its values are words, they label the rows of the y
        axis, and the metric is on the x axis.
      series: Columns, separated by spaces, that distinguish lines; the first sets the
        color.
      panels: Columns, separated by spaces, that distinguish panels.
      y: Columns, separated by spaces, that are drawn in panels of their own; if empty
        the metric of the rows' task.
      by: Column that distinguishes points of a line if `x` is measured.
      rows: Function from the rows of the table to those that are drawn.
      log: Which of the axes "x" and "y" are logarithmic.
      error: Column of the standard error of the first `y`, of which two are drawn each
        way; if empty the range over rows is drawn.
      beside: Column of a dashed line beside each line, such as its theory.
      titles: Texts of labels, by value, for legends and panels.
      shown: Values of the first of `series` that are drawn; all if empty.
      place: Column with the label of a panel's x axis; the title of `x` if empty.
      baseline: Value of `series` whose line is 0; the others are drawn as differences
        from it, with their 95% intervals, of accuracies in points.
      interval: Whether means have their 95% intervals over seeds instead of ranges.
      note: Column of a text beside each point, or in the legend of a line across the
        panel.
    """

    x: str
    series: str = ""
    panels: str = ""
    y: str = ""
    by: str = ""
    rows: Callable[[Rows], Rows] = list
    log: str = ""
    error: str = ""
    beside: str = ""
    titles: Mapping[str, str] = dataclasses.field(default_factory=dict)
    shown: Sequence[str] = ()
    place: str = ""
    baseline: str = ""
    interval: bool = False
    note: str = ""


def grouped(
    rows: Rows, names: Sequence[str]
) -> list[tuple[tuple[str, ...], list[Row]]]:
    """The rows with equal values of some columns, by these values."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(n, "") for n in names), []).append(row)
    return list(groups.items())


def _is_finite(row: Row, column: str) -> bool:
    return math.isfinite(tables.number(row.get(column) or "nan"))


def _places(rows: Rows, column: str) -> set[float]:
    """The finite numbers of a column."""
    return set(filter(math.isfinite, numbers(rows, column)))


def is_named(plot: Plot, rows: Rows) -> bool:
    """Whether places are names rather than numbers."""
    return any(math.isnan(tables.number(row[plot.x])) for row in rows)


def words_of(plot: Plot, names: str, key: Sequence[str]) -> str:
    """The labels of rows in words.

    Args:
      plot: The drawing.
      names: Columns, separated by spaces.
      key: Their values.
    """
    parts = []
    for name, value in zip(names.split(), key):
        number = tables.number(value)
        if value in plot.titles or not value:
            parts.append(plot.titles.get(value, ""))
        elif math.isnan(number):
            parts.append(value)
        elif math.isinf(number):
            parts.append("no noise")
        else:
            parts.append(f"{_head(name)} {number:g}")
    return ", ".join(filter(None, parts))


def _scale(column: str) -> int:
    """The factor of a column: differences of accuracies are in points."""
    return 100 if column.endswith("accuracy") else 1


def _head(column: str) -> str:
    return _HEADS.get(column) or head(column)


def draw(axis: Any, plot: Plot, rows: Rows, column: str) -> set[int]:
    """Draws the lines of a panel; returns the numbers of seeds of its points.

    Args:
      axis: The panel, as matplotlib has it.
      plot: The drawing.
      rows: The panel's rows.
      column: The column that is drawn.
    """
    counts: set[int] = set()
    names = distinct(rows, plot.x)
    named = is_named(plot, rows)
    lines = grouped(rows, plot.series.split())
    plain = zip(itertools.cycle(_COLORS), itertools.cycle(_MARKERS))
    seen: dict[str, int] = {}
    if plot.shown:
        lines = [line for line in lines if line[0][0] in plot.shown]
    for number, (key, own) in enumerate(lines):
        words = key[0].split(",")[0] if key else ""
        style = STYLES.get(words) or STYLES.get(words.split("_")[0]) or next(plain)
        step = seen[style[0]] = seen.get(style[0], -1) + 1
        look: dict[str, Any] = {"color": style[0], "marker": style[1]}
        look |= {"ls": _DASHES[step % 4], **({"mfc": "white"} if step else {})}
        label = words_of(plot, plot.series, key) or None
        if plot.baseline and plot.baseline in key:
            axis.axhline(0, color=look["color"], ls=":", lw=1.2, label=label)
            continue
        notes = {row[plot.x]: row.get(plot.note, "") for row in own}
        across = [
            note for place, note in notes.items() if math.isinf(tables.number(place))
        ]
        if label and any(across):
            label = f"{label} ({across[0]})"
        drawn = list(_points(plot, own, column, rows))
        counts.update(seeds for seeds, *_ in drawn)
        points = [point for _, *point in drawn]
        if named:
            away = _APART * (number - (len(lines) - 1) / 2)
            shown = [(names.index(place) + away, *reach) for place, *reach in points]
            if shown:
                heights, means, down, up = zip(*shown)
                dots = {**look, "ls": "", "elinewidth": 1, "label": label}
                axis.errorbar(means, heights, xerr=(down, up), **dots)
        else:
            shown = sorted((tables.number(place), *reach) for place, *reach in points)
            reach = "95% interval" if plot.interval else "range"
            _draw_line(axis, shown, label, look, reach)
            for place, mean, *_ in points:
                if notes.get(place) and math.isfinite(tables.number(place)):
                    written = {"color": look["color"], "fontsize": 7}
                    written |= {"xytext": (5, 5), "textcoords": "offset points"}
                    axis.annotate(notes[place], (float(place), mean), **written)
        if plot.beside:
            own = [row for row in own if row[plot.beside]]
            places, values = numbers(own, plot.x), numbers(own, plot.beside)
            axis.plot(places, values, color=look["color"], ls="--", lw=1)
    is_accuracy = _scale(column) != 1
    what = _head(column)
    if any(row.get(f"{privacy_coverage.MARK}{column}") for row in rows):
        what = f"exact {what}"
    if named:
        axis.set_yticks(range(len(names)), [plot.titles.get(n, n) for n in names])
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.set_xlabel(what)
    else:
        base = words_of(plot, plot.series, [plot.baseline])
        over = "points gained over" if is_accuracy else f"{what} less that of"
        place = rows[0][plot.place] if plot.place else _head(plot.x)
        axis.set(xlabel=place, ylabel=f"{over} {base}" if base else what)
        for way in plot.log:
            axis.set(**{f"{way}scale": "log"})
        _plain_numbers(axis)
        most = _MOST_RATES if plot.interval else _FEW_PLACES
        if len(ticks := _places(rows, plot.x)) <= most and not plot.by:
            axis.set_xticks(sorted(ticks), minor=False)
            axis.set_xticks([], minor=True)
    if plot.interval and is_accuracy:
        # An interval of shares may reach beyond what a share can be.
        way, (low, high) = ("x", axis.get_xlim()) if named else ("y", axis.get_ylim())
        axis.set(**{f"{way}lim": (max(low, 0), min(high, 1))})
    return counts


def _points(
    plot: Plot, rows: Rows, column: str, beside: Rows
) -> Iterator[tuple[Any, ...]]:
    """Seeds, place, mean, and reach down and up, of each point.

    With a baseline, the mean is the difference from it, with its interval.
    """
    names = [*plot.series.split(), plot.by or plot.x]
    beside = [row for row in beside if _is_finite(row, column)]
    bases = [key for key, _ in grouped(beside, names) if plot.baseline in key]
    cells = effects.by_seed(
        (key, row["seed"], float(row[column]))
        for key, own in (grouped(beside, names) if plot.baseline else ())
        for row in own
    )
    for _, group in grouped(rows, [plot.by or plot.x]):
        own = [row for row in group if _is_finite(row, column)]
        if not own:
            continue
        mean, down, up = mean_and_range(own, column)
        seeds = len({row.get("seed") for row in own})
        if plot.interval:
            reach = effects.mean({row["seed"]: float(row[column]) for row in own})
            half = mean - reach.low
            down = up = half if math.isfinite(half) else 0.0
        if plot.baseline and bases:
            key = tuple(own[0].get(name, "") for name in names)
            # The baseline at the same place, unless it is a single point.
            base = next((one for one in bases if one[-1] == key[-1]), bases[0])
            effect = effects.effect(cells, [(key, base)])
            if math.isinf(effect.high):
                continue
            seeds = effect.seeds
            mean = _scale(column) * effect.size
            down = mean - _scale(column) * effect.low
            up = _scale(column) * effect.high - mean
        if plot.error and column == plot.y.split()[0]:
            down = up = 2 * float(own[0][plot.error])
        place = own[0][plot.x]
        if plot.by and any(row[plot.x] != place for row in own):
            place = str(sum(numbers(own, plot.x)) / len(own))
        yield seeds, place, mean, down, up


def _draw_line(
    axis: Any,
    points: Sequence[tuple[float, ...]],
    label: Any,
    look: Mapping[str, Any],
    reach_head: str,
) -> None:
    """Draws a line through means; one without a finite place crosses the panel."""
    across = [point for point in points if math.isinf(point[0])]
    finite = [point for point in points if math.isfinite(point[0])]
    for _, mean, below, above in across:
        axis.axhline(mean, color=look["color"], ls=":", lw=1.2, label=label)
        low, high = mean - below, mean + above
        words = f"{reach_head} of {label}" if label and low < high else None
        axis.axhspan(low, high, color=look["color"], alpha=0.06, lw=0, label=words)
    if not finite:
        return
    places, means, down, up = zip(*finite)
    if len(finite) <= _MOST_MARKED:
        # Without ranges the legend has no bars either.
        reach = (down, up) if any(down + up) else None
        axis.errorbar(places, means, yerr=reach, elinewidth=1, label=label, **look)
        return
    axis.plot(places, means, color=look["color"], ls=look["ls"], label=label)
    lowest = [mean - reach for mean, reach in zip(means, down)]
    highest = [mean + reach for mean, reach in zip(means, up)]
    axis.fill_between(places, lowest, highest, color=look["color"], alpha=0.15, lw=0)


def _plain_numbers(axis: Any) -> None:
    """Labels logarithmic axes without powers, if there are few numbers."""
    from matplotlib import ticker

    for way in (axis.xaxis, axis.yaxis):
        low, high = way.get_view_interval()
        if way.get_scale() == "log" and low >= 5e-4 and high <= 2e4:
            few = (1.0,) if high > 20 * low else (1.0, 2.0, 4.0)
            way.set_major_locator(ticker.LogLocator(subs=few))
            way.set_major_formatter(ticker.FormatStrFormatter("%g"))
            way.set_minor_formatter(ticker.NullFormatter())
