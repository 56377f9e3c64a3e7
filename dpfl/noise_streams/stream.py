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
from typing import Any, Optional

import numpy as np

from dpfl import factorization as fact
from dpfl.noise_streams.arrays import Arrays, Index, Memory, Vector


class NoiseStream(abc.ABC):
    """Rows of A^-1 B Z, one after the other.

    Attributes:
      rounds: T, the number of rows.
      dimension: d, their length.
      arrays: The library of the vectors, and what Z is; TensorFlow's by default.
    """

    def __init__(self, rounds: int, dimension: int, arrays: Optional[Arrays] = None):
        self.rounds = rounds
        self.dimension = dimension
        self.arrays = arrays or _tensors()

    def init(self, seed: Any) -> collections.OrderedDict:
        """The state before row 0, of int64[2], with which anyone can compute the noise.

        OrderedDict(seed=int64[2], row=int32, memory=<tensors of fixed shapes>).
        """
        return collections.OrderedDict(
            seed=self.arrays.seed(seed),
            row=self.arrays.index(0),
            memory=self.initial_memory(),
        )

    def next(
        self, state: collections.OrderedDict
    ) -> tuple[Vector, collections.OrderedDict]:
        """Row `state["row"]`, float32[dimension], and the state after it.

        Raises:
          tf.errors.InvalidArgumentError: If all rows have been taken; IndexError in
            numpy.
        """
        row = self.arrays.checked(state["row"], self.rounds)
        noise, memory = self.step(state["seed"], row, state["memory"])
        return noise, collections.OrderedDict(
            seed=state["seed"], row=row + 1, memory=memory
        )

    def seek(self, seed: Any, row: Index) -> collections.OrderedDict:
        """The state before a row in [0, rounds], as so many calls of `next` leave it.

        Here by doing just that; costs what they cost.
        """
        seed, row = self.arrays.seed(seed), self.arrays.index(row)
        [memory] = self.arrays.loop(
            0,
            row,
            lambda at, memory: (self.step(seed, at, memory)[1],),
            self.initial_memory(),
        )
        return collections.OrderedDict(seed=seed, row=row, memory=memory)

    def row(self, seed: Any, row: Index) -> Vector:
        """Row `row` alone, float32[dimension], from nothing but the seed."""
        return self.next(self.seek(seed, row))[0]

    @abc.abstractmethod
    def initial_memory(self) -> Memory:
        """What the stream remembers before row 0."""

    @abc.abstractmethod
    def step(self, seed: Any, row: Index, memory: Memory) -> tuple[Vector, Memory]:
        """Row `row`, int32 in [0, rounds), and the memory after it from that before."""

    def _zeros(self, number: int) -> tuple[Vector, ...]:
        return tuple(self.arrays.zeros(self.dimension) for _ in range(number))

    def _normal(self, seed: Any, index: Index) -> Vector:
        return self.arrays.normal(seed, index, self.dimension)

    def _earlier(self, seed: Any, row: Index, steps: int) -> Vector:
        """Row `row - steps` of Z, and any before the first, whose weight is zero."""
        return self._normal(seed, (row - steps) % self.rounds)


class Accumulated(NoiseStream):
    """Rows of B Z: the workload applied to the rows of another stream.

    m_t = beta m_{t-1} + N_t, (B Z)_t = (B Z)_{t-1} + eta_t m_t.
    """

    def __init__(self, stream: NoiseStream, workload: fact.Workload):
        super().__init__(stream.rounds, stream.dimension, stream.arrays)
        self._stream = stream
        self._momentum = workload.momentum
        self._rates = np.asarray(workload.rates, np.float32)

    def initial_memory(self) -> Memory:
        """The memory of the inner stream, the moment and the sum."""
        zeros = self.arrays.zeros(self.dimension)
        return self._stream.initial_memory(), zeros, zeros

    def step(self, seed: Any, row: Index, memory: Memory) -> tuple[Vector, Memory]:
        """See base class."""
        inner, moment, total = memory
        noise, inner = self._stream.step(seed, row, inner)
        moment = self._momentum * moment + noise
        total = total + self.arrays.at(self._rates, row) * moment
        return total, (inner, moment, total)


def materialize(stream: NoiseStream) -> np.ndarray:
    """All rows of a stream, float32 of shape (T, dimension).

    If it is built with `UnitTensors`, and its dimension is the number of rows of Z,
    this is its matrix: A^-1 B, or B itself from `Accumulated`.
    """
    state = stream.init([0, 0])
    rows = []
    for _ in range(stream.rounds):
        noise, state = stream.next(state)
        rows.append(np.asarray(noise))
    return np.stack(rows)


def _tensors() -> Arrays:
    from dpfl.noise_streams.tensors import Tensors

    return Tensors()
