# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Dots with ranges for each mechanism and budget, and the rates that were tried."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl import tasks

from .. import beyond, plotting
from ..rows import (
    Rows,
    distinct,
    mean_and_range,
    numbers,
    parameters,
    seeds,
    short,
    where,
)
from ..sweep import Drawing, Grid, Setting
from .comparison_grid import COMPARISONS, TITLES, TUNED_AT


def budget_label(epsilon: str) -> str:
    """Returns a budget in words."""
    if math.isinf(float(epsilon)):
        return "no noise"
    return rf"$\varepsilon$={float(epsilon):g}"


def kind(name: str) -> str:
    """Returns whose color a mechanism of the comparison has, a key of its STYLES."""
    first = name.split("_")[0]
    return {"l2": "l2_csgm", "sketched": "sketched_ddg"}.get(first, first)


def budget_marker(epsilon: str, found: Sequence[str]) -> dict[str, Any]:
    """Returns how a budget is told: hollow without noise, else by the marker's form."""
    if math.isinf(float(epsilon)):
        return {"marker": "o", "mfc": "none"}
    return {"marker": "os^D"[found.index(epsilon)]}


def budgets(rows: Rows) -> list[str]:
    """Returns the budgets in rows, the smallest first."""
    return sorted(distinct(rows, "epsilon"), key=float)


def bits(rows: Rows) -> str:
    """Returns the bits of a parameter up and down, in words.

    Where a budget is finite they are the mean over such runs: DOME sends more
    directions down under noise.
    """
    private = [row for row in rows if math.isfinite(float(row["epsilon"]))]
    up, down = (
        mean_and_range(private or rows, f"{way}link_bits_per_parameter")[0]
        for way in ("up", "down")
    )
    return f"{short(up)} up, {short(down)} down"


def shared(rows: Rows, grid: Grid, scale: str) -> str:
    """Returns what the runs of one task share, in words.

    Args:
      rows: Of the task.
      grid: Of the figure, whose runs have as many clients a round on a task.
      scale: Of the grid.
    """
    task = rows[0]["task"]
    works = [work for work in grid(Setting(scale)) if work.labels["task"] == task]
    words = [task, f"{works[0].settings['cohort_size']} clients a round"]
    found = budgets(rows)
    # The legend has them where there are more.
    words += [budget_label(found[0])] if len(found) == 1 else []
    return f"{', '.join(words)}\n{parameters(rows)}"


def dots(
    axis: Any, rows: Rows, titles: Mapping[str, str], title: str, *, with_bits: bool
) -> None:
    """Draws a line for each mechanism, a dot with its range for each budget.

    Args:
      axis: A panel; the legend has what is labelled in it, and budgets if there are
        many.
      rows: Of one task.
      titles: What a line is called, by the mechanism's name in a row.
      title: Of the panel.
      with_bits: Whether lines say how many bits a parameter takes.
    """
    from matplotlib import ticker

    measure = tasks.task_entry(rows[0]["task"]).measure
    shown = [name for name in titles if where(rows, mechanism=name)]
    found = budgets(rows)
    for i, epsilon in enumerate(found):
        look = budget_marker(epsilon, found)
        for line, name in enumerate(shown):
            runs = where(rows, mechanism=name, epsilon=epsilon)
            if runs:
                mean, down, up = mean_and_range(runs, measure.final_column)
                axis.errorbar(
                    [mean],
                    [line + 0.18 * (i - (len(found) - 1) / 2)],
                    xerr=[[down], [up]],
                    color=plotting.STYLES[kind(name)][0],
                    ls="",
                    elinewidth=1,
                    **look,
                )
        if len(found) > 1:
            label = budget_label(epsilon)
            axis.plot([], [], color="0.3", ls="", label=label, **look)
    names = [
        f"{titles[name]}\n{bits(where(rows, mechanism=name))}"
        if with_bits
        else titles[name]
        for name in shown
    ]
    axis.set_yticks(range(len(shown)), names)
    axis.set_ylim(len(shown) - 0.5, -0.5)
    axis.set_xlabel(f"final {measure.label}")
    # More would touch at the width of a page.
    axis.xaxis.set_major_locator(ticker.MaxNLocator(6))
    handles, labels = axis.get_legend_handles_labels()
    axis.set_title(title, pad=26 if labels else None)
    if labels:
        # Between title and panel, where no dot is.
        place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}
        axis.legend(handles, labels, ncol=3, frameon=False, **place)


def draw(grid: Grid) -> Drawing:
    """Returns the drawing of a comparison, whose runs are those of a grid."""
    return functools.partial(_draw, grid)


def _draw(grid: Grid, rows: Rows, scale: str) -> Any:
    """Draws the comparison, a panel for each task, one above the other."""
    import matplotlib.pyplot as plt

    shown = distinct(rows, "task")
    heights = [
        1.5 + 0.4 * len(distinct(where(rows, task=task), "mechanism")) for task in shown
    ]
    # Side by side the names would leave no room for the dots.
    picture, axes = plt.subplots(
        len(shown),
        1,
        figsize=(7.0, 0.3 + sum(heights)),
        height_ratios=heights,
        squeeze=False,
    )
    for axis, task in zip(axes.flat, shown):
        own = where(rows, task=task)
        dots(axis, own, TITLES, shared(own, grid, scale), with_bits=True)
    picture.suptitle(f"bits of a parameter, client and round; {seeds(rows)}")
    picture.tight_layout()
    return picture


def _tuning_looks(rows: Rows) -> dict[str, dict[str, Any]]:
    """Returns how the lines of each mechanism of one task look."""
    shown = [name for name in TITLES if where(rows, mechanism=name)]
    looks = {}
    for name in shown:
        akin = [other for other in shown if kind(other) == kind(name)]
        looks[name] = plotting.look(kind(name), akin.index(name))
        if len(akin) > 1:
            shade = plotting.shade(kind(name), akin.index(name), len(akin))
            looks[name]["color"] = shade
    return looks


def _tried(
    axis: Any, rows: Rows, name: str, look: Mapping[str, Any], column: str
) -> list[plotting.Point]:
    """Draws a line for each clip of a mechanism, and returns its points."""
    found: list[plotting.Point] = []
    for clip, marker in zip(distinct(rows, "clip_norm"), "os"):
        line = where(rows, clip_norm=clip)
        places, values = numbers(line, "server_lr"), numbers(line, column)
        label = f"{TITLES[name]}, clip {float(clip):g}"
        axis.plot(places, values, label=label, **{**look, "marker": marker, "ms": 4})
        found += [(x, y, 0.0, 0.0) for x, y in zip(places, values)]
    return found


def _ring(
    axis: Any, rows: Rows, choice: tuple[float, float], color: str, column: str
) -> None:
    """Draws a ring around the run of one clip and server rate, if it was made."""
    for row in rows:
        if (float(row["clip_norm"]), float(row["server_lr"])) == choice:
            place = float(row["server_lr"]), float(row[column])
            axis.plot(*place, "o", color=color, mfc="none", ms=11, mew=1.6)


def _end_axis(axis: Any, points: Sequence[plotting.Point]) -> str:
    """Ends the axis of a loss where runs are far from the best; says so in words."""
    shown = [mean for _, mean, _, _ in beyond.near(points, lower_is_better=True)]
    if len(shown) == len(points):
        return ""
    low, high = min(shown), max(shown)
    axis.set_ylim(top=high + 0.05 * (high - low))
    return f"; losses up to {max(mean for _, mean, _, _ in points):.1f} are beyond"


def draw_tuning(rows: Rows, scale: str) -> Any:
    """Draws the final measure over the server's rate, a line for each clip.

    A ring is around what was chosen, by runs at an earlier commit.
    """
    shown = distinct(rows, "task")
    picture, axes = plotting.panels(len(shown), 5.0, 6.4)
    for axis, task in zip(axes, shown):
        measure = tasks.task_entry(task).measure
        column = measure.final_column
        chosen = COMPARISONS[scale][task].chosen
        points: list[plotting.Point] = []
        for name, look in _tuning_looks(where(rows, task=task)).items():
            runs = where(rows, task=task, mechanism=name)
            points += _tried(axis, runs, name, look, column)
            if name in chosen:
                _ring(axis, runs, chosen[name], look["color"], column)
        cut = _end_axis(axis, points) if measure.lower_is_better else ""
        axis.set_title(task + cut)
        plotting.finish(
            axis,
            below=1,
            xscale="log",
            xlabel="server rate",
            ylabel=f"final {measure.label}",
        )
        axis.legend_.set(loc="upper left", bbox_to_anchor=(0, -0.2))
    budget = budget_label(str(TUNED_AT[0]))
    picture.suptitle(f"{budget}, one seed; rings: what was chosen at an earlier commit")
    picture.tight_layout()
    return picture
