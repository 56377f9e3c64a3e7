# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Matrix factorization (DP-FTRL): noise correlated over rounds.

    mechanism = MatrixFactorization(
        cohort_size=100, rounds_per_epoch=64, clip_norm=1.0, noise_multiplier=1.0
    )
    error = mechanism.mean_squared_error(dimension)

Its stream lasts an epoch, in which a client takes part once, or the whole run. Over a
run the rounds of one client should be as far apart as C has diagonals: each of them is
then one release (`accounting.matrix_factorization`), which client sampling amplifies.
Updates that are not sparsified may have any C, at the sensitivity of all rounds of a
client together, without amplification. The proofs are in
docs/privacy/matrix_factorization.md.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Optional, cast

import dp_accounting
import numpy as np
from dp_accounting import DpEvent

from dpfl import accounting, checks
from dpfl import factorization as fact
from dpfl.accounting import balls_in_bins, matrix_factorization, min_separation
from dpfl.factorization import factorization, sensitivity
from dpfl.fields import option, required
from dpfl.mechanisms import mechanism
from dpfl.mechanisms.matrix_fields import MatrixFields
from dpfl.mechanisms.participation import (
    BallsInBins,
    BMinSeparation,
    CyclicPoisson,
    KOfT,
    OncePerEpoch,
    Participation,
    RandomAllocation,
)

EPOCH, RUN = "epoch", "run"
# Most processor hours for the noise of a run: a matrix with a recurrence takes minutes,
# and its error is hardly larger.
_MOST_HOURS = 24
# Copies of a block of noise in memory: the last one, the next one, its zeros, products
# and sums in transit, and chunks of Z with their sources.
_BLOCKS = 7
# Sensitivities of a dense stream over a run are computed after so many parts of it.
_PARTS = 64
# Vectors of a stream: a row of noise in transit, and the states before and after it.
_OF_A_STREAM = 8


@functools.lru_cache(maxsize=8)
def sum_noise(matrices: fact.Factorization, rounds: int) -> np.ndarray:
    """Standard deviation of each round's noise for a unit of Z, float64[rounds]."""
    return np.linalg.norm(matrices.noising_rows()[:rounds], axis=1)


def iterate_stddev(
    matrices: fact.Factorization, stddev: float, rounds: int
) -> np.ndarray:
    """The standard deviation of each row of B Z, float64[rounds].

    Args:
      matrices: The factorization A = B C.
      stddev: Standard deviation of an entry of Z.
      rounds: The number of first rows, at most those of the factorization.
    """
    return (
        stddev * np.sqrt(matrices.factors.row_norms_squared(matrices.workload))[:rounds]
    )


@dataclasses.dataclass(frozen=True)
class EpochFields:
    """The field `rounds_per_epoch`, which has no default and must precede all others.

    Attributes:
      rounds_per_epoch: Rounds after which the noise starts afresh; those of an epoch of
        the participation, in which a client takes part at most once. None for a stream
        over the whole run, where it has no effect.
    """

    rounds_per_epoch: Optional[int] = required(
        "Rounds of an epoch, in which a client takes part at most once; for any "
        "mechanism if --participation has epochs.",
        at_least=1,
    )


@dataclasses.dataclass(frozen=True)
class StreamedMatrix(MatrixFields, mechanism.NoiseMechanism, EpochFields):
    """A mechanism with a stream of noise: its duration, and its factorization.

    Attributes:
      noise_stream: "epoch" or "run".
      rounds: T, the rounds of a stream over the whole run, all of which the matrix has;
        None for a stream of an epoch.
    """

    noise_stream: str = option(
        EPOCH,
        "epoch: the noise starts afresh each epoch; run: it is one stream over all "
        "rounds, of a matrix with at most --min_separation diagonals.",
        choices=(EPOCH, RUN),
    )
    rounds: Optional[int] = option(
        None, "Rounds of a stream over the whole run.", at_least=1
    )

    # Whether C may have more diagonals than lie between the rounds of a client, for a
    # stream over a run.
    takes_any_matrix: ClassVar[bool]
    released_measurements: ClassVar[tuple[str, ...]] = (
        "clip_norm",
        "noise_stddev",
        "iterate_noise_stddev",
    )
    privacy_page: ClassVar[str] = "matrix_factorization.md"
    remembers_noise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_over_run:
            if self.rounds is None:
                raise ValueError("rounds must be given for noise_stream 'run'")
        else:
            checks.integer("rounds_per_epoch", self.rounds_per_epoch)
            wanted = "left out for noise_stream 'epoch'"
            checks.require(self.rounds is None, "rounds", wanted, self.rounds)
        self.check_matrix(self.stream_rounds)

    @classmethod
    def filled_in(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """See base class."""
        more = super().filled_in(values)
        if values.get("noise_stream") == RUN:
            more["rounds_per_epoch"] = None
        return more

    @property
    def is_over_run(self) -> bool:
        """Whether the noise never starts afresh."""
        return self.noise_stream == RUN

    @property
    def stream_rounds(self) -> int:
        """Rounds of one stream, and of its matrix."""
        return cast(int, self.rounds if self.is_over_run else self.rounds_per_epoch)

    @property
    def factorization(self) -> fact.Factorization:
        """The factorization A = B C, loaded or computed at the first use.

        Raises:
          ValueError: If the matrix has fewer rounds than a stream, or the file is
            damaged or not there.
        """
        called = "rounds" if self.is_over_run else "rounds_per_epoch"
        return self.find_factorization(self.stream_rounds, called)

    @property
    def matrix_sensitivity(self) -> float:
        """max_j ||C[:, j]||, of the part of C that a stream releases."""
        return self.factorization.sensitivity(rounds=self.stream_rounds).value

    @property
    def stddev(self) -> float:
        """sigma, the standard deviation of an entry of Z."""
        of_round = self.noise_multiplier * self.keep_fraction * self.clip_norm
        return of_round * self.matrix_sensitivity

    @property
    def noise_divisor(self) -> float:
        """Divisor of the noised sum, n `keep_fraction`."""
        return self.cohort_size * self.keep_fraction

    def check(self, participation: Participation, dimension: int) -> None:
        """Raises ValueError unless a client's rounds in a stream can be accounted for.

        A matrix_file that has too few rounds is refused too.
        """
        super().check(participation, dimension)
        if self.is_over_run:
            self._check_run(participation)
        else:
            self._check_epochs(participation)
        if self.matrix_file is not None:
            _ = self.factorization

    def _check_run(self, participation: Participation) -> None:
        is_known = not isinstance(participation, (RandomAllocation, KOfT))
        wanted = "one with a bound for correlated noise, for noise_stream 'run'"
        checks.require(is_known, "participation", wanted, participation.name)
        least, limit = participation.rounds, "the participation's"
        checks.integer("rounds", self.stream_rounds, least, limit=limit)
        h, b = bands(self), participation.separation
        is_hidden = isinstance(participation, BMinSeparation)
        if h > b and (is_hidden or not self.takes_any_matrix):
            raise ValueError(
                f"min_separation must be at least {h}, the number of C's diagonals "
                "(matrix_bands, for matrix_method 'toeplitz' and 'banded'), for "
                f"{self.name} with noise_stream 'run' and participation "
                f"{participation.name!r}, found {b}"
            )

    def _check_epochs(self, participation: Participation) -> None:
        is_once, wanted = isinstance(participation, OncePerEpoch), "'once_per_epoch'"
        wanted += " for noise_stream 'epoch', of one participation per epoch"
        checks.require(is_once, "participation", wanted, participation.name)
        length, own = participation.rounds_per_epoch, self.rounds_per_epoch
        wanted = f"the participation's {length}"
        checks.require(own == length, "rounds_per_epoch", wanted, own)

    def run_vectors(self, dimension: int) -> float:
        """See base class; a stream adds rows, a dense one several blocks of them."""
        matrices = self.factorization
        rows = factorization.stream_rows(matrices, dimension)
        copies = _BLOCKS if factorization.is_dense(matrices) else 1
        return self.peak_vectors + _OF_A_STREAM + copies * rows

    def check_cost(self, participation: Participation, dimension: int) -> None:
        """Raises ValueError if the streams of a run would take days to draw.

        The matrix is computed only where it makes a difference.
        """
        rounds, length = participation.rounds, self.stream_rounds
        seconds = factorization.dense_seconds(length, dimension) * rounds / length
        hours = seconds / 3600
        if hours > _MOST_HOURS and factorization.is_dense(self.factorization):
            raise ValueError(
                "matrix_method must be one that stores a few rows, such as 'banded' "
                f"with matrix_bands=8, for {rounds} rounds of {dimension} parameters, "
                f"found {self.matrix_method!r}, whose noise takes about {hours:.0f} "
                "hours"
            )

    def check_server_optimizer(self, name: str, momentum: Optional[float]) -> None:
        """Raises ValueError if the server would apply the workload a second time."""
        workload = self.factorization.workload
        if workload.is_prefix_sum or (name == "sgd" and not momentum):
            return
        value = repr(name) if name != "sgd" else f"momentum {momentum}"
        raise ValueError(
            "server_optimizer must be 'sgd' without momentum for the workload of "
            f"{workload}, which the aggregator applies, found {value}"
        )

    @abc.abstractmethod
    def _release_event(self, dimension: int, factor: float) -> DpEvent:
        """The release of an epoch, or of one round of a client in a stream over a run.

        Its noise is `factor` times that of `noise_multiplier`.
        """

    def round_dp_event(self, dimension: int, sampling_probability: float) -> DpEvent:
        """The release of a client's epoch, or of its round in a stream over a run.

        Raises:
          ValueError: If clients are sampled for a stream of an epoch: no amplification
            is proven.
        """
        release = self._release_event(dimension, 1.0)
        if sampling_probability == 1:
            return release
        wanted, q = "1 for correlated noise", sampling_probability
        checks.require(self.is_over_run, "sampling_probability", wanted, q)
        return dp_accounting.PoissonSampledDpEvent(sampling_probability, release)

    def again_event(self, participation: Participation, dimension: int) -> DpEvent:
        """See base class: repeated rows are at most one more stream.

        The release is that of a client's epoch, of its round in a stream of few
        diagonals, or of all of its rounds.
        """
        if self.is_over_run and bands(self) > participation.separation:
            return self._dense_event(participation, dimension)
        return self._release_event(dimension, 1.0)

    def _run_event(self, participation: Participation, dimension: int) -> DpEvent:
        if not self.is_over_run:
            return self._epochs_event(participation, dimension)
        if isinstance(participation, BallsInBins):
            noise = self.noise_multiplier * self.matrix_sensitivity
            shifts = factorization.group_shifts(
                self.factorization, participation.rounds, participation.groups
            )
            return balls_in_bins.BallsInBinsDpEvent(
                noise, shifts @ shifts.T, participation.groups
            )
        if isinstance(participation, BMinSeparation):
            return min_separation.MinSeparationDpEvent(
                self.noise_multiplier * self.matrix_sensitivity,
                factorization.columns(self.factorization, participation.rounds),
                participation.separation,
                participation.turn_probability,
            )
        if bands(self) > participation.separation:
            return self._dense_event(participation, dimension)
        matrices = self.factorization
        rounds, b = participation.rounds, participation.separation
        longest = factorization.longest_column(matrices, self.stream_rounds)
        # A client in the largest possible number of rounds has its last one from here
        # on.
        last = factorization.longest_column(matrices, rounds, (-(-rounds // b) - 1) * b)
        more = longest / factorization.longest_column(matrices, rounds)
        shorter = last != longest
        stream = matrix_factorization.banded_stream_event(
            self._release_event(dimension, more),
            rounds=rounds,
            bands=bands(self),
            separation=b,
            participations=participation.max_participations,
            last_release=(
                self._release_event(dimension, longest / last) if shorter else None
            ),
            sampling_probability=participation.sampling_probability,
        )
        return stream.event

    def _epochs_event(self, participation: Participation, dimension: int) -> DpEvent:
        """The streams of whole epochs, and of a last partial one.

        Noise is in proportion to the sensitivity of an epoch's rows. Where only the
        first r of them are released the sensitivity is theirs, and the noise over it is
        more.
        """
        epochs, rest = divmod(participation.rounds, self.stream_rounds)
        parts = []
        if epochs:
            release = self._release_event(dimension, 1.0)
            parts.append(dp_accounting.SelfComposedDpEvent(release, epochs))
        if rest:
            released = self.factorization.sensitivity(rounds=rest).value
            more = self.matrix_sensitivity / released
            release = self._release_event(dimension, more)
            parts.append(dp_accounting.SelfComposedDpEvent(release, 1))
        return (
            parts[0] if len(parts) == 1 else dp_accounting.ComposedDpEvent(tuple(parts))
        )

    def _dense_event(self, participation: Participation, dimension: int) -> DpEvent:
        """The stream as one release, of all rounds of a client together.

        Rounds count up to a 64th of the stream, or to the end of the epoch, or cycle of
        groups, so that a ledger needs few sensitivities. A bound of fewer rounds is
        none of more, and no epoch has less than the one before: epsilon never falls.
        """
        length = participation.rounds_per_epoch or participation.separation
        before = (participation.rounds - 1) // length * length
        last = min(before + length, self.stream_rounds)
        step = -(-self.stream_rounds // _PARTS)
        ends = range(last, participation.rounds - 1, -step)
        of_all = min(self._sensitivity(participation.first(end)) for end in ends)
        if before:
            of_all = max(of_all, self._sensitivity(participation.first(before)))
        release = self._release_event(dimension, self.matrix_sensitivity / of_all)
        return dp_accounting.SelfComposedDpEvent(release, 1)

    def _sensitivity(self, participation: Participation) -> float:
        """The sensitivity of all of a client's rounds together."""
        times, separation = participation.max_participations, participation.separation
        plan: sensitivity.ParticipationSchema = sensitivity.MinSeparation(
            separation, times
        )
        if isinstance(participation, CyclicPoisson):
            plan = sensitivity.FixedEpochs(times, separation)
        elif isinstance(participation, OncePerEpoch):
            length, window = participation.rounds_per_epoch, participation.window
            plan = sensitivity.ShuffledEpochs(length, window)
        return self.factorization.sensitivity(plan, participation.rounds).value

    def noise_error(self, dimension: int) -> float:
        """d (sigma / n)^2 ||A^-1 B||_F^2 / T, the error by noise of a round's mean.

        It is averaged over the rounds, and n is `noise_divisor`. The errors of rounds
        cancel in part; those of the iterates, which a factorization makes small, are
        `factorization.errors()`.
        """
        rows = sum_noise(self.factorization, self.stream_rounds)
        noise = dimension * (self.stddev / self.noise_divisor) ** 2
        return noise * float(np.mean(rows**2))


def bands(config: StreamedMatrix) -> int:
    """h, the number of diagonals of a mechanism's C, as far as its factors show."""
    return config.factorization.factors.bands


def numbers(config: StreamedMatrix, dimension: int) -> dict[str, Any]:
    """The streams as a run's summary has them.

    "kept_bytes" is the state of a stream between rounds, as float32.
    """
    rows = factorization.stream_rows(config.factorization, dimension)
    return {
        "lasts": config.noise_stream,
        "rounds": config.stream_rounds,
        "bands": bands(config),
        "kept_bytes": 4 * rows * dimension,
    }


def sentence(config: StreamedMatrix, dimension: int) -> str:
    """A sentence on the duration of a mechanism's streams, and on their memory."""
    lasts = "one over the whole run" if config.is_over_run else "one for each epoch"
    text = f"{lasts}, {config.stream_rounds} rounds and {bands(config)} diagonals"
    rows = factorization.stream_rows(config.factorization, dimension)
    kept = f"{text}; it keeps {4 * rows * dimension / 1e6:.4g} MB, {rows} vectors"
    minutes = factorization.drawing_seconds(config.factorization, dimension) / 60
    if minutes < 1:
        return kept
    return f"{kept}, and draws for some {minutes:.0f} minutes"


@dataclasses.dataclass(frozen=True)
class MatrixFactorization(StreamedMatrix):
    """Release of A G + B Z over an epoch, or a run (Denisov et al. 2022), A = B C.

    Row t of G is the sum of round t's clipped updates, Z has independent rows of N(0,
    sigma^2 I), and sigma = noise_multiplier clip_norm max_j ||C[:, j]||, of the part of
    C that a stream releases (`factorization.Factors.released_encoder`). The
    aggregator's result in round t is ((A G + B Z)_t - (A G + B Z)_{t-1}) / n, so that
    plain SGD on the server runs through the rows of A G + B Z. The stream starts afresh
    each epoch, or never (`noise_stream`).
    """

    name: ClassVar[str] = "matrix_factorization"
    takes_any_matrix: ClassVar[bool] = True
    takes_secret_participation: ClassVar[bool] = True

    def _release_event(self, dimension: int, factor: float) -> DpEvent:
        noise = self.noise_multiplier * factor
        if self.is_over_run:
            return dp_accounting.GaussianDpEvent(noise)
        return accounting.MatrixFactorizationDpEvent(noise)

    def mean_squared_error(self, dimension: int) -> float:
        """See `noise_error`: there is no other error."""
        return self.noise_error(dimension)
