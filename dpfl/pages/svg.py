# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Line charts as SVG text, for pages that must open without network.

    lines = [svg.Line("test set", points), svg.Line("training", others, 1, True)]
    figure = svg.chart(lines, "loss in training", "round", "loss")

matplotlib's SVG of the nine charts of a run's page takes a second and 109 kB, and has
colors of its own; these take 6 ms and 39 kB. Colors are the page's CSS variables --c0
to --c7 and --grid, light or dark.
"""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Sequence

WIDTH, HEIGHT = 360, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 12, 42
COLORS = 8
# Most points of a line, more than the eye sees: a long run must not make a page of
# megabytes.
MOST_POINTS = 300
_MOST_MARKERS = 40
_MOST_TICKS = 6
# Steps between ticks, as parts of a power of ten.
_STEPS = (1, 2, 2.5, 5, 10, 20, 50)

Point = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a chart: its label, its finite points (x, y), and its style."""

    label: str
    points: Sequence[Point]
    color: int = 0
    is_dashed: bool = False


@dataclasses.dataclass(frozen=True)
class _Axis:
    """Maps values from `low` to `high` to pixels from `begin` to `end`."""

    low: float
    high: float
    begin: float
    end: float
    is_logarithmic: bool = False

    def place(self, value: float) -> float:
        if self.is_logarithmic:
            span = math.log10(self.high / self.low)
            part = math.log10(value / self.low) / span
        else:
            part = (value - self.low) / (self.high - self.low)
        return round(self.begin + part * (self.end - self.begin), 1)

    @property
    def ticks(self) -> list[float]:
        if self.is_logarithmic:
            return _powers(self.low, self.high)
        return ticks(self.low, self.high)


def ticks(low: float, high: float) -> list[float]:
    """Two to six round values from `low` to `high`, which is greater."""
    unit = 10.0 ** math.floor(math.log10((high - low) / _MOST_TICKS))
    for step in (part * unit for part in _STEPS):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < _MOST_TICKS:
            break
    return [index * step for index in range(first, last + 1)]


def _powers(low: float, high: float) -> list[float]:
    """Powers of ten; if there are fewer than two, also their double and fivefold."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for parts in ((1,), (1, 2, 5)):
        ticks = [part * 10.0**e for e in exponents for part in parts]
        ticks = [value for value in ticks if low <= value * (1 + 1e-9) <= high * 1.001]
        if len(ticks) > 1:
            break
    return ticks


def _axis(
    values: Sequence[float], begin: float, end: float, is_logarithmic: bool
) -> _Axis:
    low, high = min(values), max(values)
    if is_logarithmic and low > 0:
        margin = max((high / low) ** 0.03, 1.02)
        return _Axis(low / margin, high * margin, begin, end, True)
    margin = 0.03 * (high - low) or 0.1 * abs(high) or 1.0
    return _Axis(low - margin, high + margin, begin, end)


def thinned(points: Sequence[Point]) -> list[Point]:
    """At most `MOST_POINTS` points, the first and the last among them."""
    count = len(points)
    if count <= MOST_POINTS:
        return list(points)
    last = MOST_POINTS - 1
    return [points[round(i * (count - 1) / last)] for i in range(MOST_POINTS)]


def _number(value: float) -> str:
    """The label of a tick."""
    if value and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}".replace("e+0", "e").replace("e-0", "e-").replace("+", "")
    return f"{value:.4g}"


def _text(
    x: float, y: float, content: str, more: str = "", anchor: str = "middle"
) -> str:
    text = html.escape(content)
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{more}>{text}</text>'


def _frame(across: _Axis, up: _Axis, x_label: str, y_label: str) -> list[str]:
    floor, right, middle = HEIGHT - _BOTTOM, WIDTH - _RIGHT, (HEIGHT - _BOTTOM) / 2
    parts = []
    for value in up.ticks:
        y = up.place(value)
        parts.append(f'<path class="grid" d="M{_LEFT} {y}H{right}"/>')
        parts.append(_text(_LEFT - 5, y + 3.5, _number(value), anchor="end"))
    for value in across.ticks:
        x = across.place(value)
        parts.append(f'<path class="grid" d="M{x} {_TOP}V{floor}"/>')
        parts.append(_text(x, floor + 14, _number(value)))
    parts.append(_text((_LEFT + right) / 2, HEIGHT - 8, x_label))
    turned = f' transform="rotate(-90 11 {middle})"'
    parts.append(_text(11, middle, y_label, turned))
    return parts


def _drawn(line: Line, across: _Axis, up: _Axis) -> str:
    """A line as SVG, with a dot at each point if there are few."""
    points = [(across.place(x), up.place(y)) for x, y in thinned(line.points)]
    color = f"var(--c{line.color % COLORS})"
    dash = ' stroke-dasharray="4 3"' if line.is_dashed else ""
    path = "M" + "L".join(f"{x} {y}" for x, y in points)
    parts = [f'<path class="line" stroke="{color}"{dash} d="{path}"/>']
    if len(points) <= _MOST_MARKERS:
        parts += [
            f'<circle cx="{x}" cy="{y}" r="2.2" fill="{color}"/>' for x, y in points
        ]
    return "".join(parts)


def _legend(lines: Sequence[Line]) -> str:
    """The legend of the colors, as HTML; empty for a single line."""
    if len(lines) < 2:
        return ""
    entries = "".join(
        f'<span><i style="border-color:var(--c{line.color % COLORS});'
        f'border-style:{"dashed" if line.is_dashed else "solid"}"></i>'
        f"{html.escape(line.label)}</span>"
        for line in lines
    )
    return f'<div class="legend">{entries}</div>'


def chart(
    lines: Sequence[Line],
    title: str,
    x_label: str,
    y_label: str,
    *,
    is_logarithmic: bool = False,
) -> str:
    """A line chart with a legend, as an HTML `figure`.

    Args:
      lines: The lines.
      title: Title above the chart.
      x_label: Label of the x axis.
      y_label: Label of the y axis.
      is_logarithmic: Whether the x axis is logarithmic; then every x must be above 0.
    """
    shown = [line for line in lines if line.points]
    if not shown:
        return ""
    x = [point[0] for line in shown for point in line.points]
    y = [point[1] for line in shown for point in line.points]
    across = _axis(x, _LEFT, WIDTH - _RIGHT, is_logarithmic)
    up = _axis(y, HEIGHT - _BOTTOM, _TOP, False)
    parts = _frame(across, up, x_label, y_label)
    parts += [_drawn(line, across, up) for line in shown]
    name = html.escape(title, quote=True)
    return (
        f"<figure><figcaption>{name}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}">'
        f"{''.join(parts)}</svg>{_legend(shown)}</figure>"
    )
