# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Points beyond the end of an axis: which are left out, and how a panel says them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from .plotting import Drawn, Point

# Points as far as so many times the median distance from the best are drawn; others
# would leave no room to tell these apart.
_FAR = 5.0
# In points: the height of a line of text, and what is white around it. A line that
# leaves the panel ends at the text then, and has no stub between text and axis.
_LINE = 12
_WHITE = 2


def near(points: Sequence[Point], *, lower_is_better: bool) -> list[Point]:
    """Returns the points that are near enough to the best one to be drawn.

    A point is far by its mean, or by the worst of its runs: the range of that run would
    set the axis all the same.

    Args:
      points: One at least.
      lower_is_better: Whether means are far above the best, or far below it.
    """
    sign = 1 if lower_is_better else -1
    best = min(sign * mean for _, mean, _, _ in points)
    means = [sign * mean - best for _, mean, _, _ in points]
    reaches = [up if lower_is_better else down for _, _, down, up in points]
    worst = [mean + reach for mean, reach in zip(means, reaches)]
    most_mean, most_worst = (
        _FAR * statistics.median(distances) for distances in (means, worst)
    )
    return [
        point
        for point, mean, end in zip(points, means, worst)
        if mean <= most_mean and end <= most_worst
    ]


def leave_out_far(axis: Any, drawn: Sequence[Drawn], *, lower_is_better: bool) -> bool:
    """Ends an axis where points are far from the best, and writes those beyond it.

    Args:
      axis: A panel.
      drawn: What is drawn in it, and in panels that share its axis.
      lower_is_better: Whether means are far above the best, or far below it.

    Returns:
      Whether any are.
    """
    if not drawn:
        return False
    points = [point for point, _ in drawn]
    shown = near(points, lower_is_better=lower_is_better)
    if len(shown) == len(points):
        return False
    low = min(mean - down for _, mean, down, _ in shown)
    high = max(mean + up for _, mean, _, up in shown)
    # Room for what is written.
    wide, narrow = 0.25 * (high - low), 0.05 * (high - low)
    below, above = (narrow, wide) if lower_is_better else (wide, narrow)
    axis.set_ylim(low - below, high + above)
    name_beyond(axis, drawn, is_above=lower_is_better)
    return True


def arrow(*, is_above: bool) -> str:
    """Returns the arrow before what is beyond the upper limit, or the lower one."""
    return "\u2191" if is_above else "\u2193"


def name_beyond(axis: Any, drawn: Sequence[Drawn], *, is_above: bool) -> None:
    """Writes at the axis's end, with an arrow, what is beyond it.

    That is the mean of a point, or where its range ends if the mean is within.

    Args:
      axis: A panel, whose limits are set.
      drawn: Points and their colors.
      is_above: Whether the upper limit is meant.
    """
    written: dict[float, int] = {}
    for point, color in drawn:
        said = _beyond(axis, point, is_above=is_above)
        if said:
            place = point[0]
            line = written.setdefault(place, 0)
            written[place] += 1
            text = f"{arrow(is_above=is_above)} {said}"
            _write(axis, place, line, text, color, is_above=is_above)


def _beyond(axis: Any, point: Point, *, is_above: bool) -> str:
    """Returns what of a point is beyond a limit of the axis, or nothing."""
    limit = axis.get_ylim()[is_above]
    _, mean, down, up = point
    end = mean + up if is_above else mean - down
    for text, value in ((f"{mean:.3f}", mean), (f"to {end:.3f}", end)):
        if value > limit if is_above else value < limit:
            return text
    return ""


def _write(
    axis: Any, place: float, line: int, text: str, color: str, *, is_above: bool
) -> None:
    """Writes text beside a place at the end of the axis, on the side that has room."""
    x, _ = axis.transLimits.transform(
        axis.transScale.transform((place, axis.get_ylim()[0]))
    )
    is_left = x > 0.5
    away = _WHITE + _LINE * line
    axis.annotate(
        text,
        xy=(place, int(is_above)),
        xycoords=axis.get_xaxis_transform(),
        xytext=(-4 if is_left else 4, -away if is_above else away),
        textcoords="offset points",
        ha="right" if is_left else "left",
        va="top" if is_above else "bottom",
        color=color,
        fontsize=9,
        bbox={"facecolor": "w", "lw": 0, "pad": _WHITE},
        # Above lines and below the axis itself.
        zorder=2.4,
    )
