# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Clients' examples and the test set in TensorFlow's graphs.

    batches = datasets.from_index(task)(index, round_index)

A worker builds a client's batches in its own graph, from the client's index.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow as tf

from dpfl import arrays
from dpfl.engines.tff import records
from dpfl.engines.tff.shared_memory import SharedArray
from dpfl.tasks.clients import ArrayClients, MadeUpClients
from dpfl.tasks.configs import TaskConfig
from dpfl.tasks.data_files import SqlClients
from dpfl.tasks.task import Task
from dpfl.vectors import randomness

_EVALUATION_BATCH = 256


def local_order(
    count: tf.Tensor, config: TaskConfig, index: Any, round_index: Any
) -> tf.Tensor:
    """The order of a client's examples in a round, int64 positions in [0, count).

    It is the one of `clients.local_orders`.

    Args:
      count: int64 scalar, the number of examples.
      config: Batching, shuffling and capping.
      index: Index of the client.
      round_index: Index of the round.
    """
    nx = arrays.named("tensorflow")

    def one_pass(number: int) -> tf.Tensor:
        order = tf.range(tf.cast(count, tf.int64))
        if config.shuffle_seed is not None:
            seed = nx.asarray(np.array([config.shuffle_seed, 0]), np.int64)
            seed = randomness.fold_in(seed, round_index, number, index)
            words = nx.random_words(seed, count, np.int32)
            order = tf.cast(nx.argsort(words), tf.int64)
        return order[: config.max_examples_per_client]

    return tf.concat([one_pass(e) for e in range(config.client_epochs)], axis=0)


class Examples(NamedTuple):
    """A client's examples of a round, as tensors.

    Attributes:
      x: Inputs, of this client or of all: [examples, ...].
      y: Labels in the same order: [examples, ...].
      rows: int64[m], indices into both of the client's examples, in order.
      to_input: Function from rows of `x` to the model's inputs; None for the identity.
    """

    x: tf.Tensor
    y: tf.Tensor
    rows: tf.Tensor
    to_input: Optional[Callable[[tf.Tensor], tf.Tensor]] = None

    def take(self, begin: Any, end: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """The (x, y) of the existing rows in rows[begin:end]; None means no bound."""
        rows = self.rows[begin:end]
        x, y = tf.gather(self.x, rows), tf.gather(self.y, rows)
        return (self.to_input(x) if self.to_input else x), y


class IndexedClients:
    """Batches of clients whose examples are tensors.

    Training may take the same batches from `examples`, without an iterator of tf.data,
    which costs more than a small client's steps.

    Attributes:
      examples: Function of (index, round_index) to a client's `Examples`; can be
        traced into any graph.
      batch_size: Examples of a batch; the last batch has the rest.
    """

    def __init__(self, examples: Callable[[Any, Any], Examples], batch_size: int):
        self.examples = examples
        self.batch_size = batch_size

    def __call__(self, index: Any, round_index: Any = 0) -> tf.data.Dataset:
        """The client's batches in a round."""
        chosen = self.examples(index, round_index).take(None, None)
        return tf.data.Dataset.from_tensor_slices(chosen).batch(self.batch_size)


def from_index(task: Task) -> Callable[..., tf.data.Dataset]:
    """The function of (index, round_index) to a client's batches, for any graph."""
    return _FROM_INDEX.get(type(task.clients), _of_others)(task)


def evaluation(task: Task) -> tf.data.Dataset:
    """The batches of a task's test set."""
    batches = tf.data.Dataset.from_tensor_slices(task.test_examples())
    batches = batches.batch(_EVALUATION_BATCH)
    if task.to_input is None:
        return batches
    return batches.map(lambda x, y: (task.to_input(x), y))


def _of_arrays(task: Task) -> IndexedClients:
    """Clients in memory; graphs read the arrays in place, see `shared_memory`."""
    own: Any = task.clients
    bounds = np.concatenate([own.starts, [len(own.x)]]).astype(np.int64)
    inputs, labels = SharedArray(own.x), SharedArray(own.y)

    def examples(index: Any, round_index: Any) -> Examples:
        index = tf.cast(index, tf.int64)
        begin, end = tf.unstack(tf.gather(tf.constant(bounds), [index, index + 1]))
        order = local_order(end - begin, task.config, index, round_index)
        return Examples(inputs.tensor(), labels.tensor(), begin + order, task.to_input)

    return IndexedClients(examples, task.config.batch_size)


def _of_others(task: Task) -> IndexedClients:
    """Clients of a class that is not dpfl's, whose examples are all read now."""
    x, y = task.clients.read(np.arange(task.population))
    clients = ArrayClients(x, y, task.clients.sizes)
    return _of_arrays(dataclasses.replace(task, clients=clients))


def _made_up(task: Task) -> IndexedClients:
    own: Any = task.clients
    nx = arrays.named("tensorflow")

    def examples(index: Any, round_index: Any) -> Examples:
        x, y = own.drawn(nx, index)
        order = local_order(own.size, task.config, index, round_index)
        return Examples(x, y, order)

    return IndexedClients(examples, task.config.batch_size)


def _of_sql(task: Task) -> Callable[..., tf.data.Dataset]:
    """Clients in a file, which is read where the graph is traced.

    A client's records are all read as strings and put in their local order; only the
    chosen ones are parsed, a batch at a time.
    """
    import tensorflow_federated as tff

    own: Any = task.clients
    parse = records.PARSERS[type(own.record)](own.record)
    data = tff.simulation.datasets.SqlClientData(own.path, own.split)
    # The largest batch size in int32, far above any client's examples.
    everything = 2**31 - 1

    def dataset_from_index(index: Any, round_index: Any = 0) -> tf.data.Dataset:
        index = tf.cast(index, tf.int64)
        client_id = tf.gather(tf.constant(own.client_ids), index)
        every = data.serializable_dataset_fn(client_id).batch(everything)

        def in_order(block: tf.Tensor) -> tf.data.Dataset:
            count = tf.size(block, tf.int64)
            order = local_order(count, task.config, index, round_index)
            return tf.data.Dataset.from_tensor_slices(tf.gather(block, order))

        chosen = every.flat_map(in_order).batch(task.config.batch_size)
        return chosen.map(parse)

    return dataset_from_index


_FROM_INDEX: dict[type, Callable[[Task], Callable[..., tf.data.Dataset]]] = {
    ArrayClients: _of_arrays,
    MadeUpClients: _made_up,
    SqlClients: _of_sql,
}
