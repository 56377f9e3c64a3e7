# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figures beyond the papers: all mechanisms at equal bits, and streams in training.

    dpfl-reproduce --figure=intervals --scale=small

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

from .. import effects
from ..tables import Row, Rows, where
from . import medium, stream_errors
from .plotting import Plot
from .sweep import Cell, Figure, Work

EPSILON = 8.0
# A point is named by its own flags: r10_b7 has a compression rate of 10 and 7 bits.
_LETTERS = {"r": "compression_rate", "b": "bits", "k": "sketch_size"}
# The point without compression.
_WHOLE = "b32"


def _flags(
    rounds_per_epoch: int, groups: int, matrix_method: str
) -> dict[str, Mapping[str, Any]]:
    """The flags of each compared mechanism, by its name in the results table.

    Only DOME, whose clients must not be sampled afresh, uses the rounds of an epoch.
    For correlated noise C has as many diagonals as there are groups.
    """
    poisson = {"participation": "poisson"}
    helpers = {**poisson, "noise_source": "helpers"}
    cyclic = _one_stream("cyclic_poisson", groups, matrix_method)
    once = {"participation": "once_per_epoch", "rounds_per_epoch": rounds_per_epoch}
    once |= {"server_momentum": 0.0}
    return {
        "gaussian": {"mechanism": "gaussian", **poisson},
        "ddg": {"mechanism": "distributed_discrete_gaussian", **helpers},
        "skellam": {"mechanism": "distributed_skellam", **helpers},
        "l2_csgm": {"mechanism": "l2_csgm", **poisson},
        "sketched_ddg": {"mechanism": "sketched_ddg", **helpers},
        "project_and_perturb": {"mechanism": "project_and_perturb", **poisson},
        "linf_csgm": {"mechanism": "linf_csgm", **poisson},
        "mf": {"mechanism": "matrix_factorization", **cyclic},
        "sgmf": {"mechanism": "sgmf", **cyclic},
        "dome": {"mechanism": "dome", **once},
        "dome_whole": {"mechanism": "dome", **once, "mean_removal": False},
    }


def _one_stream(
    participation: str, separation: int, matrix_method: str = "toeplitz"
) -> Mapping[str, Any]:
    return {
        **{"participation": participation, "min_separation": separation},
        **{"noise_stream": "run", "matrix_method": matrix_method},
        "matrix_bands": separation,
    }


TITLES = {
    "gaussian": "Gaussian, Poisson",
    "ddg": "DDG, Poisson",
    "skellam": "Skellam, Poisson",
    "l2_csgm": "L2-CSGM, Poisson",
    "sketched_ddg": "sketched DDG, Poisson",
    "project_and_perturb": "project and perturb, Poisson",
    "linf_csgm": "L∞-CSGM, Poisson",
    "mf": "matrix factorization, cyclic",
    "sgmf": "SGMF, cyclic",
    "dome": "DOME, once an epoch",
    "dome_whole": "DOME, no mean removal, once an epoch",
}
# Flags of each problem, and those of its mechanisms. The clip is 0.3; a sketch of k
# random rows has one that grows with sqrt(k).
_MNIST: Mapping[str, Any] = {
    **{"task": medium.MNIST, "model": "small_cnn", "cohort_size": 100, "rounds": 48},
    **{"client_lr": 0.1, "server_momentum": 0.9, "delta": 1e-4},
    **{"eval_every": 8, "checkpoint_every": 48, "clip_norm": 0.3},
}
_CLIP_OF_ONE_ROW = 0.0025
PROBLEMS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]] = {
    "equal_bits": (_MNIST, _flags(8, 8, "banded")),
    # After 48 rounds accuracy still rises.
    "equal_bits_long": (
        {**_MNIST, "rounds": 192, "eval_every": 32, "checkpoint_every": 96},
        _flags(8, 8, "banded"),
    ),
    "equal_bits_fashion": (
        medium.FLAGS[medium.FASHION],
        _flags(20, 20, "toeplitz"),
    ),
}
# The server's rate of each point: the best of the tried ones on the validation set
# (docs/results/rates_search.csv and long_search.csv). Points without trials have the
# rate of their kind with other bits.
POINTS: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "equal_bits": {
        "gaussian": {_WHOLE: 2.0},
        "ddg": {"b16": 2.0, "b8": 2.0, "b7": 2.0, "b6": 2.0},
        "skellam": {"b16": 2.0, "b8": 2.0},
        "l2_csgm": {"r10": 1.0, "r30": 0.5, "r100": 0.25},
        "sketched_ddg": {"r10_b16": 1.0, "r10_b7": 1.0, "r30_b9": 0.5, "r100_b10": 0.5},
        "project_and_perturb": {"r10": 1.0, "r100": 0.25},
        "linf_csgm": {"r10": 0.125, "r100": 0.125},
        "mf": {_WHOLE: 2.0},
        "sgmf": {"r10": 2.0, "r100": 0.5},
        "dome": {"k256": 0.01},
        "dome_whole": {"k64": 0.015, "k256": 0.015, "k1024": 0.015},
    },
    "equal_bits_long": {
        "gaussian": {_WHOLE: 0.5},
        "ddg": {"b8": 0.5},
        "l2_csgm": {"r10": 0.5},
        "sketched_ddg": {"r10_b7": 0.5},
        "linf_csgm": {"r10": 0.05},
        "mf": {_WHOLE: 0.5},
        "sgmf": {"r10": 0.5},
        "dome_whole": {"k256": 0.0075},
    },
    "equal_bits_fashion": {
        "gaussian": {_WHOLE: 1.0},
        "ddg": {"b8": 1.0},
        "l2_csgm": {"r10": 1.0},
        "sketched_ddg": {"r10_b7": 0.5},
        "mf": {_WHOLE: 2.0},
        "sgmf": {"r10": 1.0},
    },
}


def _equal_bits(name: str, _: str) -> Iterator[Cell]:
    """The runs of all points of all mechanisms of a figure in `PROBLEMS`."""
    shared, flags = PROBLEMS[name]
    for mechanism, rates in POINTS[name].items():
        for point, rate in rates.items():
            words = point.split("_") if point != _WHOLE else []
            own: dict[str, Any] = {_LETTERS[w[0]]: int(w[1:]) for w in words}
            if "sketch_size" in own:
                own["clip_norm"] = _CLIP_OF_ONE_ROW * math.sqrt(own["sketch_size"])
            given = {**shared, **flags[mechanism], **own}
            given |= {"server_lr": rate, "epsilon": EPSILON}
            labels = {"mechanism": mechanism, "point": point}
            yield from medium.seeded(name, [(labels, given)])


# Rounds of an epoch: the clients suffice for so many cohorts.
ROUNDS_PER_EPOCH, GROUPS = 20, 20
SHARED: Mapping[str, Any] = {
    **medium.FLAGS[medium.FASHION],
    **{"epsilon": EPSILON, "server_lr": 1.0},
}
_EPOCHS = {"rounds_per_epoch": ROUNDS_PER_EPOCH}
# Ways to select clients and draw noise.
WAYS: Mapping[str, Mapping[str, Any]] = {
    "Poisson sampling": {"participation": "poisson"},
    "random allocation": {**_EPOCHS, "participation": "random_allocation"},
    "by epochs": {**_EPOCHS, "participation": "once_per_epoch"},
    "one stream": {**_EPOCHS, **_one_stream("once_per_epoch", ROUNDS_PER_EPOCH)},
    "one stream, cyclic sampling": _one_stream("cyclic_poisson", GROUPS),
}
# Mechanism by its name in a row, compression and ways.
STREAMS: tuple[tuple[str, str, int, tuple[str, ...]], ...] = (
    ("GM", "gaussian", 1, tuple(WAYS)[:2]),
    ("MF", "matrix_factorization", 1, tuple(WAYS)[2:]),
    ("CSGM", "l2_csgm", 10, tuple(WAYS)[:1]),
    ("SGMF", "sgmf", 10, tuple(WAYS)[2:]),
)


def _streams(_: str) -> Iterator[Cell]:
    """The runs with independent noise, noise by epochs and noise in one stream."""
    for name, mechanism, rate, ways in STREAMS:
        for way in ways:
            given = {**SHARED, "mechanism": mechanism, **WAYS[way]}
            given |= {} if rate == 1 else {"compression_rate": rate}
            labels = {"mechanism": name, "way": way, "rate": rate}
            yield from medium.seeded("stream_training", [(labels, given)])


def _with_task(task: str, rows: Rows) -> list[Row]:
    """Rows with their task, and with the name of a line if there are ways."""
    return [
        {**row, "task": task, "name": f"{row['mechanism']}, {row.get('way')}"}
        for row in rows
    ]


_FASHION_ROWS = functools.partial(_with_task, medium.FASHION)


# Series drawn: the baseline, and one of each way to send fewer bits.
_DRAWN = ("gaussian", "ddg", "l2_csgm", "sketched_ddg", "mf", "sgmf", "dome_whole")


def _against_bits(name: str, finding: str, task: str) -> Figure:
    return Figure(
        name,
        f"{finding} (ours; epsilon 8)",
        functools.partial(_equal_bits, name),
        Plot(
            *("uplink_bits_per_parameter", "mechanism"),
            by="point",
            log="x",
            titles=TITLES,
            rows=functools.partial(_with_task, task),
            shown=_DRAWN,
            baseline="gaussian",
        ),
        scales=("medium",),
    )


# Runs of coordinates kept at random, exactly accounted: clients, rounds and delta.
_KEPT = {
    "every client, 16 rounds": (mechanisms.FixedSize(100, 100, 16), 1e-5),
    "q = 0.5, 60 rounds": (mechanisms.PoissonSampling(200, 100, 60), 1e-3),
    "q = 0.03, 1500 rounds": (mechanisms.PoissonSampling(3333, 100, 1500), 1e-5),
}
_RATES = (1, 3, 10, 30, 100, 300, 1000)
_ACCOUNTING_METHODS = {"rdp": "Rényi divergence", "tight": "dpfl's accountant"}


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
    results: list[Row] = []
    for row in rows:
        same = where(
            rows, run=row["run"], compression_rate=1, accounting_method="tight"
        )
        for base in same:
            ratio = float(row["noise_multiplier"]) / float(base["noise_multiplier"])
            results.append({**row, "noise_over_Gaussian's": str(ratio)})
    return results


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


FIGURES = [
    Figure(
        "intervals",
        "How often two cells' runs show an effect of one deviation or two (ours)",
        _intervals,
        Plot("seeds", "true_effect", "correlation", "shown"),
        scales=("small",),
    ),
    Figure(
        "kept_noise",
        "Up to hundred-fold compression dpfl's accountant needs less noise (ours)",
        _kept,
        Plot(
            *("compression_rate", "accounting_method", "run", "noise_over_Gaussian's"),
            rows=_over_gaussian,
            log="x",
            titles=_ACCOUNTING_METHODS,
        ),
        scales=("small",),
    ),
    _against_bits(
        "equal_bits",
        "Three bits of SGMF are ahead of 32 of Gaussian noise: small network, MNIST",
        medium.MNIST,
    ),
    _against_bits(
        "equal_bits_long",
        "After 192 rounds ten-fold compression costs L2-CSGM less than a point",
        medium.MNIST,
    ),
    _against_bits(
        "equal_bits_fashion",
        "Correlated noise is ahead on Fashion-MNIST, and a sketch costs over a point",
        medium.FASHION,
    ),
    Figure(
        "stream_training",
        "Ours: training with independent noise, noise by epochs, and one stream",
        _streams,
        Plot("name", "mechanism", "rate", rows=_FASHION_ROWS),
        scales=("medium",),
    ),
]
