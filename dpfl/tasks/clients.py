# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Clients' examples as arrays, and the order in which a round trains on them.

    clients = ArrayClients(x, y, sizes)
    orders = local_orders(clients.sizes, np.array([3, 8]), round_index=0, config=config)

The order of a client's examples is a function of the shuffle seed, the round, the pass
and the client, and the same in every engine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from dpfl import arrays, checks
from dpfl.arrays import Array, philox
from dpfl.tasks.configs import TaskConfig
from dpfl.vectors import randomness


class Clients(Protocol):
    """Examples of the clients of a task, client after client."""

    @property
    def sizes(self) -> np.ndarray:
        """int64[clients], the number of examples of each."""

    def read(self, clients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The inputs and labels of some clients, in the order of their indices."""


@dataclasses.dataclass(frozen=True, eq=False)
class ArrayClients:
    """Clients whose examples are in memory, sorted by client.

    Attributes:
      x: Inputs, [examples, ...].
      y: Labels, [examples, ...].
      sizes: int64[clients], the number of examples of each.
    """

    x: np.ndarray
    y: np.ndarray
    sizes: np.ndarray

    def __post_init__(self) -> None:
        if not len(self.x) == len(self.y) == sum(self.sizes):
            wanted = f"numbers that add up to the {len(self.x)} rows of x"
            wanted += f" and the {len(self.y)} of y"
            raise ValueError(checks.message("sizes", wanted, sum(self.sizes)))

    @property
    def starts(self) -> np.ndarray:
        """int64[clients], the place of each client's first example."""
        return np.cumsum(self.sizes) - self.sizes

    def read(self, clients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See base class."""
        starts, sizes = self.starts[clients], self.sizes[clients]
        rows = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
        rows = rows + np.arange(len(rows))
        return self.x[rows], self.y[rows]


def local_orders(
    sizes: np.ndarray, clients: np.ndarray, round_index: int, config: TaskConfig
) -> list[np.ndarray]:
    """The orders in which clients train on their examples in a round.

    An order consists of `client_epochs` passes, each a fresh shuffle that is cut at
    `max_examples_per_client`. A shuffle sorts the examples by random words.

    Args:
      sizes: int64[all clients], numbers of examples.
      clients: int64[n], indices of the clients.
      round_index: Index of the round.
      config: Batching, shuffling and capping.

    Returns:
      For each client int64[m], positions among its own examples.
    """
    if not len(clients):
        return []
    counts = sizes[clients]
    ends = np.cumsum(counts)
    owner = np.repeat(np.arange(len(clients)), counts)
    within = np.arange(len(owner)) - (ends - counts)[owner]
    passes: list[list[np.ndarray]] = [[] for _ in clients]
    for number in range(config.client_epochs):
        order = within
        if config.shuffle_seed is not None:
            seed = np.array([config.shuffle_seed, 0], np.int64)
            seed = philox.fold_in(seed, round_index, number)
            seeds = philox.fold_in_each(seed, clients)
            words = philox.words_of_each(seeds, counts).view(np.int32)
            order = within[np.lexsort((words, owner))]
        for place, one in enumerate(np.split(order, ends[:-1])):
            passes[place].append(one[: config.max_examples_per_client])
    return [np.concatenate(each) for each in passes]


@dataclasses.dataclass(frozen=True, eq=False)
class MadeUpClients:
    """Clients whose examples are drawn from their number, so that they take no memory.

    Attributes:
      count: Number of clients.
      size: Number of examples of each.
      draw: Function of a library of arrays, a number of examples and a seed to inputs
        and labels.
    """

    count: int
    size: int
    draw: Callable[[Any, int, Array], tuple[Array, Array]]

    @property
    def sizes(self) -> np.ndarray:
        """See base class."""
        return np.full([self.count], self.size)

    def drawn(self, nx: Any, index: Any) -> tuple[Array, Array]:
        """The inputs and labels of a client, or of others for an index below zero.

        Args:
          nx: A library of arrays.
          index: int64 scalar.
        """
        zero = nx.asarray(np.zeros([2]), np.int64)
        return self.draw(nx, self.size, randomness.fold_in(zero, index))

    def read(self, clients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See base class."""
        nx = arrays.named("numpy")
        # No example of nobody: a cohort may have no clients.
        nothing = self.draw(nx, 0, np.zeros([2], np.int64))
        each = [nothing, *(self.drawn(nx, int(client)) for client in clients)]
        x, y = (np.concatenate(parts) for parts in zip(*each))
        return x, y
