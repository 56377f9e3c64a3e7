# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Streams over a whole run: errors of sums at equal epsilon, without training.

    run = stream_errors.run_of(compression_rate=100, epsilon=10.0, rounds=512)
    point = bands_curve.point(run, 16)

`random_allocation` and `bands_curve.restarting` give the alternatives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dpfl import factorization as mf
from dpfl import mechanisms, planning

from .. import bands_curve
from ..tables import Row, Rows, distinct, where
from ..trainings.sweep import Work

# Clients, cohort and budget of the paper's Fig. 3, and the parameters of its model.
POPULATION, COHORT_SIZE = 3200, 100
DELTA = 1e-5
DIMENSION = 1018174
ACCOUNTING_METHOD = "auto"
# Compression rate and epsilon of each panel; the paper's budget is 10.
PANELS = ((1, 10.0), (100, 10.0), (100, 2.0))
# 16 epochs of 32 rounds, as in the paper, are the 512.
ROUNDS = {
    "small": (32, 128, 512, 2048),
    "paper": (32, 64, 128, 256, 512, 1024, 2048),
}
# One stream over the run, with a number of bands; the other two have none.
STREAM, EPOCHS, SLOTS = "stream", "epochs", "random_allocation"


def _noised(compression_rate: int, noise_multiplier: float = 1.0) -> Any:
    """The mechanism whose release is a round."""
    own = (COHORT_SIZE, 1.0, noise_multiplier)
    if compression_rate == 1:
        return mechanisms.Gaussian(*own)
    return mechanisms.L2Csgm(*own, keep_fraction=1 / compression_rate)


def run_of(
    compression_rate: int, epsilon: float, rounds: int, encoder: str = "toeplitz"
) -> bands_curve.StreamRun:
    """The run whose points the figure shows.

    Args:
      compression_rate: The compression rate.
      epsilon: The budget.
      rounds: Number of rounds.
      encoder: Kind of encoder.
    """
    return bands_curve.StreamRun(
        workload=mf.prefix_sum(rounds),
        population=POPULATION,
        cohort_size=COHORT_SIZE,
        epsilon=epsilon,
        delta=DELTA,
        release=lambda z: _noised(compression_rate, z).round_dp_event(DIMENSION, 1.0),
        encoder=encoder,
        accounting_method=ACCOUNTING_METHOD,
    )


def random_allocation(
    compression_rate: int, epsilon: float, rounds: int
) -> Mapping[str, float]:
    """The noise and its error if each client draws a round of every epoch.

    Args:
      compression_rate: The compression rate.
      epsilon: The budget.
      rounds: Number of rounds.
    """
    noised: Any = planning.calibrate(
        _noised(compression_rate),
        mechanisms.RandomAllocation(POPULATION, COHORT_SIZE, rounds),
        *(DIMENSION, epsilon, DELTA, ACCOUNTING_METHOD),
    )
    noise = noised.noise_multiplier
    # Sums of 1, ..., T independent terms.
    return {"noise_multiplier": noise, "error": noise * ((rounds + 1) / 2) ** 0.5}


def _work(
    method: str, bands: int, how: str, rate: int, epsilon: float, rounds: int
) -> Work:
    def compute(_: Path) -> Mapping[str, Any]:
        if method == SLOTS:
            return random_allocation(rate, epsilon, rounds)
        if method == EPOCHS:
            point = bands_curve.restarting(run_of(rate, epsilon, rounds))
        else:
            point = bands_curve.point(run_of(rate, epsilon, rounds, how), bands)
        own = {"noise_multiplier": point.noise_multiplier}
        return {**own, "error": point.root_mean_error, "encoder": point.encoder}

    names = ("compression_rate", "epsilon", "rounds", "method", "bands")
    labels = dict(zip(names, (rate, epsilon, rounds, method, bands)))
    return Work(labels, {"delta": DELTA, "encoder": how}, compute)


def grid(scale: str) -> Iterator[Work]:
    """The work on every stream of each run, and on the two alternatives."""
    encoder = "toeplitz" if scale == "small" else "banded"
    for rate, epsilon in PANELS:
        for rounds in ROUNDS[scale]:
            run = run_of(rate, epsilon, rounds, encoder)
            yield _work(SLOTS, 1, "none", rate, epsilon, rounds)
            yield _work(EPOCHS, run.most_groups, "optimal", rate, epsilon, rounds)
            for bands in bands_curve.usual_bands(run):
                yield _work(STREAM, bands, encoder, rate, epsilon, rounds)


def least(rows: Rows) -> list[Row]:
    """The stream of least error for each number of rounds."""
    streams = where(rows, method=STREAM)
    return [
        min(where(streams, rounds=rounds), key=lambda row: float(row["error"]))
        for rounds in distinct(streams, "rounds")
    ]


def ways(rows: Rows) -> list[Row]:
    """The lines of the drawing: errors relative to Poisson sampling."""
    results: list[Row] = []
    for rate, epsilon in PANELS:
        own = where(rows, compression_rate=rate, epsilon=epsilon)
        streams = where(own, method=STREAM)
        poisson = {row["rounds"]: row for row in where(streams, bands=1)}
        most = str(max([int(row["bands"]) for row in streams], default=1))
        lines = {
            "independent noise, random allocation": where(own, method=SLOTS),
            "streams that restart each epoch": where(own, method=EPOCHS),
            "one stream": where(streams, bands=most),
            "one stream, cyclic sampling": least(own),
        }
        for way, shown in lines.items():
            for row in shown:
                if row["rounds"] in poisson:
                    base = float(poisson[row["rounds"]]["error"])
                    ratio = str(float(row["error"]) / base)
                    results.append({**row, "way": way, "error_over_Poisson's": ratio})
    return results
