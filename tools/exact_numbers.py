# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A table of the numbers on pages that are computed, not measured.

  python -m tools.exact_numbers docs/results/exact_numbers.csv

A row has the page, the name of the number, and the number itself. Nothing is random, so
there are no seeds and no intervals.
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

import dpfl
from dpfl import accounting
from dpfl import factorization as mf
from dpfl.accounting import k_of_t, random_allocation
from dpfl.accounting.csgm import SparsifiedMatrixFactorizationDpEvent
from dpfl.accounting.integer import rounding, summed_noise
from dpfl.factorization import tree
from experiments import bands_curve, tables
from experiments.papers import stream_errors as streams

# Parameters of the papers' network for F-EMNIST, and the bound on a coordinate's size
# over that of the vector, with 100 clients a round.
_MODEL = streams.DIMENSION
_LINF_RATIO = math.sqrt(2 * math.log(_MODEL * 100) / _MODEL)
_EPSILON = 8.0
# Probability of joining, rounds, delta.
_TRAININGS = ((0.5, 60, 1e-3), (0.03, 1500, 1e-5))
# Granularity over the clip that b bits leave, at n = 100 and m = 2^20.
_GRIDS = {8: 0.031789, 7: 0.066108, 6: 0.160890}
_ORDERS = (2, 8, 32)
_KINDS = {1: "dense", 100: "gamma = 0.01"}
# Words in the names of streams that take most of the time.
SLOW = "free band"

Numbers = Iterator[tuple[str, float]]


@functools.cache
def _noise(
    keep_fraction: float,
    q: float,
    rounds: int,
    delta: float,
    accounting_method: str = "rdp",
) -> float:
    """The noise multiplier of sampled rounds of CSGM; "integer" is RDP by orders."""

    def event(noise_multiplier: float) -> dp_event.DpEvent:
        one = accounting.SparsifiedGaussianDpEvent(
            noise_multiplier, keep_fraction, _LINF_RATIO, _MODEL, q
        )
        return dp_accounting.SelfComposedDpEvent(one, rounds)

    own: Any = {"accounting_method": accounting_method}
    if accounting_method == "integer":
        own = {"accounting_method": "rdp", "orders": tuple(range(2, 65)), "rtol": 1e-6}
    return accounting.calibrate_noise_multiplier(event, _EPSILON, delta, **own)


def _client_sampling() -> Numbers:
    for q, rounds, delta in _TRAININGS:
        for keep in (0.01, 1.0):
            name = f"z, q = {q:g}, gamma = {keep:g}"
            yield name, _noise(keep, q, rounds, delta)
            whole = _noise(keep, q, rounds, delta, "integer")
            yield f"{name}, integer orders alone", whole


def _gaussian_domination() -> Numbers:
    ways = {"Renyi": "rdp", "tight": "tight"}
    for q, rounds, delta in _TRAININGS:
        for name, accounting_method in ways.items():
            yield (
                f"z, q = {q:g}, {name}",
                _noise(0.01, q, rounds, delta, accounting_method),
            )

    def epochs(noise_multiplier: float) -> dp_event.DpEvent:
        stream = SparsifiedMatrixFactorizationDpEvent(
            noise_multiplier, 0.01, _LINF_RATIO, _MODEL
        )
        return dp_accounting.SelfComposedDpEvent(stream, 16)

    for name, accounting_method in ways.items():
        multiplier = accounting.calibrate_noise_multiplier(
            epochs, _EPSILON, 1e-5, accounting_method=accounting_method
        )
        yield f"z, SGMF, {name}", multiplier


def _fixed_size(is_slow: bool) -> Numbers:
    n, clip = 100, 1.0
    for epsilon, rounds in ((8.0, 100), (2.0, 1000))[: 1 + is_slow]:
        for name, one in {
            "gaussian": dpfl.Gaussian(n, clip, 1.0),
            "l2_csgm 100-fold": dpfl.L2Csgm(n, clip, 1.0, 0.01),
            "l2_csgm 10-fold": dpfl.L2Csgm(n, clip, 1.0, 0.1),
            "distributed_discrete_gaussian": dpfl.DistributedDiscreteGaussian(
                n, clip, 1.0, bits=16, noise_source="helpers"
            ),
        }.items():
            if one.name == "l2_csgm" and not is_slow:
                continue
            for way in (dpfl.FixedSize, dpfl.WithoutReplacement):
                run = way(10_000, n, rounds)
                calibrated = dpfl.calibrate(one, run, _MODEL, epsilon, 1e-5)
                setting = f"epsilon = {epsilon:g}, T = {rounds}, {name}"
                yield f"{setting}, {way.name}", calibrated.noise_multiplier


def _random_allocation(is_slow: bool) -> Numbers:
    compose = dp_accounting.SelfComposedDpEvent
    for z, rounds in ((0.7, 10), (0.7, 33), (1.0, 10), (1.0, 33), (1.0, 1000)):
        one = dp_accounting.GaussianDpEvent(z)
        sampled = dp_accounting.PoissonSampledDpEvent(1 / rounds, one)
        slot = random_allocation.RandomAllocationDpEvent(
            one, rounds=rounds, slots=rounds
        )
        ways = {
            "once per epoch": compose(one, 10),
            "Poisson": compose(sampled, 10 * rounds),
            "random allocation": compose(slot, 10),
        }
        for name, run in ways.items():
            for accounting_method, how in (("rdp", " (Renyi)"), ("tight", "")):
                epsilon = accounting.epsilon(
                    run, 1e-5, accounting_method=accounting_method
                ).epsilon
                yield f"epsilon, z = {z:g}, {rounds}, {name}{how}", epsilon
        if is_slow:
            run = k_of_t.KOfTDpEvent(z, 10 * rounds, k=10, of_rounds=10 * rounds)
            epsilon = accounting.epsilon(run, 1e-5).epsilon
            yield f"epsilon, z = {z:g}, {rounds}, k of T", epsilon


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
        if bands in (1, 16, 32):
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
        ("privacy/client_sampling", _client_sampling()),
        ("privacy/gaussian_domination", _gaussian_domination()),
        ("privacy/fixed_size", _fixed_size(is_slow)),
        ("privacy/random_allocation", _random_allocation(is_slow)),
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
