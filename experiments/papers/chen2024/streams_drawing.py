# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Streams over a whole run: errors over the rounds, and over the number of bands."""

from __future__ import annotations

from typing import Any

from .. import plotting
from ..rows import Row, Rows, distinct, numbers, where
from .streams_grid import COHORT_SIZE, EPOCHS, PANELS, POPULATION, SLOTS, STREAM

_NAMES = {1: ("GM", "MF"), 100: ("CSGM", "SGMF")}
# Of which rounds the error over the number of bands is shown.
_SHOWN_ROUNDS = 512


def least(rows: Rows) -> list[Row]:
    """Returns the stream of least error of each number of rounds."""
    streams = where(rows, method=STREAM)
    return [
        min(where(streams, rounds=rounds), key=lambda row: float(row["error"]))
        for rounds in distinct(streams, "rounds")
    ]


def _ratios(shown: Rows, rows: Rows) -> list[float]:
    """Returns errors over those of independent noise with Poisson sampling."""
    poisson = {
        row["rounds"]: float(row["error"])
        for row in where(rows, method=STREAM, bands=1)
    }
    return [float(row["error"]) / poisson[row["rounds"]] for row in shown]


def _draw_rounds(axis: Any, rows: Rows, rate: int, epsilon: float) -> None:
    """Draws one panel: the ways of adding noise over the rounds."""
    independent, correlated = _NAMES[rate]
    streams = where(rows, method=STREAM)
    most = max(numbers(streams, "bands"))
    lines = [
        (independent, "Poisson sampling", where(streams, bands=1)),
        (independent, "random slots", where(rows, method=SLOTS)),
        (correlated, "by epochs", where(rows, method=EPOCHS)),
        (correlated, "one stream", where(streams, bands=int(most))),
        (correlated, "one stream, cyclic", least(rows)),
    ]
    steps = (0, 1, 2, 1, 0)
    for marker, step, (name, way, shown) in zip("osv^*", steps, lines):
        look = {**plotting.look(name, step), "marker": marker, "ms": 5}
        x = numbers(shown, "rounds")
        label = f"{plotting.TITLES[name]}, {way}"
        axis.plot(x, _ratios(shown, rows), label=label, **look)
    places = [int(rounds) for rounds in distinct(rows, "rounds")]
    plotting.finish(axis, legend=8, xscale="log", xlabel="rounds T")
    # Room for the legend above the lines.
    axis.set_ylim(top=1.5 * axis.get_ylim()[1])
    axis.set_xticks(places, [str(place) for place in places])
    axis.minorticks_off()
    axis.set_title(
        ("all coordinates" if rate == 1 else f"{rate}-fold compression")
        + rf", $\varepsilon={epsilon:g}$",
    )


def _draw_bands(axis: Any, rows: Rows, rate: int, epsilon: float, step: int) -> None:
    """Draws the curve of one run over its bands."""
    name = _NAMES[rate][1]
    label = rf"{plotting.TITLES[name]}, $\varepsilon={epsilon:g}$"
    axis.plot(
        numbers(rows, "bands"),
        _ratios(rows, rows),
        label=label,
        **plotting.look(name, step),
    )


def _finish_bands(axis: Any, shown: Rows) -> None:
    """Sets the labels of the panel over the bands; its ticks are powers of two."""
    plotting.finish(axis, xscale="log", xlabel="bands h of C")
    places = sorted({int(row["bands"]) for row in shown})
    places = [place for place in places if place & (place - 1) == 0]
    axis.set_xticks(places, [str(place) for place in places])
    axis.minorticks_off()


def draw(rows: Rows, scale: str) -> Any:
    """Draws a panel of each rate and budget, and one over the number of bands."""
    del scale
    picture, axes = plotting.panels(len(PANELS) + 1, 4.2, 3.8)
    for axis, (rate, epsilon) in zip(axes, PANELS):
        own = where(rows, compression_rate=rate, epsilon=epsilon)
        if not where(own, method=STREAM, bands=1):
            continue
        _draw_rounds(axis, own, rate, epsilon)
        shown = where(own, rounds=_SHOWN_ROUNDS, method=STREAM)
        if shown:
            step = sorted({budget for _, budget in PANELS}).index(epsilon)
            _draw_bands(axes[-1], shown, rate, epsilon, step)
    for axis in axes:
        axis.set_ylabel("noise std, over Poisson sampling's")
    axes[-1].set_title(f"cyclic sampling, T={_SHOWN_ROUNDS}")
    if axes[-1].lines:
        _finish_bands(axes[-1], where(rows, rounds=_SHOWN_ROUNDS, method=STREAM))
    picture.suptitle(
        rf"$\delta=10^{{-5}}$, {COHORT_SIZE} of {POPULATION} clients a round",
    )
    picture.tight_layout()
    return picture
