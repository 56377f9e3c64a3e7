# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Final test loss, a line for each way to choose clients and draw noise."""

from __future__ import annotations

from typing import Any

from dpfl import tasks

from .. import plotting
from ..rows import Rows, mean_and_range, numbers, seeds, where
from .stream_training_grid import EPSILON, PANELS, SHARED

# Of a line beside a panel.
_LONGEST = 28


def _seeds(rows: Rows) -> str:
    """Returns that each seed is shown too, in words."""
    return seeds(rows).replace(" and range of", ", range and each of")


def _title(name: str, way: str) -> str:
    """Returns mechanism and way; a long one has the way in a line of its own."""
    words = f"{plotting.TITLES[name]}, {way}"
    return words if len(words) <= _LONGEST else words.replace(", ", ",\n", 1)


def draw(rows: Rows, scale: str) -> Any:
    """Draws a panel without and one with compression: each seed, and their mean."""
    from matplotlib import ticker

    del scale
    picture, axes = plotting.panels(len(PANELS), 4.9, 3.4, sharex=True)
    # More would touch at the width of a page.
    axes[0].xaxis.set_major_locator(ticker.MaxNLocator(4))
    measure = tasks.task_entry("docs").measure
    for axis, (rate, panel) in zip(axes, PANELS.items()):
        lines = [(name, way) for name, (_, ways) in panel.items() for way in ways]
        for line, (name, way) in enumerate(lines):
            runs = where(rows, mechanism=name, way=way, rate=rate)
            if runs:
                _line(axis, line, runs, plotting.STYLES[name], measure.final_column)
        names = [_title(name, way) for name, way in lines]
        axis.set_yticks(range(len(lines)), names)
        axis.set_ylim(len(lines) - 0.5, -0.5)
        axis.margins(x=0.1)
        axis.set_xlabel(f"final {measure.label}")
        title = "all coordinates" if rate == 1 else f"{rate}-fold compression"
        axis.set_title(title)
    picture.suptitle(
        rf"docstrings of packages, {SHARED['cohort_size']} clients a round, "
        rf"$\varepsilon$={EPSILON:g}, $\delta=N^{{-1.1}}$; {_seeds(rows)}",
    )
    picture.tight_layout()
    return picture


def _line(
    axis: Any, line: int, runs: Rows, style: tuple[str, str], column: str
) -> None:
    color, marker = style
    mean, down, up = mean_and_range(runs, column)
    axis.errorbar([mean], [line], xerr=[[down], [up]], fmt=marker, color=color, ms=7)
    axis.plot(numbers(runs, column), [line] * len(runs), "|", color=color, ms=9)
    axis.annotate(
        f"{mean:.3f}",
        (mean, line),
        (0, 8),
        textcoords="offset points",
        ha="center",
        fontsize=9,
    )
