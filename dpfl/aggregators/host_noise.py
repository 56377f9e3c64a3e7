# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Correlated noise computed in the training program, outside of TFF's worker.

    factory, put_noise = build_with_host_noise(mechanism, dimension)
    process = factory.create(value_type)
    output = process.next(put_noise(state), updates)  # `HostNoise.put_into`

The factory's rounds refuse a state that has no noise, or that of another round.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import noise_streams
from dpfl.arrays import in_tensorflow
from dpfl.codecs.base import Fields
from dpfl.codecs.matrix_factorization import Config, draw_from


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
            config.factorization, dimension, nx=compiled_arrays()
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
        draw = draw_from(self._stream, seeds)
        _, memory = self._stream.taken(row - 1, past, draw(row - 1), memory)
        return self._stream.past(draw, row, memory)

    def _past_again(self, seeds: Any, row: Any) -> Any:
        """The past of a row and the memory, from the seeds alone."""
        draw = draw_from(self._stream, seeds)
        memory = self._stream.memory_before(draw, row)
        return self._stream.past(draw, row, memory)


def _place(seeds: np.ndarray, row: int) -> tuple[int, tuple[int, ...]]:
    return row, tuple(seeds[row - 1].tolist()) if row else ()


def _tensors(seeds: np.ndarray, row: int) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.constant(seeds), tf.constant(row, tf.int32)


# More vectors at once are no faster, and take longer to compile.
_GROUP = 8


def compiled_arrays() -> Any:
    """TensorFlow's arrays with `minus_weighted` by XLA, which TFF's worker lacks."""
    # Held by the object and not the module, since a graph must end before the
    # interpreter.
    minus_group = tf.function(_minus_group, autograph=False, jit_compile=True)

    def minus_weighted(
        total: tf.Tensor, weights: tf.Tensor, vectors: Sequence[tf.Tensor]
    ) -> tf.Tensor:
        """Reads each vector once, in groups; those of one size are compiled once.

        Args:
          total: [n] of floats.
          weights: [k] of the same dtype.
          vectors: k vectors, [n] of the same dtype.
        """
        for begin in range(0, len(vectors), _GROUP):
            group = slice(begin, begin + _GROUP)
            total = minus_group(total, weights[group], tuple(vectors[group]))
        return total

    own = {"minus_weighted": minus_weighted}
    return types.SimpleNamespace(**{**vars(in_tensorflow), **own})


def _minus_group(
    total: tf.Tensor, weights: tf.Tensor, vectors: tuple[tf.Tensor, ...]
) -> tf.Tensor:
    # A zero that the compiler cannot know. An exclusive or of a product with it forces
    # the product to be rounded; otherwise product and difference would be fused, with
    # other bits.
    zero = tf.cast(tf.math.is_nan(weights[0]), tf.int32)
    for k, vector in enumerate(vectors):
        product = tf.bitcast(weights[k] * vector, tf.int32)
        total -= tf.bitcast(tf.bitwise.bitwise_xor(product, zero), tf.float32)
    return total
