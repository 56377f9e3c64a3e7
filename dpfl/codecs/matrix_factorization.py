# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Matrix factorization (DP-FTRL), for a trusted server.

The server's state holds the stream of noise: the seeds of the released rows of Z, the
current row, and the stream's memory. With `noise_on_host` it holds the past of one
row in place of that memory, computed before each round by `HostNoise`; the noise is
the same. The row of Z of a round is drawn in that round, so that no state contains
noise that was not released.
"""

from __future__ import annotations

import collections
from typing import Any, Optional, Union

import numpy as np
import tensorflow as tf

from dpfl import noise_streams, seed_domains
from dpfl.codecs.base import Codec, Decoded, Encoded, Fields, OuterCodec, Seed
from dpfl.codecs.integer_sums import IntegerSum
from dpfl.mechanisms import matrix_factorization, sgmf
from dpfl.noise_streams.tensors import FusedTensors
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
        self._scale = config.stddev / config.noise_divisor
        self._momentum = factorization.workload.momentum
        self._rates = np.asarray(factorization.workload.rates, np.float32)
        self._row_stddev = np.float32(
            self._scale * matrix_factorization.sum_noise(factorization, self._rounds)
        )
        self._iterate_stddev = np.float32(
            matrix_factorization.iterate_stddev(
                factorization, self._scale, self._rounds
            )
        )
        self._noise_on_host = noise_on_host
        self._stream = noise_streams.build_stream(
            factorization, dimension, block_rounds=block_rounds, redraw=True
        )

    def initial_state(self) -> Fields:
        """The state before the first round."""
        state = collections.OrderedDict(
            row=tf.zeros([], tf.int32),
            row_seeds=tf.zeros([self._rounds, 2], tf.int64),
        )
        if self._momentum:
            state["moment"] = tf.zeros([self.dimension])
        if self._noise_on_host:
            state.update(self._no_past())
        else:
            state.update(_named(self._stream.initial_memory()))
        return state

    def __call__(self, state: Fields, mean: tf.Tensor, noise_seed: Seed) -> Decoded:
        """The round's result, from the sum of the (decoded) updates over the divisor.

        Args:
          state: In the structure of `initial_state`.
          mean: float32[d].
          noise_seed: int64[2], a secret seed of this round.
        """
        row = state["row"]
        own_seed = randomness.fold_in(noise_seed, seed_domains.RoundDomain.UPDATE_NOISE)
        seeds = tf.tensor_scatter_nd_update(
            state["row_seeds"], [[row]], own_seed[tf.newaxis]
        )
        next_noise = (
            self._noise_from_host if self._noise_on_host else self._noise_of_stream
        )
        unit_noise, kept = next_noise(state, row, seeds)
        increment = mean + self._scale * unit_noise
        if self._momentum:
            moment = tf.where(tf.equal(row, 0), 0.0, self._momentum) * state["moment"]
            increment += moment
            kept["moment"] = increment
        result = tf.gather(tf.constant(self._rates), row) * increment
        updated = collections.OrderedDict(
            row=(row + 1) % self._rounds, row_seeds=seeds, **kept
        )
        measured = collections.OrderedDict(
            noise_stddev=tf.gather(self._row_stddev, row),
            iterate_noise_stddev=tf.gather(self._iterate_stddev, row),
        )
        ordered = collections.OrderedDict((name, updated[name]) for name in state)
        return Decoded(result, ordered, measured)

    def _noise_of_stream(
        self, state: Fields, row: tf.Tensor, seeds: tf.Tensor
    ) -> tuple[tf.Tensor, dict[str, Any]]:
        """Row `row` of the stream in the state, and its memory.

        Used by TFF's own training loops; `dpfl-train` has `HostNoise`.
        """
        initial = self._stream.initial_memory()
        kept = tf.nest.pack_sequence_as(initial, [state[i] for i in _named(initial)])
        memory = tf.cond(tf.equal(row, 0), self._stream.initial_memory, lambda: kept)
        draw = _draw_from(self._stream, seeds)
        unit_noise, after = self._stream.step(draw, row, memory)
        return unit_noise, dict(_named(after))

    def _noise_from_host(
        self, state: Fields, row: tf.Tensor, seeds: tf.Tensor
    ) -> tuple[tf.Tensor, dict[str, Any]]:
        """Row `row`, from the past that `HostNoise` put into the state."""
        is_right = tf.equal(state["past_row"], row) & tf.reduce_all(
            tf.equal(state["past_seed"], state["row_seeds"][row - 1])
        )
        check = tf.debugging.Assert(
            is_right,
            [
                "the noise in the aggregator's state is not for row",
                row,
                "of this epoch: HostNoise.put_into was not called",
            ],
        )
        with tf.control_dependencies([check] if check is not None else []):
            past = tf.identity(state["past"])
        unit_noise, _ = self._stream.taken(
            row, past, self._stream.drawn(seeds[row]), self._stream.initial_memory()
        )
        return unit_noise, self._no_past()

    def _no_past(self) -> dict[str, Any]:
        """The initial part of a state that `HostNoise` fills."""
        return {
            "past": tf.zeros([self.dimension]),
            "past_row": tf.constant(-1, tf.int32),
            "past_seed": tf.zeros([2], tf.int64),
        }


class HostNoise:
    """Computes the past of each row in the training program, for the state.

    The stream's memory, a block of rounds for a dense matrix, then stays in this
    object, and one row of d numbers goes to TFF's worker in each round. Losing the
    object loses nothing: its content is computed again from the seeds in the
    aggregator's state.
    """

    def __init__(self, config: Config, dimension: int):
        """Initializes the noise from the configuration of the factory."""
        self._stream = noise_streams.build_stream(
            config.factorization, dimension, arrays=FusedTensors()
        )
        self._after = tf.function(self._past_after, autograph=False)
        self._again = tf.function(self._past_again, autograph=False)
        # The row, and the seed of the row before it, which identify one history.
        self._place: tuple[int, tuple[int, ...]] = (-1, ())
        self._past: Any = None
        self._memory: Any = None

    def put_into(self, state: Fields) -> Fields:
        """Puts the past of the next round's row into a process's state.

        Raises:
          ValueError: If the process was not made with `noise_on_host`.
        """
        if "past_row" not in state:
            raise ValueError(
                "state must come from an aggregator with noise_on_host=True, "
                f"found the fields {list(state)}"
            )
        row, seeds = int(state["row"]), np.asarray(state["row_seeds"])
        if self._place != _place(seeds, row):
            self._compute(seeds, row)
        filled = collections.OrderedDict(state)
        filled["past"] = self._past.numpy()
        filled["past_row"] = np.int32(row)
        filled["past_seed"] = seeds[row - 1]
        return filled

    def _compute(self, seeds: np.ndarray, row: int) -> None:
        if row and self._place == _place(seeds, row - 1):
            made = self._after(self._past, self._memory, *_tensors(seeds, row))
        else:
            # Releases the old block before a new one is computed.
            self._past = self._memory = None
            made = self._again(*_tensors(seeds, row))
        self._past, self._memory = made
        self._place = _place(seeds, row)

    def _past_after(self, past: Any, memory: Any, seeds: Any, row: Any) -> Any:
        """The past of a row and the memory after it, from those of the row before."""
        draw = _draw_from(self._stream, seeds)
        _, memory = self._stream.taken(row - 1, past, draw(row - 1), memory)
        return self._stream.past(draw, row, memory)

    def _past_again(self, seeds: Any, row: Any) -> Any:
        """The past of a row and the memory, from the seeds alone."""
        draw = _draw_from(self._stream, seeds)
        memory = self._stream.memory_before(draw, row)
        return self._stream.past(draw, row, memory)


class ReleasingCodec(OuterCodec):
    """An inner codec that adds no noise, followed by a `Release`.

    Measurements: those of both.
    """

    def __init__(self, inner: Codec, release: Release):
        super().__init__(inner)
        self._release = release

    def initial_state(self) -> Fields:
        """The state of the release."""
        return self._release.initial_state()

    def release(
        self, state: Fields, total: Any, sums: Fields, shared: Fields, noise_seed: Seed
    ) -> tf.Tensor:
        """The result itself, a float: its noise is correlated.

        See base class for the arguments.
        """
        return self.decode(state, total, sums, shared, noise_seed).mean

    def decode(
        self, state: Fields, total: Any, sums: Fields, shared: Fields, noise_seed: Seed
    ) -> Decoded:
        """The increment of A G + B Z over the divisor.

        See base class for the arguments.
        """
        exact = self.inner.decode(state, total, sums, shared, noise_seed)
        released = self._release(state, exact.mean, noise_seed)
        measured = collections.OrderedDict(
            **exact.measurements, **released.measurements
        )
        return released._replace(measurements=measured)


class ClippedSumCodec(Codec):
    """The mean of clipped updates without noise, for codecs that add their own.

    Clients send integers whose norm is exactly within the clip; see `IntegerSum`.

    Measurements: `clip_norm`. Exact: `l2_clipped_fraction` (of the clients).
    """

    def __init__(
        self,
        config: matrix_factorization.MatrixFactorization,
        dimension: int,
        nx: Any,
    ):
        super().__init__(dimension, config.cohort_size, nx)
        self._clip_norm = config.clip_norm
        # The grid is as fine as the noise to be added asks for.
        multiplier = config.stddev / config.clip_norm
        self._sum = IntegerSum(dimension, multiplier, config.cohort_size)

    def encode(self, update: tf.Tensor, shared: Fields, client_seed: Seed) -> Encoded:
        """The clipped update, int32[d].

        See base class for the arguments.
        """
        normed = clipping.safe_norm(update)
        sums = collections.OrderedDict(l2_clipped=normed.norm > self._clip_norm)
        return Encoded(self._sum.round(normed, self._clip_norm), normed, sums)

    def zero(self) -> tf.Tensor:
        """Zeros of the sum's integer dtype."""
        return self._sum.zero(self.nx)

    def decode(
        self, state: Fields, total: Any, sums: Fields, shared: Fields, noise_seed: Seed
    ) -> Decoded:
        """The mean: the sum over n.

        See base class for the arguments.
        """
        mean = self._sum.to_float(total, self._clip_norm) / self.cohort_size
        clip_norm = tf.constant(self._clip_norm, tf.float32)
        return Decoded(mean, state, collections.OrderedDict(clip_norm=clip_norm))


class MatrixFactorizationCodec(ReleasingCodec):
    """Clipped updates; `Release` adds the noise and applies the workload.

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
        clipped = ClippedSumCodec(config, dimension, nx)
        super().__init__(clipped, Release(config, dimension, nx, **options))


def _draw_from(stream: Any, seeds: Any) -> Any:
    """The function that draws a stream's rows of Z, each from its own seed."""
    return lambda row: stream.drawn(seeds[row])


def _place(seeds: np.ndarray, row: int) -> tuple[int, tuple[int, ...]]:
    return row, tuple(seeds[row - 1].tolist()) if row else ()


def _tensors(seeds: np.ndarray, row: int) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.constant(seeds), tf.constant(row, tf.int32)


def _named(memory: Any) -> Fields:
    """The tensors of a memory by name, since TFF accepts no empty structures."""
    return collections.OrderedDict(
        (f"memory_{i}", tensor) for i, tensor in enumerate(tf.nest.flatten(memory))
    )
