# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The noise of a mechanism for a training loop of any kind, without TensorFlow.

    noise = dpfl.noise(mechanism, plan, dimension)
    for clients, drawn in zip(cohorts, noise):
        total = sum(clipped(update_of(client)) for client in clients)  # float32[d]
        step((total + drawn) / mechanism.cohort_size)

Each row is drawn when it is asked for, and is to be added before anybody sees the sum.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Optional

import numpy as np

from dpfl import checks, files, noise_streams, seed_domains
from dpfl.arrays import philox
from dpfl.mechanisms.gaussian import Gaussian
from dpfl.mechanisms.matrix_factorization import MatrixFactorization
from dpfl.mechanisms.mechanism import Mechanism
from dpfl.mechanisms.participation import Participation
from dpfl.noise_streams import stream as stream_lib
from dpfl.planning import budget


class Noise(Iterator[np.ndarray]):
    """Rows of noise for the sums of clipped updates, float32[d], one a round.

    Attributes:
      round: The round of the next row.
      rounds: The number of rounds of the run.
    """

    def __init__(
        self,
        stream: noise_streams.NoiseStream,
        scale: float,
        rounds: range,
        about: str,
        fixed: Optional[tuple[int, int]],
        row_seeds: Iterable[Any] = (),
    ):
        """Initializes the rows from a stream in numpy, which restarts at its end.

        Args:
          stream: The stream of noise of unit scale.
          scale: Factor of its rows.
          rounds: The rounds whose rows are drawn.
          about: An identity of everything else that the rows depend on.
          fixed: Two words that all rows follow from; None for fresh rows.
          row_seeds: Seeds of the stream's earlier rows, if rows are fresh.
        """
        self.round, self.rounds = rounds.start, rounds.stop
        self._stream, self._about = stream, about
        self._scale = np.float32(scale)
        self._fixed = fixed
        row = self.round % stream.rounds
        self._row_seeds = [np.asarray(seed, np.int64) for seed in row_seeds]
        if fixed is not None and stream.has_memory:
            self._row_seeds = [self._row_seed(before) for before in range(row)]
        self._memory = stream.memory_before(self._draw, row)

    def __next__(self) -> np.ndarray:
        if self.round >= self.rounds:
            raise StopIteration
        row = self.round % self._stream.rounds
        if row == 0:
            self._row_seeds, self._memory = [], self._stream.initial_memory()
        own = self._row_seed(row)
        if self._stream.has_memory:
            # Another list, since a shallow copy of this object has the old one.
            self._row_seeds = [*self._row_seeds, own]
        past, self._memory = self._stream.past(self._draw, row, self._memory)
        drawn = self._stream.drawn(own)
        noise, self._memory = self._stream.taken(row, past, drawn, self._memory)
        self.round += 1
        return self._scale * noise

    def state(self) -> dict[str, Any]:
        """State of the run for a resumption, as numbers and lists for JSON or pickle.

        It has the seeds of the released rows, as far as later rows depend on them. With
        them that noise can be subtracted again. Later rows are not in it: a round that
        is repeated after a restore has other noise.

        The digest detects a state of another mechanism, and numbers that a file
        rounded: with a past that was not released later rows would have too little
        noise.
        """
        return _state(self._about, self.round, self._row_seeds)

    def _draw(self, row: int) -> np.ndarray:
        # Missing rows have no weight.
        last = len(self._row_seeds) - 1
        return self._stream.drawn(self._row_seeds[min(row, last)])

    def _row_seed(self, row: int) -> np.ndarray:
        if self._fixed is None:
            return np.frombuffer(secrets.token_bytes(16), np.int64)
        # The seed of the stream that begins in a round, as the aggregator's of a round.
        first = self.round - self.round % self._stream.rounds
        domain = seed_domains.RoundDomain
        domains = domain.SERVER_NOISE, domain.UPDATE_NOISE
        of_stream = philox.fold_in(self._fixed, first, *domains)
        return stream_lib.row_seed(of_stream, row)


@checks.of_arguments(budget.OF_A_RUN)
def noise(
    mechanism: Mechanism,
    participation: Participation,
    dimension: int,
    *,
    seed: Optional[int] = None,
    first_round: int = 0,
    state: Optional[Mapping[str, Any]] = None,
) -> Noise:
    """The noise of each round of a run, for `Gaussian` and `MatrixFactorization`.

    It has the law that `dpfl.epsilon` of the same arguments accounts for, if a client's
    update is clipped to `clip_norm`, the sum is over the clients that `participation`
    chose, and nobody sees it without its noise. For A = B C it is sigma A^-1 B Z, so
    that an optimizer that applies the workload A (for the prefix sum plain SGD at a
    constant rate) releases A G + sigma B Z.

    Z is on a grid of 2**-18, with the same integers as dpfl's own rounds, but the sum
    is the caller's float32: an attack on the last bits of a release is not covered, as
    for every stream of correlated noise (docs/noise.md).

    Args:
      mechanism: The mechanism with its noise multiplier; a `Gaussian` with a fixed
        clip.
      participation: The choice of clients over the run.
      dimension: Length d of the flattened model update.
      seed: None for rows of the operating system's entropy, each drawn when it is asked
        for. A whole number below 2**126, for reproducible simulations, gives the same
        noise for the same mechanism and dimension: a round that is repeated with other
        clients or another model then has the same noise, and the difference of the two
        releases has none.
      first_round: With a seed the round to begin with, to resume an interrupted run. A
        recurrence draws the earlier rows again.
      state: Without a seed `Noise.state()` of the interrupted run; None for a new run.

    Raises:
      TypeError: If the mechanism's noise is not a row for each round.
      ValueError: If the mechanism cannot have its clients chosen like that, if its
        noise would take days, if there is no such round, or if a seed is given beside a
        state, or a first round without a seed.
    """
    rounds = participation.rounds
    if isinstance(mechanism, MatrixFactorization):
        mechanism.check(participation, dimension)
        mechanism.check_cost(participation, dimension)
        stream = noise_streams.build_stream(mechanism.factorization, dimension)
        scale = mechanism.stddev
    elif isinstance(mechanism, Gaussian) and not mechanism.adaptive_clipping:
        mechanism.check(participation, dimension)
        stream = noise_streams.BandedStream(np.ones([rounds, 1]), dimension)
        scale = mechanism.noise_multiplier * mechanism.clip_norm
    else:
        raise TypeError(
            "mechanism must be MatrixFactorization, or Gaussian with a fixed clip, "
            f"found {mechanism!r}; dpfl.aggregator(mechanism) adds the noise of others"
        )
    about = f"noise:{mechanism.identity}:{dimension}"
    first_round = checks.integer("first_round", first_round, 0, rounds)
    if seed is not None:
        if state is not None:
            raise ValueError("state must be left out with a seed, found both")
        words = philox.seed_from_int(seed, about)
        return Noise(stream, scale, range(first_round, rounds), about, words)
    wanted = "0 without a seed, since a state has its own round"
    checks.require(not first_round, "first_round", wanted, first_round)
    if state is None:
        return Noise(stream, scale, range(rounds), about, None)
    begin, row_seeds = _checked(state, rounds, about)
    # At the end of a stream the seeds are not needed by any later row.
    row_seeds = row_seeds[: begin % stream.rounds]
    return Noise(stream, scale, range(begin, rounds), about, None, row_seeds)


def _state(about: str, number: int, row_seeds: Iterable[Any]) -> dict[str, Any]:
    seeds = [[int(word) for word in seed] for seed in row_seeds]
    state = {"round": number, "row_seeds": seeds}
    return {**state, "digest": files.digest({"about": about, **state})}


def _checked(
    state: Mapping[str, Any], rounds: int, about: str
) -> tuple[int, np.ndarray]:
    """The round and the seeds of a state; ValueError if it is not of such a stream."""
    try:
        begin = checks.integer("round", state["round"], 0, rounds)
        seeds = np.asarray(state["row_seeds"], np.int64).reshape(-1, 2)
        is_same = state["digest"] == _state(about, begin, seeds)["digest"]
    except (KeyError, TypeError, ValueError, OverflowError):
        is_same = False
    if not is_same:
        # Without the state, as it reveals the noise.
        raise ValueError(
            "state must be an unchanged Noise.state() of the same mechanism, dimension "
            "and participation, found another one"
        )
    return begin, seeds
