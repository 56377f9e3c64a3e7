# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The noise of a mechanism for a training loop of any kind, without TensorFlow.

noise = dpfl.noise(mechanism, plan, dimension)
for clients, drawn in zip(cohorts, noise):
    total = sum(clipped(update_of(client)) for client in clients)  # float32[d]
    step((total + drawn) / mechanism.cohort_size)
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any, Optional

import numpy as np

from dpfl import checks, noise_streams, purposes
from dpfl.mechanisms.gaussian import Gaussian
from dpfl.mechanisms.matrix_factorization import MatrixFactorization
from dpfl.mechanisms.mechanism import Mechanism
from dpfl.mechanisms.participation import Participation
from dpfl.planning import budget
from dpfl.vectors import philox

_SEED_BITS = 126


class Noise(Iterator[np.ndarray]):
    """Rows of noise for the sums of clipped updates, float32[d], one a round.

    Attributes:
      seed: The seed of all rounds; who knows it can take the noise off again.
      round: The round of the next row. With the seed it is all that a run has to save.
      rounds: Those of the run.
    """

    def __init__(
        self,
        stream: noise_streams.NoiseStream,
        scale: float,
        rounds: range,
        seed: int,
        identity: str,
    ):
        """Takes a stream in numpy, which starts afresh whenever it is at its end.

        Its rows are scaled. `identity` is all that they depend on besides the seed.
        """
        self.seed = seed
        self.round, self.rounds = rounds.start, rounds.stop
        self._stream = stream
        self._scale = np.float32(scale)
        self._words = philox.seed_from_int(seed, identity)
        self._state: Any = None

    def __next__(self) -> np.ndarray:
        if self.round >= self.rounds:
            raise StopIteration
        row = self.round % self._stream.rounds
        if self._state is None or row == 0:
            self._state = self._stream.seek(self._stream_seed(self.round - row), row)
        noise, self._state = self._stream.next(self._state)
        self.round += 1
        return self._scale * noise

    def _stream_seed(self, first_round: int) -> np.ndarray:
        """That of the stream that begins in a round, as the aggregator makes it."""
        of_round = philox.fold_in(self._words, first_round, purposes.Round.SERVER_NOISE)
        return philox.fold_in(of_round, purposes.Round.UPDATE_NOISE)


@checks.of_arguments(budget.OF_A_RUN)
def noise(
    mechanism: Mechanism,
    participation: Participation,
    dimension: int,
    *,
    seed: Optional[int] = None,
    first_round: int = 0,
) -> Noise:
    """The noise of each round of a run, for `Gaussian` and `MatrixFactorization`.

    It has the law that `dpfl.epsilon` of the same arguments accounts for, if a client's
    update is clipped to `clip_norm`, the sum is over the clients that `participation`
    chose, and nobody sees it without its noise. For A = B C it is sigma A^-1 B Z, so
    that an optimizer that applies the workload A (for the prefix sum plain SGD at a
    constant rate) releases A G + sigma B Z.

    Z is on a grid of 2**-18, the very integers of dpfl's own rounds, but the sum is the
    caller's float32: who reads the last bits of a release is not covered, as for every
    stream of correlated noise (docs/noise.md).

    Args:
      seed: A whole number below 2**126; the same gives the same noise for the same
        mechanism and dimension, and is for one release. None takes one from the
        operating system's entropy; see `Noise.seed`.
      first_round: Where to begin, to go on with a run that was interrupted: rows have
        the bits that they would have had. A recurrence draws the earlier rows again.

    Raises:
      TypeError: If the mechanism's noise is not a row for each round.
      ValueError: If the mechanism cannot have its clients chosen like that, if its
        noise would take days, or if there is no such round.
    """
    rounds = participation.rounds
    if isinstance(mechanism, MatrixFactorization):
        mechanism.check(participation, dimension)
        mechanism.check_cost(participation, dimension)
        stream = noise_streams.build_stream(
            mechanism.factorization, dimension, arrays=noise_streams.InNumpy()
        )
        scale = mechanism.stddev
    elif isinstance(mechanism, Gaussian) and not mechanism.adaptive_clipping:
        mechanism.check(participation, dimension)
        stream = noise_streams.BandedStream(
            np.ones([rounds, 1]), dimension, arrays=noise_streams.InNumpy()
        )
        scale = mechanism.noise_multiplier * mechanism.clip_norm
    else:
        raise TypeError(
            "mechanism must be MatrixFactorization, or Gaussian with a fixed clip, so "
            f"that its noise is a row for each round, found {mechanism!r}; "
            "dpfl.aggregator(mechanism) does all that this one does"
        )
    first = checks.integer("first_round", first_round, at_least=0, at_most=rounds)
    own = secrets.randbits(_SEED_BITS) if seed is None else seed
    identity = f"noise:{mechanism.identity}:{dimension}"
    return Noise(stream, scale, range(first, rounds), own, identity)
