# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Bands of a stream over a whole run: the number with least error at equal epsilon.

    run = StreamRun(workload, 10_000, cohort_size=100, epsilon=8.0, delta=1e-5)
    best([point(run, bands) for bands in usual_bands(run)]).bands

An encoder C with h diagonals requires rounds of a client to be h apart. More bands make
the errors of the iterates smaller for the same noise. But with clients that are dealt
into h groups that take turns, a client is drawn from fewer: with probability
q' = h n / N, and amplification by sampling is lost. At h = 1 the noise is independent
and sampling is Poisson sampling; at h = floor(N / n) everybody takes part every h
rounds (q' is 1 if n divides N). The least error is in between.

Errors are those of the noise alone: standard deviations of a coordinate of an iterate,
root mean square over the iterates, in units of the clip norm and for sums (over n for
means). The errors by dropped coordinates and by the choice of clients are the same for
all h.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import dp_accounting
import numpy as np

from dpfl import accounting, checks
from dpfl import factorization as fact
from dpfl.accounting import trees
from dpfl.accounting.balls_in_bins import BallsInBinsDpEvent
from dpfl.accounting.calibration import ACCOUNTING_METHODS
from dpfl.accounting.matrix_factorization import banded_stream_event
from dpfl.accounting.min_separation import MinSeparationDpEvent
from dpfl.factorization import factorization
from dpfl.fields import Checked, option, required
from dpfl.mechanisms.participation import (
    BallsInBins,
    BMinSeparation,
    CyclicPoisson,
    OncePerEpoch,
)

# Maps a noise multiplier to one release of a client.
Release = Callable[[float], dp_accounting.DpEvent]
ENCODERS = ("toeplitz", "banded")
"""Methods of `dpfl.factorization` that find C with h diagonals."""
PARTICIPATIONS = (
    *(CyclicPoisson.name, OncePerEpoch.name),
    *(BallsInBins.name, BMinSeparation.name),
)
"""Names of the possible choices of clients."""
HIDDEN = PARTICIPATIONS[2:]
"""Names of those in which the rounds of a client are its secret."""
RESTARTING = "restarting"
"""The `encoder` of a point with a stream for each epoch in place of one."""


@dataclasses.dataclass(frozen=True)
class StreamRun(Checked):
    """A run whose noise is one stream, its bands yet to be chosen.

    Attributes:
      workload: A, of all T rounds.
      population: N.
      cohort_size: n, clients expected in a round.
      epsilon: The budget's.
      delta: The budget's.
      release: Maps a noise multiplier z to the event of one round for a client that is
        in it: a Gaussian, or one on coordinates kept at random, as
        `banded_stream_event` takes it.
      participation: One of `PARTICIPATIONS`, by name: clients are dealt into as many
        groups as C has bands, and drawn from their group; or each takes part once in
        every epoch of floor(N / n) rounds, h rounds apart at least; or its rounds are a
        secret, in floor(N / n) groups or h rounds apart at least. The last two are for
        releases of a Gaussian alone, and take a minute of draws for a point.
      encoder: One of `ENCODERS`. Free entries ('banded', unless Toeplitz is better)
        take minutes where there are thousands of rounds, and gain a percent or so.
      accounting_method: See `dpfl.accounting.epsilon`.
    """

    workload: fact.Workload
    population: int = required(None, at_least=1)
    cohort_size: int = required(None, at_least=1)
    epsilon: float = required(None, above=0)
    delta: float = required(None, check=checks.delta)
    release: Release = option(
        dp_accounting.GaussianDpEvent, None, check=checks.function
    )
    participation: str = option(CyclicPoisson.name, None, choices=PARTICIPATIONS)
    encoder: str = option("toeplitz", None, choices=ENCODERS)
    accounting_method: str = option("auto", None, choices=ACCOUNTING_METHODS)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer("cohort_size", self.cohort_size, at_most=self.population)
        if not self.is_hidden:
            return
        release = trees.bare(self.release(1.0))
        if not isinstance(release, dp_accounting.GaussianDpEvent):
            raise ValueError(
                "release must be a GaussianDpEvent for participation "
                f"{self.participation!r}, found {release}"
            )

    @property
    def sampled(self) -> bool:
        """Whether clients of a group are drawn at random when it has its turn."""
        return self.participation != OncePerEpoch.name

    @property
    def is_hidden(self) -> bool:
        """Whether the rounds of a client are its secret."""
        return self.participation in HIDDEN

    @property
    def rounds(self) -> int:
        """T, the number of rounds."""
        return self.workload.rounds

    @property
    def most_groups(self) -> int:
        """floor(N / n), the rounds of an epoch: more groups are too small for n."""
        return self.population // self.cohort_size


@dataclasses.dataclass(frozen=True)
class StreamPoint:
    """A stream over the run, with the noise that meets the budget.

    Attributes:
      bands: h, diagonals of C.
      separation: b, least distance of two rounds of a client; more than h only where
        there are fewer rounds.
      sampling_probability: q', with which a client joins a round of its group.
      participations: The most rounds that a client may be in.
      encoder: The method that found C, a key of `factorization.METHODS`; or
        `RESTARTING`, where the run ends soon after an epoch and streams that end with
        it are better.
      noise_multiplier: z, the noise over the sensitivity of one participation.
      root_mean_error: Standard deviation of the iterates' noise, a coordinate, in units
        of the clip norm: the root of the mean of their variances.
      last_error: Standard deviation of the last iterate's noise.
    """

    bands: int
    separation: int
    sampling_probability: float
    participations: int
    encoder: str
    noise_multiplier: float
    root_mean_error: float
    last_error: float


def usual_bands(run: StreamRun) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, ... and floor(N / n), ascending.

    At most one number is beyond T: a client that takes part once gains nothing from
    more groups.
    """
    most = run.most_groups if run.sampled else min(run.most_groups, run.rounds)
    powers = [2**k for k in range(most.bit_length())]
    between = [3 * power for power in powers]
    numbers = {h for h in powers + between if h <= min(most, run.rounds)}
    return sorted(numbers | {most})


def point(
    run: StreamRun,
    separation: int,
    guess: float = 1.0,
) -> StreamPoint:
    """The stream with as many bands as a client's rounds are apart.

    Args:
      run: The run.
      separation: b, at most floor(N / n); C has as many bands, or T if that is less.
      guess: A noise multiplier near the result's, such as a neighbour's.

    Raises:
      ValueError: `separation` is out of range.
      accounting.CalibrationError: no noise meets the budget.
    """
    b = checks.integer("bands", separation, at_most=run.most_groups)
    bands = min(b, run.rounds)
    if run.is_hidden:
        return _hidden(run, encoder_of(run.workload, bands, run.encoder), b, guess)
    # Rounded to 1 at most, which means everybody.
    q = min(1.0, b * run.cohort_size / run.population) if run.sampled else 1.0
    count = -(-run.rounds // b)
    if not run.sampled:
        count = min(count, -(-run.rounds // run.most_groups))

    wanted = ENCODERS[: ENCODERS.index(run.encoder) + 1]
    points = [
        _with_noise(run, encoder_of(run.workload, bands, method), b, q, count, guess)
        for method in wanted
    ]
    may_restart = b == run.most_groups and run.workload.is_prefix_sum
    # Rounds just after an epoch's end add little if the noise has started afresh.
    if may_restart and run.rounds > run.most_groups and run.rounds % run.most_groups:
        points.append(restarting(run))
    return best(points)


def _with_noise(
    run: StreamRun,
    encoder: fact.Factorization,
    b: int,
    q: float,
    count: int,
    guess: float,
) -> StreamPoint:
    """The stream of an encoder, with the noise that meets the budget."""
    last = 1.0
    if isinstance(encoder.factors, fact.ToeplitzFactors):
        # The last columns are cut off at the end of the run.
        rest = run.rounds - (-(-run.rounds // b) - 1) * b
        longest = encoder.sensitivity().value
        last = longest / float(np.linalg.norm(encoder.factors.c[:rest]))

    def event(noise_multiplier: float) -> dp_accounting.DpEvent:
        return banded_stream_event(
            run.release(noise_multiplier),
            rounds=run.rounds,
            bands=min(b, run.rounds),
            separation=b,
            sampling_probability=q,
            participations=count,
            last_release=None if last == 1 else run.release(noise_multiplier * last),
            independent_groups=run.sampled,
        )

    return _point(run, encoder, (b, q, count), event, guess)


def _hidden(
    run: StreamRun, encoder: fact.Factorization, b: int, guess: float
) -> StreamPoint:
    """The stream of an encoder where the rounds of a client are its secret."""
    longest = encoder.sensitivity().value
    if run.participation == BallsInBins.name:
        separation, q = run.most_groups, 1.0
        shifts = factorization.group_shifts(encoder, run.rounds, separation)
        gram = shifts @ shifts.T

        def event(noise_multiplier: float) -> dp_accounting.DpEvent:
            return BallsInBinsDpEvent(noise_multiplier * longest, gram, separation)

    else:
        chosen = BMinSeparation(run.population, run.cohort_size, run.rounds, b)
        separation, q = b, chosen.turn_probability
        columns = factorization.columns(encoder, run.rounds)

        def event(noise_multiplier: float) -> dp_accounting.DpEvent:
            return MinSeparationDpEvent(noise_multiplier * longest, columns, b, q)

    count = -(-run.rounds // separation)
    return _point(run, encoder, (separation, q, count), event, guess)


def _point(
    run: StreamRun,
    encoder: fact.Factorization,
    turns: tuple[int, float, int],
    event: Release,
    guess: float,
) -> StreamPoint:
    """An encoder with the noise that meets the budget.

    Args:
      run: The run.
      encoder: The factorization of its C.
      turns: The separation, the sampling probability and the participations.
      event: Maps a noise multiplier to the run's event.
      guess: See `point`.
    """
    noise_multiplier = accounting.calibrate_noise_multiplier(
        event,
        run.epsilon,
        run.delta,
        accounting_method=run.accounting_method,
        guess=guess,
    )
    errors = encoder.errors()
    separation, q, count = turns
    return StreamPoint(
        bands=encoder.factors.bands,
        separation=separation,
        sampling_probability=q,
        participations=count,
        encoder=encoder.method,
        noise_multiplier=noise_multiplier,
        root_mean_error=noise_multiplier * errors.root_mean,
        last_error=noise_multiplier * float(np.sqrt(errors.last)),
    )


@functools.lru_cache(maxsize=64)
def encoder_of(
    workload: fact.Workload, bands: int, method: str = "toeplitz"
) -> fact.Factorization:
    """The best encoder C with `bands` diagonals; the optimal one if A has no more.

    Args:
      workload: A, of all rounds.
      bands: h, at most the number of rounds.
      method: One of `ENCODERS`.
    """
    if bands == workload.rounds:
        return fact.compute(workload, "optimal")
    return fact.compute(workload, method, bands=bands)


def restarting(run: StreamRun) -> StreamPoint:
    """Streams of prefix sums, for comparison, that restart every epoch.

    Each client is in one round of every epoch of floor(N / n) rounds, and the optimal
    factorization of an epoch is used. The error of an epoch's last sum stays in all
    sums after it. `run.sampled` and `run.encoder` have no effect.

    Raises:
      ValueError: The workload is no prefix sum.
      accounting.CalibrationError: no noise meets the budget.
    """
    if not run.workload.is_prefix_sum:
        raise ValueError(
            "workload must be a prefix sum for restarting streams, found "
            f"{run.workload}"
        )
    length = min(run.most_groups, run.rounds)
    epochs, rest = divmod(run.rounds, length)
    encoder = encoder_of(fact.prefix_sum(length), length)
    # Only the first rows of a partial epoch are released.
    part = encoder.sensitivity().value / encoder.sensitivity(rounds=max(rest, 1)).value

    def event(noise_multiplier: float) -> dp_accounting.DpEvent:
        whole = dp_accounting.SelfComposedDpEvent(run.release(noise_multiplier), epochs)
        if not rest:
            return whole
        return dp_accounting.ComposedDpEvent(
            [whole, run.release(noise_multiplier * part)]
        )

    noise_multiplier = accounting.calibrate_noise_multiplier(
        event, run.epsilon, run.delta, accounting_method=run.accounting_method
    )
    rows = encoder.step_errors()
    sums = np.arange(run.rounds) // length * rows[-1]
    sums += np.resize(rows, run.rounds)
    return StreamPoint(
        bands=length,
        separation=run.most_groups,
        sampling_probability=1.0,
        participations=epochs + bool(rest),
        encoder=RESTARTING,
        noise_multiplier=noise_multiplier,
        root_mean_error=noise_multiplier * float(np.sqrt(np.mean(sums))),
        last_error=noise_multiplier * float(np.sqrt(sums[-1])),
    )


def best(points: Sequence[StreamPoint]) -> StreamPoint:
    """The point of the least error, with the fewest bands among equals."""
    return min(points, key=lambda each: (each.root_mean_error, each.bands))
