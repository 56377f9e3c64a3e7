# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A table of the numbers on pages that are computed, not measured.

  python -m tools.exact_numbers docs/results/exact_numbers.csv

A row has the page, the name of the number, and the number itself. Nothing is random, so
there are no seeds and no intervals. `exact_numbers.csv` has the numbers that are of a
mechanism's run: its noise, or with a noise its epsilon.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
from dp_accounting import dp_event
from scipy import stats

from dpfl import accounting, files, planning
from dpfl import factorization as mf
from dpfl.accounting.integer import rounding, summed_noise
from dpfl.factorization import tree
from experiments import bands_curve, tables
from experiments.papers import stream_errors as streams
from tools import tightness

# Parameters of the papers' network for F-EMNIST.
_MODEL = streams.DIMENSION
_PAGES_OF_RUNS = (
    *("privacy/client_sampling", "privacy/gaussian_domination"),
    *("privacy/fixed_size", "privacy/random_allocation"),
)
# Granularity over the clip that b bits leave, at n = 100 and m = 2^20.
_GRIDS = {8: 0.031789, 7: 0.066108, 6: 0.160890}
_ORDERS = (2, 8, 32)
_KINDS = {1: "dense", 100: "gamma = 0.01"}
# Words in the names of streams that take most of the time.
SLOW = "free band"

Numbers = Iterator[tuple[str, float]]


def _value(row: tables.Row) -> float:
    """The noise of a run at its epsilon, or its epsilon at a noise `z`.

    The accounting method "integer" is that of Renyi divergences at whole orders.
    """
    run, way = tightness.run_of(row), row["accounting_method"]

    def event(noise: float) -> dp_event.DpEvent:
        noised = run.mechanism.with_noise_multiplier(noise)
        return noised.dp_event(run.participation, _MODEL)

    if row["z"]:
        at = event(float(row["z"])), run.delta
        return accounting.epsilon(*at, accounting_method=way).epsilon
    budget = run.epsilon, run.delta
    if way == "integer":
        own: Any = {"orders": tuple(range(2, 65)), "rtol": 1e-6}
        own["accounting_method"] = "rdp"
        return accounting.calibrate_noise_multiplier(event, *budget, **own)
    found = planning.calibrate(run.mechanism, run.participation, _MODEL, *budget, way)
    return float(found.noise_multiplier)


def _of_runs(page: str, is_slow: bool) -> Numbers:
    """A page's numbers that are of runs."""
    rows = tables.where(files.read_csv(Path(__file__).with_suffix(".csv")), page=page)
    return ((row["number"], _value(row)) for row in rows if is_slow or not row["slow"])


def _matrix_factorization() -> Numbers:
    for rounds in (64, 1024):
        factorization = tree.honaker_online(mf.prefix_sum(rounds))
        nodes = np.linalg.norm(factorization.encoder(), axis=0).max()
        yield f"largest column, T = {rounds}, nodes", nodes
        yield (
            f"largest column, T = {rounds}, released",
            factorization.sensitivity().value,
        )
    # Two rounds and two groups of a fixed size.
    moved = accounting.gaussian_epsilon(1e-5, 1 / math.sqrt(2**2 + 1))
    yield "epsilon, groups of a fixed size", moved
    yield "epsilon, replaced by zeros", accounting.gaussian_epsilon(1e-5, 1.0)


def _of_run(
    name: str,
    accounting_method: str,
    make: Callable[[bands_curve.StreamRun], Any],
    **how: Any,
) -> Numbers:
    for rate, kind in _KINDS.items():
        run = streams.run_of(rate, 10.0, 512, **how)
        point = make(dataclasses.replace(run, accounting_method=accounting_method))
        if accounting_method == "rdp":
            yield f"z, {name}, {kind}", point.noise_multiplier
            yield f"error, {name}, {kind}", point.root_mean_error
        else:
            yield f"error by privacy loss, {name}, {kind}", point.root_mean_error
            # The dense stream alone.
            break


def _bands(is_slow: bool) -> Numbers:
    rdp, tight = "rdp", "auto"
    for bands in (1, 2, 4, 8, 16, 32):
        make = functools.partial(bands_curve.point, separation=bands)
        yield from _of_run(f"h = {bands}", rdp, make)
        if bands == 32 or (is_slow and bands in (1, 16)):
            yield from _of_run(f"h = {bands}", tight, make)
        if bands in (16, 32) and is_slow:
            yield from _of_run(f"h = {bands}, {SLOW}", rdp, make, encoder="banded")
    yield from _of_run("streams that restart", rdp, bands_curve.restarting)
    for rate, kind in _KINDS.items():
        result = streams.random_allocation(rate, 10.0, 512)
        yield f"z, random allocation, {kind}", result["noise_multiplier"]
        yield f"error, random allocation, {kind}", result["error"]
    # Every client in rounds exactly 32 apart: one Gaussian mechanism on the run.
    noise = accounting.calibrate_noise_multiplier(
        dp_accounting.GaussianDpEvent, 10.0, 1e-5, accounting_method="rdp"
    )
    yield "z, one Gaussian mechanism, dense", noise
    plan = mf.FixedEpochs(16, 32)
    several = {"separation": 32, "participations": 16}
    for name, method, parameters in (
        ("optimal dense C", "optimal-epochs", {"separation": 32}),
        ("3 buffers", "blt", {"buffers": 3, **several}),
        ("C^-1 with 8 diagonals", "banded-inverse", {"bands": 8, **several}),
    ):
        if method != "optimal-epochs" or is_slow:
            one = mf.compute(mf.prefix_sum(512), method, **parameters)
            yield f"error, {name}, dense", noise * one.errors(plan).root_mean


# Ways in which clients' rounds are secret, and the bands of C.
_HIDDEN = tuple((name, bands) for name in bands_curve.HIDDEN for bands in (16, 24, 32))


def _secret_participation() -> Numbers:
    """The setting of `_bands` at delta = 1e-3, by the tightest accounting."""
    workload = mf.prefix_sum(512)
    for epsilon in (10.0, 2.0):
        run = bands_curve.StreamRun(workload, 3200, 100, epsilon, 1e-3)
        case = f"epsilon = {epsilon:g}"
        points = [bands_curve.point(run, h) for h in bands_curve.usual_bands(run)]
        yield f"error, best cyclic, {case}", bands_curve.best(points).root_mean_error
        for participation, bands in _HIDDEN:
            secret = dataclasses.replace(run, participation=participation)
            one = bands_curve.point(secret, bands)
            name = f"{participation} h = {bands}, {case}"
            yield f"z, {name}", one.noise_multiplier
            yield f"error, {name}", one.root_mean_error


def _rounding() -> Numbers:
    for bits, granularity in _GRIDS.items():
        noise = summed_noise.DiscreteGaussianNoise(100, 0.1 / granularity)
        for name, size in (("clip", 1.0), ("0.0064 of it", 0.0064)):
            rate = rounding.rounded_rate(_ORDERS, noise, size / granularity)
            for order, one in zip(_ORDERS, rate):
                over = float(one) * 2 * noise.variance / order
                yield f"RDP, {bits} bits, {name}, {order}", over
    for clients, length in ((50, 160), (1000, 10**6), (10**6, 10**7)):
        name = f"least share, n = {clients}, m = {length}"
        yield name, _least_share(clients, length)


def _least_share(clients: int, length: int) -> float:
    """The steps from which a share of noise is covered, without and with a clip."""
    low, high = 0.5, 4.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        noise = summed_noise.DiscreteGaussianNoise(clients, middle)
        is_enough = rounding.is_covered(noise, 2.0, length)
        low, high = (low, middle) if is_enough else (middle, high)
    return high


def _integer_release() -> Numbers:
    """The reason why the noise of a release in integers has 4 more than s^2."""
    x = np.arange(-60.0, 61)

    def law_of(s: float) -> np.ndarray:
        return np.asarray(stats.norm.pdf(x / s) / stats.norm.pdf(x / s).sum())

    s, shift, epsilon = 3.0, 3.0, 3.0
    ratio = np.exp((2 * x * shift - shift**2) / (2 * s**2))
    yield "delta, integers", law_of(s) @ np.maximum(ratio - math.exp(epsilon), 0)
    yield "delta, Gaussian", accounting.gaussian_delta(epsilon, s / shift)
    s, q, alpha = 0.4, 1e-4, 1.1

    def moment(y: Any) -> Any:
        mixed = 1 - q + q * np.exp((2 * y - 1) / (2 * s**2))
        return np.expm1(alpha * np.log(mixed))

    log_moment = math.log1p(law_of(s) @ moment(x))

    how: Any = {"epsabs": 1e-18, "points": (0.5, 1, 2), "limit": 500}
    integral = stats.norm.expect(moment, scale=s, lb=-4, ub=8, **how)
    yield "percent of a sampled moment", 100 * (log_moment / math.log1p(integral) - 1)


def numbers(is_slow: bool = True) -> Iterator[tuple[str, str, float]]:
    """Yields page, name and value of the numbers, either the slow or the fast ones."""
    for page, results in (
        *((page, _of_runs(page, is_slow)) for page in _PAGES_OF_RUNS),
        ("privacy/matrix_factorization", _matrix_factorization()),
        ("privacy/bands", _bands(is_slow)),
        ("privacy/balls_in_bins", _secret_participation() if is_slow else ()),
        ("privacy/rounding", _rounding()),
        ("privacy/integer_release", _integer_release()),
    ):
        for name, value in results:
            yield page, name, float(value)


def main(argv: Sequence[str]) -> None:
    """Writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, help="the CSV file to write")
    path = parser.parse_args(argv).table
    pages, names, values = zip(*numbers())
    shown = [f"{value:.10g}" for value in values]
    tables.write_columns(path, {"page": pages, "number": names, "value": shown})


if __name__ == "__main__":
    main(sys.argv[1:])
