# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What a stream of correlated noise is, and what can be made of any such stream.

For a factorization A = B C and Z with rows of independent N(0, 1), row t of a stream is
row t of N = A^-1 B Z: the noise to add to the sum of round t, so that a server which
applies A to the noised sums releases A (G + N) = A G + B Z. `Accumulated` applies A,
and yields the rows of B Z.

A stream is a few pure functions on a state, a structure of tensors with nothing else in
it, so that it runs eagerly, in a `tf.function` and inside of a TFF computation alike.
Row j of Z is a function of (seed, j): any row of the stream can be had again at any
time from (seed, t).
"""

from __future__ import annotations

import abc
import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import factorization as fact
from dpfl import purposes
from dpfl.vectors import randomness
from dpfl.vectors.integer_noise import DiscreteGaussian

# Tensors in a structure that tf.nest understands.
Memory = Any
# From a seed, the index j of a row and a length to a float32[length] row of Z.
Normals = Callable[[tf.Tensor, tf.Tensor, int], tf.Tensor]

# Entries of Z are integers over this: 14 of its multiples are exact in float32.
_GRID = 1 << 18


def grid_normals(seed: tf.Tensor, index: tf.Tensor, length: int) -> tf.Tensor:
    """Row `index` of Z: float32[length], independent, N(0, 1) on a grid.

    The entries are integers of a discrete Gaussian over 2**18, so that they have the
    tails of N(0, 1): a float32 sampler has none beyond 5.7. The variance is
    1 + 4 / 2**36, with which an entry has the law of a normal number, rounded at
    random; see docs/privacy/integer_release.md.
    """
    own = randomness.fold_in(seed, purposes.NoiseStream.NORMALS, index)
    drawn = DiscreteGaussian(_GRID + 2 / _GRID).sample(own, length)
    return tf.cast(drawn, tf.float32) / _GRID


def unit_normals(seed: tf.Tensor, index: tf.Tensor, length: int) -> tf.Tensor:
    """Row `index` of the identity; with it for Z a stream yields A^-1 B."""
    del seed
    return tf.one_hot(index, length)


class NoiseStream(abc.ABC):
    """Rows of A^-1 B Z, one after the other.

    Attributes:
      rounds: T, the number of rows.
      dimension: d, their length.
    """

    def __init__(self, rounds: int, dimension: int, normals: Normals = grid_normals):
        self.rounds = rounds
        self.dimension = dimension
        self._normals = normals

    def init(self, seed: tf.Tensor) -> collections.OrderedDict:
        """The state before row 0, of int64[2], with which anyone can compute the noise.

        OrderedDict(seed=int64[2], row=int32, memory=<tensors of fixed shapes>).
        """
        return collections.OrderedDict(
            seed=tf.convert_to_tensor(seed, tf.int64),
            row=tf.zeros([], tf.int32),
            memory=self.initial_memory(),
        )

    def next(
        self, state: collections.OrderedDict
    ) -> tuple[tf.Tensor, collections.OrderedDict]:
        """Row `state["row"]`, float32[dimension], and the state after it.

        Raises:
          tf.errors.InvalidArgumentError: If all rows have been taken.
        """
        check = tf.debugging.assert_less(
            state["row"],
            self.rounds,
            message=f"the stream of noise has only {self.rounds} rows",
        )
        # Eagerly the check has happened by now; in a graph it is an operation.
        with tf.control_dependencies([check] if check is not None else []):
            row = tf.identity(state["row"])
        noise, memory = self.step(state["seed"], row, state["memory"])
        return noise, collections.OrderedDict(
            seed=state["seed"], row=row + 1, memory=memory
        )

    def seek(self, seed: tf.Tensor, row: tf.Tensor) -> collections.OrderedDict:
        """The state before a row in [0, rounds], as so many calls of `next` leave it.

        Here by doing just that; costs what they cost.
        """
        seed, row = tf.convert_to_tensor(seed, tf.int64), tf.cast(row, tf.int32)

        def body(at: tf.Tensor, memory: Memory) -> tuple[tf.Tensor, Memory]:
            return at + 1, self.step(seed, at, memory)[1]

        _, memory = tf.while_loop(
            lambda at, memory: at < row,
            body,
            [tf.zeros([], tf.int32), self.initial_memory()],
            parallel_iterations=1,
        )
        return collections.OrderedDict(seed=seed, row=row, memory=memory)

    def row(self, seed: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
        """Row `row` alone, float32[dimension], from nothing but the seed."""
        return self.next(self.seek(seed, row))[0]

    @abc.abstractmethod
    def initial_memory(self) -> Memory:
        """What the stream remembers before row 0."""

    @abc.abstractmethod
    def step(
        self, seed: tf.Tensor, row: tf.Tensor, memory: Memory
    ) -> tuple[tf.Tensor, Memory]:
        """Row `row`, int32 in [0, rounds), and the memory after it from that before."""

    def _zeros(self, number: int) -> tuple[tf.Tensor, ...]:
        return tuple(tf.zeros([self.dimension]) for _ in range(number))

    def _normal(self, seed: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
        return self._normals(seed, index, self.dimension)


class Accumulated(NoiseStream):
    """Rows of B Z: the workload applied to the rows of another stream.

    m_t = beta m_{t-1} + N_t, (B Z)_t = (B Z)_{t-1} + eta_t m_t.
    """

    def __init__(self, stream: NoiseStream, workload: fact.Workload):
        super().__init__(stream.rounds, stream.dimension)
        self._stream = stream
        self._momentum = workload.momentum
        self._rates = np.asarray(workload.rates, np.float32)

    def initial_memory(self) -> Memory:
        """The memory of the inner stream, the moment and the sum."""
        zeros = tf.zeros([self.dimension])
        return self._stream.initial_memory(), zeros, zeros

    def step(
        self, seed: tf.Tensor, row: tf.Tensor, memory: Memory
    ) -> tuple[tf.Tensor, Memory]:
        """See base class."""
        inner, moment, total = memory
        noise, inner = self._stream.step(seed, row, inner)
        moment = self._momentum * moment + noise
        total = total + tf.gather(tf.constant(self._rates), row) * moment
        return total, (inner, moment, total)


def materialize(stream: NoiseStream) -> np.ndarray:
    """All rows of a stream, float32 of shape (T, dimension).

    Of a stream built with `unit_normals`, and with the number of rows of Z for its
    dimension, this is its matrix: A^-1 B, or B itself from `Accumulated`.
    """
    take = tf.function(stream.next, autograph=False)
    state = stream.init(tf.constant([0, 0], tf.int64))
    rows = []
    for _ in range(stream.rounds):
        noise, state = take(state)
        rows.append(noise.numpy())
    return np.stack(rows)
