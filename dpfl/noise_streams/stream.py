# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What a stream of correlated noise is, and what can be made of any such stream.

For a factorization A = B C and Z with rows of independent N(0, 1), row t of a stream is
row t of N = A^-1 B Z: the noise to add to the sum of round t, so that a server which
applies A to the noised sums releases A (G + N) = A G + B Z. `Accumulated` applies A,
and yields the rows of B Z.

A stream is a few pure functions on a memory, a structure of tensors with nothing else
in it, so that it runs eagerly, in a `tf.function` and inside of a TFF computation
alike.

K = A^-1 B is lower triangular here: row t is K[t, t] z_t and what the rows of Z before
it contribute, `NoiseStream.past`. The memory holds nothing of a row of Z that was not
taken yet, so that z_t may be drawn when row t is released and not before.
"""

from __future__ import annotations

import abc
import collections
from typing import Any, Optional

import numpy as np

from dpfl import factorization as fact
from dpfl.noise_streams.arrays import Arrays, Draw, Index, Memory, Vector


class NoiseStream(abc.ABC):
    """Rows of A^-1 B Z, one after the other.

    Attributes:
      rounds: T, the number of rows.
      dimension: d, their length.
      own_weights: K[t, t] for each row t, float32[T].
      arrays: The library of the vectors, and what Z is; TensorFlow's by default.
    """

    # Whether rows contribute to later ones.
    has_memory = True

    def __init__(
        self,
        own_weights: np.ndarray,
        dimension: int,
        arrays: Optional[Arrays] = None,
    ):
        self.own_weights = np.asarray(own_weights, np.float32)
        self.rounds = len(own_weights)
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
        draw = self.draw_from(state["seed"])
        noise, memory = self.step(draw, row, state["memory"])
        return noise, collections.OrderedDict(
            seed=state["seed"], row=row + 1, memory=memory
        )

    def seek(self, seed: Any, row: Index) -> collections.OrderedDict:
        """The state before a row in [0, rounds], as `next` leaves it."""
        seed, row = self.arrays.seed(seed), self.arrays.index(row)
        memory = self.memory_before(self.draw_from(seed), row)
        return collections.OrderedDict(seed=seed, row=row, memory=memory)

    def draw_from(self, seed: Any) -> Draw:
        """Rows of Z that all follow from one seed."""
        return lambda row: self.drawn(self.arrays.row_seed(seed, row))

    def drawn(self, row_seed: Any) -> Vector:
        """Row of Z of its own seed."""
        return self.arrays.normal(row_seed, self.dimension)

    def memory_before(self, draw: Draw, row: Index) -> Memory:
        """Memory before a row in [0, rounds], from rows of Z drawn again.

        Steps through all rows before it and costs what they cost.
        """
        [memory] = self.arrays.loop(
            0,
            row,
            lambda at, memory: (self.step(draw, at, memory)[1],),
            self.initial_memory(),
        )
        return memory

    def step(self, draw: Draw, row: Index, memory: Memory) -> tuple[Vector, Memory]:
        """Row `row`, int32 in [0, rounds), and the memory after it from that before."""
        past, memory = self.past(draw, row, memory)
        return self.taken(row, past, draw(row), memory)

    def taken(
        self, row: Index, past: Vector, z: Vector, memory: Memory
    ) -> tuple[Vector, Memory]:
        """Row `row` and the memory after it, from what `past` gave and its row of Z."""
        noise = past + self.arrays.at(self.own_weights, row) * z
        return noise, self.remember(row, memory, z, noise)

    def row(self, seed: Any, row: Index) -> Vector:
        """Row `row` alone, float32[dimension], from nothing but the seed."""
        return self.next(self.seek(seed, row))[0]

    @abc.abstractmethod
    def initial_memory(self) -> Memory:
        """What the stream remembers before row 0."""

    @abc.abstractmethod
    def past(self, draw: Draw, row: Index, memory: Memory) -> tuple[Vector, Memory]:
        """Contribution of earlier rows of Z to row `row`, and the memory brought to it.

        Only rows before `row` are drawn, those with a weight other than zero at least.
        """

    @abc.abstractmethod
    def remember(self, row: Index, memory: Memory, z: Vector, noise: Vector) -> Memory:
        """Memory after a row, from what `past` gave, its row of Z and itself."""

    def _zeros(self, number: int) -> tuple[Vector, ...]:
        return tuple(self.arrays.zeros(self.dimension) for _ in range(number))

    def _earlier(self, draw: Draw, row: Index, steps: int) -> Vector:
        """Row `row - steps` of Z, and any before the first, whose weight is zero."""
        return draw((row - steps) % self.rounds)


class Accumulated(NoiseStream):
    """Rows of B Z: the workload applied to the rows of another stream.

    m_t = beta m_{t-1} + N_t, (B Z)_t = (B Z)_{t-1} + eta_t m_t.
    """

    def __init__(self, stream: NoiseStream, workload: fact.Workload):
        own_weights = np.multiply(workload.rates, stream.own_weights)
        super().__init__(own_weights, stream.dimension, stream.arrays)
        self._stream = stream
        self._momentum = workload.momentum
        self._rates = np.asarray(workload.rates, np.float32)

    def initial_memory(self) -> Memory:
        """The memory of the inner stream, the moment and the sum."""
        zeros = self.arrays.zeros(self.dimension)
        return self._stream.initial_memory(), zeros, zeros

    def past(self, draw: Draw, row: Index, memory: Memory) -> tuple[Vector, Memory]:
        """See base class."""
        inner, moment, total = memory
        past, inner = self._stream.past(draw, row, inner)
        moment = self._momentum * moment + past
        total = total + self.arrays.at(self._rates, row) * moment
        return total, (inner, moment, past)

    def remember(self, row: Index, memory: Memory, z: Vector, noise: Vector) -> Memory:
        """See base class."""
        inner, moment, past = memory
        own, inner = self._stream.taken(row, past, z, inner)
        return inner, moment + (own - past), noise


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
