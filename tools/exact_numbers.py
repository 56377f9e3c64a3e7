# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The numbers of pages that are computed, not measured, as a table.

  python -m tools.exact_numbers docs/results/exact_numbers.csv

A row has the page, what the number is, the format in which the page has it, and the
number itself. Nothing is drawn at random, so there are no seeds and no intervals.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dp_accounting
import numpy as np
from dp_accounting import dp_event
from scipy import integrate, stats

from dpfl import accounting, mechanisms, planning
from dpfl import factorization as mf
from dpfl.accounting import random_slot
from dpfl.accounting.csgm import SparsifiedMatrixFactorizationDpEvent
from dpfl.accounting.integer import rounding, summed_noise
from dpfl.factorization import tree
from dpfl.mechanisms import participation
from dpfl.planning import bands_curve
from experiments.papers import ours as stream_training
from experiments.papers import result_rows
from experiments.papers import stream_errors as streams

# Parameters of the papers' network for F-EMNIST, and the bound on a coordinate's size
# over that of the vector, with 100 clients a round.
_MODEL = streams.DIMENSION
_LINF_RATIO = math.sqrt(2 * math.log(_MODEL * 100) / _MODEL)
# Those of the same network with ten classes.
_MNIST_MODEL = 1_011_466
_EPSILON = 8.0
_STREAM_TRAINING = (
    Path(__file__).resolve().parents[1] / "docs/results/stream_training.csv"
)
# Probability of joining, rounds, delta.
_TRAININGS = ((0.5, 60, 1e-3), (0.03, 1500, 1e-5))
# Granularity over the clip that b bits leave, at n = 100 and m = 2^20.
_GRIDS = {8: 0.031789, 7: 0.066108, 6: 0.160890}
_ORDERS = (2, 8, 32)
# What rows of the streams have in their names that take most of the time.
SLOW = "all entries of the band free"


class Number(NamedTuple):
    """A number of a page."""

    page: str
    number: str
    format: str
    value: float


def _training(
    keep_fraction: float, q: float, rounds: int, noise_multiplier: float
) -> dp_event.DpEvent:
    event = accounting.SparsifiedGaussianDpEvent(
        noise_multiplier, keep_fraction, _LINF_RATIO, _MODEL, q
    )
    return dp_accounting.SelfComposedDpEvent(event, rounds)


def _noise(
    make: Callable[[float], dp_event.DpEvent], delta: float, **how: Any
) -> float:
    return accounting.calibrate_noise_multiplier(make, _EPSILON, delta, **how)


def _trainings() -> Iterator[Number]:
    for q, rounds, delta in _TRAININGS:
        for keep in (0.01, 1.0):
            make = functools.partial(_training, keep, q, rounds)
            name = f"z, q = {q:g}, gamma = {keep:g}"
            found = _noise(make, delta, method="rdp")
            yield Number("privacy/client_sampling", name, ".3f", found)
            integers = list(range(2, 65))
            whole = _noise(make, delta, method="rdp", orders=integers, rtol=1e-6)
            name = f"{name}, integer orders alone"
            yield Number("privacy/client_sampling", name, ".3f", whole)
            if keep < 1:
                name = f"z, q = {q:g}"
                yield Number("privacy/masked_loss", f"{name}, Renyi", ".3f", found)
                found = _noise(make, delta, method="tight")
                yield Number("privacy/masked_loss", f"{name}, stopped", ".3f", found)


def _epochs(noise_multiplier: float) -> dp_event.DpEvent:
    stream = SparsifiedMatrixFactorizationDpEvent(
        noise_multiplier, 0.01, _LINF_RATIO, _MODEL
    )
    return dp_accounting.SelfComposedDpEvent(stream, 16)


def _sgmf() -> Iterator[Number]:
    page = "privacy/masked_loss"
    found = _noise(_epochs, 1e-5, method="rdp")
    yield Number(page, "z, SGMF, Renyi", ".2f", found)
    found = _noise(_epochs, 1e-5, method="tight")
    yield Number(page, "z, SGMF, stopped", ".3f", found)


def _slots() -> Iterator[Number]:
    page = "privacy/random_slot"
    compose = dp_accounting.SelfComposedDpEvent
    for z, rounds in ((0.7, 10), (0.7, 33), (1.0, 10), (1.0, 33), (1.0, 1000)):
        one = dp_accounting.GaussianDpEvent(z)
        sampled = dp_accounting.PoissonSampledDpEvent(1 / rounds, one)
        slot = random_slot.RandomSlotDpEvent(one, rounds=rounds, slots=rounds)
        for name, run in (
            ("once per epoch", compose(one, 10)),
            ("Poisson", compose(sampled, 10 * rounds)),
            ("random slot", compose(slot, 10)),
        ):
            found = accounting.epsilon(run, 1e-5, method="rdp").epsilon
            shown = ".3f" if found < 1 else ".2f"
            yield Number(page, f"epsilon, z = {z:g}, {rounds}, {name}", shown, found)


def _trees() -> Iterator[Number]:
    page = "privacy/matrix_factorization"
    for rounds in (64, 1024):
        found = tree.honaker_online(mf.prefix_sum(rounds))
        whole = float(np.linalg.norm(found.encoder(), axis=0).max())
        name = f"largest column, T = {rounds}"
        yield Number(page, f"{name}, nodes", ".3f", whole)
        yield Number(page, f"{name}, released", ".3f", found.sensitivity().value)


def _groups() -> Iterator[Number]:
    """Of two rounds and two groups of a fixed size; the client and another differ.

    If one is removed from the first group another moves there from the second: the
    first sum may differ by two clips, and the second by one.
    """
    page = "privacy/matrix_factorization"
    moved = accounting.gaussian_epsilon(1e-5, 1 / math.sqrt(2**2 + 1))
    yield Number(page, "epsilon, groups of a fixed size", ".2f", moved)
    alone = accounting.gaussian_epsilon(1e-5, 1.0)
    yield Number(page, "epsilon, replaced by zeros", ".3f", alone)


def _of_run(
    name: str, accountant: str, make: Callable[[bands_curve.StreamRun], Any], **how: Any
) -> Iterator[Number]:
    page = "privacy/bands"
    for rate in (1, 100):
        if rate > 1 and accountant != streams.ACCOUNTANT:
            continue
        run = streams.run_of(rate, 10.0, 512, **how)
        found = make(dataclasses.replace(run, accountant=accountant))
        kind = f"{name}, {'dense' if rate == 1 else 'gamma = 0.01'}"
        if accountant == streams.ACCOUNTANT:
            yield Number(page, f"z, {kind}", ".4f", found.noise_multiplier)
            yield Number(page, f"error, {kind}", ".2f", found.root_mean_error)
        else:
            yield Number(
                page, f"error by privacy loss, {kind}", ".2f", found.root_mean_error
            )


def _streams(is_slow: bool) -> Iterator[Number]:
    rdp, tight = streams.ACCOUNTANT, "auto"
    for bands in (1, 2, 4, 8, 16, 32):
        make = functools.partial(bands_curve.point, separation=bands)
        yield from _of_run(f"h = {bands}", rdp, make)
        if bands in (1, 16, 32):
            yield from _of_run(f"h = {bands}", tight, make)
        if bands in (16, 32) and is_slow:
            name = f"h = {bands}, {SLOW}"
            yield from _of_run(name, rdp, make, encoder="banded")
    yield from _of_run("streams that restart", rdp, bands_curve.restarting)
    page = "privacy/bands"
    for rate in (1, 100):
        found = streams.random_slot(rate, 10.0, 512)
        kind = f"random slots, {'dense' if rate == 1 else 'gamma = 0.01'}"
        yield Number(page, f"z, {kind}", ".4f", found["noise_multiplier"])
        yield Number(page, f"error, {kind}", ".2f", found["error"])


def _one_gaussian(is_slow: bool) -> Iterator[Number]:
    """Everybody in rounds exactly 32 apart: one Gaussian mechanism on the run."""
    page = "privacy/bands"
    noise = accounting.calibrate_noise_multiplier(
        dp_accounting.GaussianDpEvent, 10.0, 1e-5, method="rdp"
    )
    yield Number(page, "z, one Gaussian mechanism, dense", ".4f", noise)
    plan = mf.FixedEpochs(16, 32)
    several = {"separation": 32, "participations": 16}
    ways: Mapping[str, tuple[str, Mapping[str, int]]] = {
        "optimal dense C": ("optimal-epochs", {"separation": 32}),
        "3 buffers": ("blt", {"buffers": 3, **several}),
        "C^-1 with 8 diagonals": ("banded-inverse", {"bands": 8, **several}),
    }
    for name, (method, parameters) in ways.items():
        if method == "optimal-epochs" and not is_slow:
            continue
        found = mf.compute(mf.prefix_sum(512), method, **parameters)
        yield Number(
            page, f"error, {name}, dense", ".2f", noise * found.errors(plan).root_mean
        )


def _rounded() -> Iterator[Number]:
    page = "privacy/rounding"
    for bits, granularity in _GRIDS.items():
        noise = summed_noise.DiscreteGaussianNoise(100, 0.1 / granularity)
        for name, size in (("clip", 1.0), ("0.0064 of it", 0.0064)):
            rate = rounding.rounded_rate(_ORDERS, noise, size / granularity)
            for order, one in zip(_ORDERS, rate):
                over = float(one) * 2 * noise.variance / order
                yield Number(page, f"RDP, {bits} bits, {name}, {order}", ".5f", over)
    for clients, length in ((50, 160), (1000, 10**6), (10**6, 10**7)):
        name = f"least share, n = {clients}, m = {length}"
        yield Number(page, name, ".2f", least_share(clients, length))


def least_share(clients: int, length: int) -> float:
    """Returns from how many steps on a share is covered without a clip to one step.

    Args:
      clients: How many shares the noise has.
      length: Of the vector.
    """
    low, high = 0.5, 4.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        noise = summed_noise.DiscreteGaussianNoise(clients, middle)
        is_enough = rounding.is_covered(noise, 2.0, length)
        low, high = (low, middle) if is_enough else (middle, high)
    return high


def _integers() -> Iterator[Number]:
    """Why the noise of a release in integers has 4 more than s^2."""
    page = "privacy/fixed_point"
    # s = 3, a shift of 3 and epsilon = 3.
    s, shift, epsilon = 3.0, 3.0, 3.0
    x = np.arange(-60.0, 61)
    law = stats.norm.pdf(x / s) / stats.norm.pdf(x / s).sum()
    ratio = np.exp((2 * x * shift - shift**2) / (2 * s**2))
    stick = float(np.sum(law * np.maximum(ratio - math.exp(epsilon), 0)))
    yield Number(page, "delta, integers", ".3e", stick)
    gaussian = accounting.gaussian_delta(epsilon, s / shift)
    yield Number(page, "delta, Gaussian", ".3e", gaussian)
    # s = 0.4, q = 1e-4 and alpha = 1.1.
    s, q, alpha = 0.4, 1e-4, 1.1
    law = stats.norm.pdf(x / s) / stats.norm.pdf(x / s).sum()
    mixed = 1 - q + q * np.exp((2 * x - 1) / (2 * s**2))
    log_moment = math.log1p(float(np.sum(law * np.expm1(alpha * np.log(mixed)))))

    def grown(y: float) -> float:
        one = 1 - q + q * math.exp((2 * y - 1) / (2 * s**2))
        return stats.norm.pdf(y, scale=s) * math.expm1(alpha * math.log(one))

    found, _ = integrate.quad(grown, -4, 8, epsabs=1e-18, points=(0.5, 1, 2), limit=500)
    percent = 100 * (log_moment / math.log1p(found) - 1)
    yield Number(page, "percent of a sampled moment", ".1f", percent)


def _digits() -> Iterator[Number]:
    found = {}
    for dimension in (15_994, 2**20):
        calibrated: Any = planning.calibrate(
            mechanisms.L2Csgm(50, 1.0, 1.0, 0.01),
            mechanisms.PoissonSampling(100, 50, 60),
            dimension,
            _EPSILON,
            1e-3,
        )
        found[dimension] = calibrated.noise_multiplier
        yield Number("tasks", f"z, d = {dimension}", ".1f", found[dimension])
    small, large = (d * z**2 for d, z in found.items())
    yield Number(
        "tasks", "total noise over that of the small model", ".0f", large / small
    )


def _tails() -> Iterator[Number]:
    """A uniform float32 is 1e-7 at the least, and Box-Muller ends there."""
    last = math.sqrt(-2 * math.log(1e-7))
    yield Number("privacy/audit", "end of a float32 normal sampler", ".2f", last)
    yield Number("noise", "end of a float32 normal sampler", ".1f", last)
    beyond = 2 * float(stats.norm.sf(4))
    yield Number("sketching", "chance beyond 4 deviations", ".2e", beyond)


def error_of_sums(way: str) -> float:
    """Returns the noise of all sums in `stream_training`, at z = 1 and clip 1.

    Args:
      way: How the noise of rounds is correlated, as the table calls it.

    Returns:
      The root of the mean over rounds of the variance of the sum so far.
    """
    rounds = stream_training.SHARED["rounds"]
    epoch = stream_training.ROUNDS_PER_EPOCH
    groups = {
        "one stream": epoch,
        "one stream, cyclic sampling": stream_training.GROUPS,
    }
    if way == "by epochs":
        found = bands_curve.encoder_of(mf.prefix_sum(epoch), epoch)
        within = found.step_errors()
        ended = np.arange(rounds) // epoch * within[-1]
        return float(np.mean(ended + np.resize(within, rounds)) ** 0.5)
    if way not in groups:
        return float(((rounds + 1) / 2) ** 0.5)
    workload = mf.prefix_sum(rounds)
    return bands_curve.encoder_of(workload, groups[way]).errors().root_mean


def _sums() -> Iterator[Number]:
    """Yields the noise of all sums in `stream_training`, in units of the clip."""
    # Seeds share the noise multiplier.
    for row in result_rows.where(result_rows.read_csv(_STREAM_TRAINING), seed=1):
        noise = float(row["noise_multiplier"]) * error_of_sums(row["way"])
        name = f"noise of sums, {row['mechanism']}, {row['way']}"
        yield Number("figures", name, ".2f", noise)


def _one_accountant() -> Iterator[Number]:
    """Yields the noise of MF in `sgmf_fig7` at the small budget, by each accountant."""
    choice = participation.build("once_per_epoch", 836, 100, 48, rounds_per_epoch=8)
    config = mechanisms.MatrixFactorization(
        cohort_size=100, noise_multiplier=1.0, clip_norm=1.0, rounds_per_epoch=8
    )
    for accountant in ("tight", "rdp"):
        calibrated: Any = planning.calibrate(
            config, choice, _MNIST_MODEL, 2.0, 1e-4, accountant
        )
        name = f"z, MF, sgmf_fig7, epsilon = 2, {accountant}"
        yield Number("figures", name, ".2f", calibrated.noise_multiplier)


def numbers(is_slow: bool = True) -> Iterator[Number]:
    """Yields the numbers.

    Args:
      is_slow: Whether those that take most of the time are among them.
    """
    yield from _trainings()
    yield from _sgmf()
    yield from _slots()
    yield from _trees()
    yield from _groups()
    yield from _streams(is_slow)
    yield from _one_gaussian(is_slow)
    yield from _rounded()
    yield from _integers()
    yield from _digits()
    yield from _tails()
    yield from _sums()
    yield from _one_accountant()


def main(argv: Sequence[str]) -> None:
    """Writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, help="the CSV file to write")
    options = parser.parse_args(argv)
    found = list(numbers())
    columns: dict[str, list[object]] = {
        name: [getattr(one, name) for one in found] for name in Number._fields
    }
    columns["value"] = [f"{one.value:.10g}" for one in found]
    result_rows.write_columns(options.table, columns)


if __name__ == "__main__":
    main(sys.argv[1:])
