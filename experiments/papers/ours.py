# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figures beyond the papers: all mechanisms at equal bits, and streams in training.

    python -m experiments.reproduce --figure=intervals --scale=small

All mechanisms have the same epsilon, with few and with many bits up, on MNIST by writer
and on Fashion-MNIST. All train for the same rounds with the same expected number of
clients, and each selects its clients in the way that suits it: `dpfl.mechanisms`
refuses DOME with Poisson sampling, and SGMF's stream of noise wants a client's rounds
apart. All epsilons hold if a client's contributions are replaced by zeros.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpfl import mechanisms, planning

from .. import effects, tables
from ..tables import Row, Rows
from ..trainings.sweep import Work
from . import stream_errors

EPSILON = 8.0


def _with_task(task: str, rows: Rows) -> list[Row]:
    """Rows with their task, and with the name of a line if there are ways."""
    return [
        {**row, "task": task, "name": f"{row['mechanism']}, {row.get('way')}"}
        for row in rows
    ]


# Runs of coordinates kept at random, exactly accounted: clients, rounds and delta.
_KEPT = {
    "every client, 16 rounds": (mechanisms.FixedSize(100, 100, 16), 1e-5),
    "q = 0.5, 60 rounds": (mechanisms.PoissonSampling(200, 100, 60), 1e-3),
    "q = 0.03, 1500 rounds": (mechanisms.PoissonSampling(3333, 100, 1500), 1e-5),
}
_RATES = (1, 3, 10, 30, 100, 300, 1000)
_ACCOUNTING_METHODS = ("rdp", "tight")


def _kept_work(run: str, rate: int, accounting_method: str) -> Work:
    def compute(_: Path) -> Mapping[str, Any]:
        plan, delta = _KEPT[run]
        mechanism = mechanisms.L2Csgm(100, 1.0, 1.0, keep_fraction=1 / rate)
        budget = (stream_errors.DIMENSION, EPSILON, delta, accounting_method)
        calibrated = planning.calibrate(mechanism, plan, *budget)
        return {"noise_multiplier": calibrated.noise_multiplier}

    labels = {
        "run": run,
        "compression_rate": rate,
        "accounting_method": accounting_method,
    }
    return Work(labels, {"delta": _KEPT[run][1]}, compute)


def _kept(_: str) -> Iterator[Work]:
    """The noise of L2-CSGM over compression rates, by both accounting methods."""
    for run, rate, accounting_method in itertools.product(
        _KEPT, _RATES, _ACCOUNTING_METHODS
    ):
        yield _kept_work(run, rate, accounting_method)


def _over_gaussian(rows: Rows) -> list[Row]:
    """Rows with their noise relative to the exact one of the Gaussian mechanism."""
    return tables.over(
        *(rows, "noise_multiplier", "run", "noise_over_Gaussian's"),
        compression_rate=1,
        accounting_method="tight",
    )


# Frequency with which an interval of two cells contains the true effect and excludes
# zero. The effect is in deviations of a run's accuracy, and runs of one seed have the
# given correlation.
_EFFECTS, _CELL_SEEDS, _ALIKE = (0.0, 1.0, 2.0), (3, 6, 10, 17), (0.0, 0.5)
_TRIES = 20_000


def _interval_work(seeds: int, effect: float, alike: float) -> Work:
    def compute(_: Path) -> Mapping[str, Any]:
        rng = np.random.default_rng([seeds, round(100 * alike)])
        own = math.sqrt(1 - alike) * rng.normal(size=(_TRIES, 2, seeds))
        runs = own + math.sqrt(alike) * rng.normal(size=(_TRIES, 1, seeds))
        runs[:, 0] += effect
        cells = ({n: dict(enumerate(c)) for n, c in enumerate(both)} for both in runs)
        intervals = [effects.effect(both, [(0, 1)]) for both in cells]
        return {
            "coverage": sum(e.low <= effect <= e.high for e in intervals) / _TRIES,
            "shown": sum(e.low > 0 for e in intervals) / _TRIES,
        }

    labels = {"seeds": seeds, "true_effect": effect, "correlation": alike}
    return Work(labels, {"tries": _TRIES}, compute)


def _intervals(_: str) -> list[Work]:
    return [
        _interval_work(*each)
        for each in itertools.product(_CELL_SEEDS, _EFFECTS, _ALIKE)
    ]


_MNIST, _FASHION = (functools.partial(_with_task, t) for t in ("mnist", "fashion"))
ROWS = {
    "kept_noise": _over_gaussian,
    **dict.fromkeys(("equal_bits", "equal_bits_long"), _MNIST),
    **dict.fromkeys(("equal_bits_fashion", "stream_training"), _FASHION),
}
WORK = {"intervals": _intervals, "kept_noise": _kept}
