# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Matrix factorization (DP-FTRL), for a trusted server.

    mechanism = mechanisms.MatrixFactorization(
        cohort_size=100, rounds_per_epoch=64, clip_norm=1.0, noise_multiplier=1.0
    )
    codec = MatrixFactorizationCodec(mechanism, dimension, in_numpy)

The server's state holds the stream of noise: the seeds of the released rows of Z, the
current row, and the stream's memory. With `noise_on_host` it holds the past of one
row in place of that memory, computed before each round by `HostNoise` of
`aggregators.host_noise`; the noise is the same. The row of Z of a round is drawn in
that round, so that no state contains noise that was not released.
"""

from __future__ import annotations

from typing import Any, Optional, Union

import numpy as np

from dpfl import noise_streams, seed_domains
from dpfl.arrays import Array
from dpfl.codecs.base import Codec, Decoded, Encoded, Fields, Received, Seed
from dpfl.codecs.integer_sums import IntegerSum
from dpfl.mechanisms import matrix_factorization, sgmf
from dpfl.vectors import clipping, randomness

Config = Union[matrix_factorization.MatrixFactorization, sgmf.Sgmf]


class Release:
    """Maps the unnoised mean of a round to the input of the server's optimizer.

    With A = S diag(eta) M_beta, N_t = (A^-1 B Z)_t and g_t the mean without noise,

      m_t = beta m_{t-1} + g_t + (sigma / divisor) N_t,   result_t = eta_t m_t,

    and the sum of the results up to t is (A G + B Z)_t / divisor. Everything in the
    state that depends on the clients is noised.

    State: `row` (int32, of the epoch), `row_seeds` (int64[T, 2], of which those before
    `row` belong to this epoch), `moment` (float32[d], if beta > 0), and either the
    stream's `memory_<i>`, or `past` (float32[d]) with `past_row`, its row, and
    `past_seed`, the seed of the row before it.

    Measurements: `noise_stddev` (of this round's mean, before momentum), and
    `iterate_noise_stddev` (of the sum of this epoch's results so far).
    """

    def __init__(
        self,
        config: Config,
        dimension: int,
        nx: Any,
        *,
        block_rounds: Optional[int] = None,
        noise_on_host: bool = False,
    ):
        """Builds the stream; `block_rounds` is that of `noise_streams.build_stream`.

        With `noise_on_host`, `HostNoise` supplies the stream's memory.
        """
        factorization = config.factorization
        self.dimension = dimension
        self._nx = nx
        self._rounds = config.stream_rounds
        scale = config.stddev / config.noise_divisor
        self._scale = np.float32(scale)
        self._momentum = np.float32(factorization.workload.momentum)
        self._rates = np.asarray(factorization.workload.rates, np.float32)
        row_stddev = scale * matrix_factorization.sum_noise(factorization, self._rounds)
        self._row_stddev = np.asarray(row_stddev, np.float32)
        self._iterate_stddev = np.asarray(
            matrix_factorization.iterate_stddev(factorization, scale, self._rounds),
            np.float32,
        )
        self._noise_on_host = noise_on_host
        self._stream = noise_streams.build_stream(
            factorization, dimension, block_rounds=block_rounds, redraw=True, nx=nx
        )

    def initial_state(self) -> Fields:
        """The state before the first round."""
        state = Fields(
            row=self._nx.asarray(0, np.int32),
            row_seeds=self._nx.zeros([self._rounds, 2], np.int64),
        )
        if self._momentum:
            state["moment"] = self._nx.zeros([self.dimension], np.float32)
        if self._noise_on_host:
            state.update(self._no_past())
        else:
            state.update(_named(self._stream.initial_memory(), self._nx))
        return state

    def __call__(self, exact: Decoded, noise_seed: Seed) -> Decoded:
        """The increment of A G + B Z over the divisor, with measurements beside it.

        The sum of the updates over the divisor is given without noise, with a state in
        the structure of `initial_state`, and a secret seed of this round, int64[2].
        """
        nx, state, row = self._nx, exact.state, exact.state["row"]
        own_seed = randomness.fold_in(noise_seed, seed_domains.RoundDomain.UPDATE_NOISE)
        seeds = nx.with_row(state["row_seeds"], row, own_seed)
        next_noise = (
            self._noise_from_host if self._noise_on_host else self._noise_of_stream
        )
        unit_noise, kept = next_noise(state, row, seeds)
        increment = exact.mean + nx.product(self._scale, unit_noise)
        if self._momentum:
            momentum = nx.where(nx.equal(row, 0), np.float32(0), self._momentum)
            increment = increment + nx.product(momentum, state["moment"])
            kept["moment"] = increment
        result = self._at(self._rates, row) * increment
        after = nx.asarray((row + 1) % self._rounds, np.int32)
        updated = Fields(row=after, row_seeds=seeds, **kept)
        measured = Fields(
            **exact.measurements,
            noise_stddev=self._at(self._row_stddev, row),
            iterate_noise_stddev=self._at(self._iterate_stddev, row),
        )
        ordered = Fields((name, updated[name]) for name in state)
        return Decoded(result, ordered, measured)

    def _at(self, table: np.ndarray, row: Array) -> Array:
        return self._nx.take(self._nx.table(table), row)

    def _noise_of_stream(
        self, state: Fields, row: Array, seeds: Array
    ) -> tuple[Array, dict[str, Any]]:
        """Row `row` of the stream in the state, and its memory.

        Used by TFF's own training loops; `dpfl-train` has `HostNoise`.
        """
        nx, initial = self._nx, self._stream.initial_memory()
        names = iter(_named(initial, nx))
        kept = nx.tree_map(lambda _: state[next(names)], initial)
        memory = nx.cond(nx.equal(row, 0), self._stream.initial_memory, lambda: kept)
        draw = draw_from(self._stream, seeds)
        unit_noise, after = self._stream.step(draw, row, memory)
        return unit_noise, dict(_named(after, nx))

    def _noise_from_host(
        self, state: Fields, row: Array, seeds: Array
    ) -> tuple[Array, dict[str, Any]]:
        """Row `row`, from the past that `HostNoise` put into the state."""
        nx, stream = self._nx, self._stream
        is_right = nx.equal(state["past_row"], row) & nx.all(
            nx.equal(state["past_seed"], state["row_seeds"][row - 1])
        )
        message = "HostNoise.put_into was not called for this epoch's row"
        checked = stream.checked(row, is_right, message)
        own = stream.drawn(seeds[row])
        unit_noise, _ = stream.taken(
            checked, state["past"], own, stream.initial_memory()
        )
        return unit_noise, self._no_past()

    def _no_past(self) -> dict[str, Any]:
        """The initial part of a state that `HostNoise` fills."""
        return {
            "past": self._nx.zeros([self.dimension], np.float32),
            "past_row": self._nx.asarray(-1, np.int32),
            "past_seed": self._nx.zeros([2], np.int64),
        }


class WithRelease(Codec):
    """A codec whose decoding ends with the `Release` in `_release`."""

    _release: Release

    def initial_state(self) -> Fields:
        """The state of the release."""
        return self._release.initial_state()

    def release(self, received: Received) -> Array:
        """The result itself, a float: its noise is correlated."""
        return self.decode(received).mean


class MatrixFactorizationCodec(WithRelease):
    """Clipped updates; `Release` adds the noise and applies the workload.

    Clients send integers whose norm is exactly within the clip; see `IntegerSum`.

    Measurements: `clip_norm`, and those of `Release`. Exact: `l2_clipped_fraction` (of
    the clients).
    """

    def __init__(
        self,
        config: matrix_factorization.MatrixFactorization,
        dimension: int,
        nx: Any,
        **options: Any,
    ):
        """Initializes the codec; the options are those of `Release`."""
        super().__init__(config, dimension, nx)
        # The grid is as fine as the noise to be added asks for.
        multiplier = config.stddev / config.clip_norm
        self._sum = IntegerSum(dimension, multiplier, config.cohort_size)
        self._release = Release(config, dimension, nx, **options)

    def encode(self, update: Array, shared: Fields, client_seed: Seed) -> Encoded:
        """The clipped update, int32[d].

        See base class for the arguments.
        """
        normed = clipping.safe_norm(update)
        sums = Fields(l2_clipped=normed.norm > self._config.clip_norm)
        return Encoded(self._sum.round(normed, self._config.clip_norm), normed, sums)

    def is_possible(self, message: Array) -> Array:
        """Whether the integers are within their bounds."""
        return self._sum.is_possible(message)

    def zero(self) -> Array:
        """Zeros of the sum's integer dtype."""
        return self._sum.zero(self.nx)

    def decode(self, received: Received) -> Decoded:
        """The result of the release of the sum over n."""
        clip = self._config.clip_norm
        mean = self._sum.to_float(received.total, clip) / self.cohort_size
        measured = Fields(clip_norm=self.nx.asarray(clip, np.float32))
        exact = Decoded(mean, received.state, measured)
        return self._release(exact, received.noise_seed)


def draw_from(stream: noise_streams.NoiseStream, seeds: Any) -> Any:
    """The function that draws a stream's rows of Z, each from its own seed."""
    return lambda row: stream.drawn(seeds[row])


def _named(memory: Any, nx: Any) -> Fields:
    """The arrays of a memory by name, since TFF accepts no empty structures."""
    return Fields(
        (f"memory_{i}", part) for i, part in enumerate(nx.structure_leaves(memory))
    )
