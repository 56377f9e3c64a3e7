# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Streams over a whole run: errors of sums at equal epsilon, without training."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import dp_accounting

from dpfl import factorization as mf
from dpfl import mechanisms, planning
from dpfl.planning import bands_curve

from .. import plotting
from ..result_rows import Row, Rows, distinct, numbers, where
from ..sweep import Setting, Work

# Clients, cohort and budget of the paper's Fig. 3, and the parameters of its model.
POPULATION, COHORT_SIZE = 3200, 100
DELTA = 1e-5
DIMENSION = 1018174
ACCOUNTANT = "rdp"
# Compression rate and epsilon of each panel; the paper's budget is 10.
PANELS = ((1, 10.0), (100, 10.0), (100, 2.0))
# 16 epochs of 32 rounds, as in the paper, are the 512.
ROUNDS = {
    "small": (32, 128, 512, 2048),
    "paper": (32, 64, 128, 256, 512, 1024, 2048),
}
# One stream over the run, with a number of bands; the other two have none.
STREAM, EPOCHS, SLOTS = "stream", "epochs", "random_slot"


def mechanism(compression_rate: int) -> Any:
    """Returns the mechanism of which a round is a release, with any noise."""
    if compression_rate == 1:
        return mechanisms.Gaussian(COHORT_SIZE, 1.0, 1.0)
    return mechanisms.L2Csgm(COHORT_SIZE, 1.0, 1.0, keep_fraction=1 / compression_rate)


def _release(compression_rate: int, noise_multiplier: float) -> dp_accounting.DpEvent:
    noised = mechanism(compression_rate).with_noise_multiplier(noise_multiplier)
    return noised.round_dp_event(DIMENSION, 1.0)


def run_of(
    compression_rate: int, epsilon: float, rounds: int, encoder: str = "toeplitz"
) -> bands_curve.StreamRun:
    """Returns the run of which the figure shows points."""
    return bands_curve.StreamRun(
        workload=mf.prefix_sum(rounds),
        population=POPULATION,
        cohort_size=COHORT_SIZE,
        epsilon=epsilon,
        delta=DELTA,
        release=functools.partial(_release, compression_rate),
        encoder=encoder,
        accountant=ACCOUNTANT,
    )


def random_slot(
    compression_rate: int, epsilon: float, rounds: int
) -> Mapping[str, float]:
    """Returns the noise, and its error, if each client draws a round of every epoch."""
    noised: Any = planning.calibrate(
        mechanism(compression_rate),
        mechanisms.RandomSlot(POPULATION, COHORT_SIZE, rounds),
        DIMENSION,
        epsilon,
        DELTA,
        ACCOUNTANT,
    )
    noise = noised.noise_multiplier
    # Sums of 1, ..., T independent terms.
    return {"noise_multiplier": noise, "error": noise * ((rounds + 1) / 2) ** 0.5}


def _of_point(make: Callable[[], bands_curve.Point]) -> Mapping[str, Any]:
    point = make()
    return {
        "noise_multiplier": point.noise_multiplier,
        "error": point.root_mean_error,
        "encoder": point.encoder,
    }


def _of_run(rate: int, epsilon: float, rounds: int, encoder: str) -> list[Work]:
    """Returns every stream of one run, and the two that are no streams over it."""
    run = run_of(rate, epsilon, rounds, encoder)

    def work(
        method: str, bands: int, how: str, measure: Callable[[], Mapping[str, Any]]
    ) -> Work:
        labels = {
            "compression_rate": rate,
            "epsilon": epsilon,
            "rounds": rounds,
            "method": method,
            "bands": bands,
        }
        settings = {"delta": DELTA, "encoder": how}
        return Work(labels, settings, lambda folder: measure())

    slots = functools.partial(random_slot, rate, epsilon, rounds)
    epochs = functools.partial(_of_point, lambda: bands_curve.restarting(run))
    works = [
        work(SLOTS, 1, "none", slots),
        work(EPOCHS, run.most_groups, "optimal", epochs),
    ]
    for bands in bands_curve.usual_bands(run):
        point = functools.partial(bands_curve.point, run, bands)
        works.append(work(STREAM, bands, encoder, functools.partial(_of_point, point)))
    return works


def grid(setting: Setting) -> list[Work]:
    """Returns the work of all panels and numbers of rounds."""
    encoder = "toeplitz" if setting.scale == "small" else "banded"
    return [
        work
        for rate, epsilon in PANELS
        for rounds in ROUNDS[setting.scale]
        for work in _of_run(rate, epsilon, rounds, encoder)
    ]


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
