# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Streams of correlated noise, and operations on any stream.

    stream = build_stream(factorization, dimension)
    noise, state = stream.next(stream.init(seed))   # row 0 of A^-1 B Z

For a factorization A = B C and Z with rows of independent N(0, 1), row t of a stream is
row t of N = A^-1 B Z: the noise to add to the sum of round t, so that a server which
applies A to the noised sums releases A (G + N) = A G + B Z.

A stream is a few pure functions of arrays on a memory, which is a structure of arrays
only, so that it runs eagerly, in a `tf.function`, inside of a TFF computation and under
`jax.jit`.

K = A^-1 B is lower triangular here: row t is K[t, t] z_t and what the rows of Z before
it contribute, `NoiseStream.past`. The memory holds nothing of a row of Z before it is
taken, so that z_t is drawn only when row t is released.
"""

from __future__ import annotations

import abc
import collections
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from dpfl import seed_domains
from dpfl.arrays import in_numpy
from dpfl.vectors import integer_noise, randomness

# float32[d].
Vector = Any
# An index: a whole number, or an int32 scalar.
Index = Any
# A structure of vectors, in tuples.
Memory = Any
# Function from the index of a row of Z to the row.
Draw = Callable[[Index], Vector]


class NoiseStream(abc.ABC):
    """Rows of A^-1 B Z, one after the other.

    Attributes:
      rounds: T, the number of rows.
      dimension: d, the length of a row.
      own_weights: K[t, t] for each row t, float32[T].
      nx: The module of the array library, of `dpfl.arrays`.
    """

    # Whether rows contribute to later ones.
    has_memory = True

    def __init__(
        self,
        own_weights: np.ndarray,
        dimension: int,
        nx: Any = in_numpy,
    ):
        self.own_weights = np.asarray(own_weights, np.float32)
        self.rounds = len(own_weights)
        self.dimension = dimension
        self.nx = nx

    def __getstate__(self) -> dict[str, Any]:
        # A module is copied and pickled by its name.
        return {**vars(self), "nx": self.nx.__name__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, nx=importlib.import_module(state["nx"]))

    def init(self, seed: Any) -> collections.OrderedDict:
        """The state before row 0, from a seed int64[2] that determines all noise.

        OrderedDict(seed=int64[2], row=int32, memory=<tensors of fixed shapes>).
        """
        return collections.OrderedDict(
            seed=self.nx.asarray(seed, np.int64),
            row=self.nx.asarray(0, np.int32),
            memory=self.initial_memory(),
        )

    def next(
        self, state: collections.OrderedDict
    ) -> tuple[Vector, collections.OrderedDict]:
        """Row `state["row"]`, float32[dimension], and the state after it.

        Raises:
          ValueError: If all rows have been taken. TensorFlow raises
            InvalidArgumentError when the graph runs; in JAX the row is NaN.
        """
        row = state["row"]
        message = f"the noise stream has {self.rounds} rows, found row"
        row = self.checked(row, row < self.rounds, message)
        draw = self.draw_from(state["seed"])
        noise, memory = self.step(draw, row, state["memory"])
        return noise, collections.OrderedDict(
            seed=state["seed"], row=row + 1, memory=memory
        )

    def seek(self, seed: Any, row: Index) -> collections.OrderedDict:
        """The state before a row in [0, rounds], as `next` leaves it."""
        seed, row = self.nx.asarray(seed, np.int64), self.nx.asarray(row, np.int32)
        memory = self.memory_before(self.draw_from(seed), row)
        return collections.OrderedDict(seed=seed, row=row, memory=memory)

    def draw_from(self, seed: Any) -> Draw:
        """A function that draws rows of Z which all follow from one seed."""
        return lambda row: self.drawn(row_seed(seed, row))

    def drawn(self, row_seed: Any) -> Vector:
        """Draws a row of Z from its own seed: independent N(0, 1) on a grid."""
        return integer_noise.standard_normal(row_seed, self.dimension)

    def checked(self, row: Index, condition: Any, message: str) -> Index:
        """A row's index, if a condition holds; see `next` for what is raised.

        Where nothing can be raised it is T, whose weights, and so its noise, are NaN.

        Args:
          row: Index of a row, from 0 to before T.
          condition: bool scalar.
          message: The beginning of the error's text, before the row.
        """
        end = self.rounds
        return end + self.nx.required(condition, message, row, row - end)

    def memory_before(self, draw: Draw, row: Index) -> Memory:
        """The memory before a row in [0, rounds], from rows of Z drawn again.

        It steps through all earlier rows, at their cost.
        """
        [memory] = self.nx.fori_loop(
            0,
            row,
            lambda at, memory: (self.step(draw, at, memory)[1],),
            self.initial_memory(),
        )
        return memory

    def step(self, draw: Draw, row: Index, memory: Memory) -> tuple[Vector, Memory]:
        """Computes one row of the stream and the memory after it.

        Args:
          draw: Function from the index of a row of Z to the row.
          row: Index of the row, int32 in [0, rounds).
          memory: The memory before the row.

        Returns:
          The row, float32[dimension], and the memory after it.
        """
        past, memory = self.past(draw, row, memory)
        return self.taken(row, past, draw(row), memory)

    def taken(
        self, row: Index, past: Vector, z: Vector, memory: Memory
    ) -> tuple[Vector, Memory]:
        """Computes a row and the memory after it, from its past and its row of Z.

        Args:
          row: Index of the row.
          past: The contribution of earlier rows of Z, from `past`.
          z: The row of Z, float32[dimension].
          memory: The memory from `past`.
        """
        noise = past + self.nx.product(self._at(self.own_weights, row), z)
        return noise, self.remember(row, memory, z, noise)

    @abc.abstractmethod
    def initial_memory(self) -> Memory:
        """The memory before row 0."""

    @abc.abstractmethod
    def past(self, draw: Draw, row: Index, memory: Memory) -> tuple[Vector, Memory]:
        """The contribution of earlier rows of Z to a row, and the memory moved to it.

        Only rows before `row` are drawn, at least those of nonzero weight.

        Args:
          draw: Function from the index of a row of Z to the row.
          row: Index of the row.
          memory: The memory before the row.
        """

    @abc.abstractmethod
    def remember(self, row: Index, memory: Memory, z: Vector, noise: Vector) -> Memory:
        """The memory after a row.

        Args:
          row: Index of the row.
          memory: The memory from `past`.
          z: The row of Z, float32[dimension].
          noise: The row of the stream, float32[dimension].
        """

    def _zeros(self, number: int) -> tuple[Vector, ...]:
        zeros = self.nx.zeros([self.dimension], np.float32)
        return (zeros,) * number

    def _at(self, table: np.ndarray, place: Index) -> Any:
        """An entry, or a row, of a small table."""
        return self.nx.take(self.nx.table(table), place, axis=0)

    def _earlier(self, draw: Draw, row: Index, steps: int) -> Vector:
        """Row `row - steps` of Z; before the first, an arbitrary row of weight zero."""
        return draw((row - steps) % self.rounds)


def row_seed(seed: Any, row: Index) -> Any:
    """The seed of a row of Z, int64[2], if all rows follow from one seed."""
    return randomness.fold_in(seed, seed_domains.NoiseStreamDomain.NORMALS, row)
