# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Tasks: client data, model, loss, metrics and an evaluation set.

dataset = task.client_dataset(task.client_ids[0], round_index=3)
model = task.build_keras_model(seed=0)
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional, Union

import numpy as np
import tensorflow as tf

from dpfl.tasks.configs import TaskConfig
from dpfl.tasks.shared_memory import SharedArray


@dataclasses.dataclass(frozen=True)
class TrainingDefaults:
    """Settings that train a task well, under the names of their flags."""

    client_lr: float
    server_lr: float
    clip_norm: float
    cohort_size: int
    rounds: int
    server_momentum: float = 0.9


@dataclasses.dataclass(frozen=True)
class Task:
    """A federated learning problem, ready to train on.

    A client is identified by its index in `client_ids`, so that only an integer is sent
    to a worker: `dataset_from_index` builds the client's batches in the graph. The
    order of a client's examples is a function of `config.shuffle_seed`, the client, the
    round and the pass, and of nothing else.

    Attributes:
      client_ids: Identifiers of the clients, in sorted order.
      element_spec: The pair (x, y) of `tf.TensorSpec` of one batch; the first
        dimension is the batch.
      dataset_from_index: Function of (index, round_index), two int64 scalars or Python
        integers, to the client's batches; can be traced into any graph. It is an
        `IndexedClients` if the examples are tensors.
      evaluation_dataset: Function of no argument to the batches of the central test
        set.
      model_builder: Function of an integer seed to an uncompiled Keras model that
        maps x to logits; equal seeds give equal weights.
      loss: Function of no argument to the Keras loss, a mean over examples or tokens.
      metrics: Function of no argument to the Keras metrics, of distinct names; 'loss'
        and the metric of the task's row in the table are always among them.
      fingerprint: Hexadecimal SHA-256 of the data and its split, which identifies the
        data when a run resumes.
      clients_hold_test_examples: Whether examples of the test set may belong to a
        client, so that metrics on it are exact values of that client's data.
      benchmark_only: Whether the examples are made up, so that no accuracy means
        anything.
      data_file: Path of the file that examples are read from during training; None if
        they are in memory.
    """

    name: str
    description: str
    client_ids: tuple[str, ...]
    element_spec: tuple[tf.TensorSpec, tf.TensorSpec]
    dataset_from_index: Callable[..., tf.data.Dataset]
    evaluation_dataset: Callable[[], tf.data.Dataset]
    model_builder: Callable[[int], tf.keras.Model]
    loss: Callable[[], tf.keras.losses.Loss]
    metrics: Callable[[], list[tf.keras.metrics.Metric]]
    defaults: TrainingDefaults
    config: TaskConfig
    fingerprint: str
    clients_hold_test_examples: bool
    benchmark_only: bool = False
    data_file: Optional[str] = None

    @property
    def population(self) -> int:
        """Number of clients, N."""
        return len(self.client_ids)

    @functools.cached_property
    def _positions(self) -> dict[str, int]:
        return {client_id: i for i, client_id in enumerate(self.client_ids)}

    def client_index(self, client_id: str) -> int:
        """The index of a client in `client_ids`, for `dataset_from_index`.

        Raises:
          ValueError: If there is no such client.
        """
        if client_id not in self._positions:
            raise ValueError(
                f"client_id must be one of the {self.population} client_ids of the "
                f"task {self.name}, found {client_id!r}"
            )
        return self._positions[client_id]

    def client_dataset(self, client_id: str, round_index: int = 0) -> tf.data.Dataset:
        """The batches (x, y) that a client trains on in a round.

        Only the order of the examples depends on the round.

        Raises:
          ValueError: If there is no such client.
        """
        return self.dataset_from_index(self.client_index(client_id), round_index)

    def build_keras_model(self, seed: int = 0) -> tf.keras.Model:
        """Builds an uncompiled Keras model from x to logits, with weights from `seed`.

        Build it where it is used: TFF traces models in graphs of TensorFlow 1, after
        which Keras refuses every model built before ('invalid state').
        """
        return self.model_builder(seed)

    def functional_model(self, seed: int = 0) -> Any:
        """The model of `build_keras_model(seed)` as TFF's `FunctionalModel`.

        It includes `loss` and `metrics`, and can be used inside a graph only.
        """
        import tensorflow_federated as tff

        # Excluded from AutoGraph, which would parse it at every call.
        @tf.autograph.experimental.do_not_convert
        def metrics_constructor() -> collections.OrderedDict[str, Any]:
            # TFF accepts metrics in no other container.
            return collections.OrderedDict((m.name, m) for m in self.metrics())

        return tff.learning.models.functional_model_from_keras(
            self.build_keras_model(seed),
            loss_fn=self.loss(),
            input_spec=self.element_spec,
            metrics_constructor=metrics_constructor,
        )

    @functools.cached_property
    def dimension(self) -> int:
        """Number of trainable parameters, d."""
        variables = self.build_keras_model(0).trainable_variables
        return sum(int(np.prod(v.shape)) for v in variables)

    @functools.cached_property
    def sample_digest(self) -> str:
        """The SHA-256 of the first batches of some clients in round 0, in hex.

        It detects changed data that the fingerprint does not cover.
        """
        hasher = hashlib.sha256()
        last = self.population - 1
        for index in sorted({last * i // _SAMPLED for i in range(_SAMPLED + 1)}):
            data = self.dataset_from_index(np.int64(index), np.int64(0))
            for x, y in data.take(_SAMPLED):
                for part in (x, y):
                    hasher.update(tf.io.serialize_tensor(part).numpy())
        return hasher.hexdigest()

    @functools.cached_property
    def draws_in_training(self) -> bool:
        """Whether the model draws random numbers in training, as dropout does.

        Then no two trainings of a client are equal.
        """
        model = self.build_keras_model(0)
        signature = self.element_spec[:1]

        @tf.function(input_signature=signature, autograph=False)
        def trained(x: tf.Tensor) -> tf.Tensor:
            return model(x, training=True)

        graph = trained.get_concrete_function().graph.as_graph_def()
        inner = (node for each in graph.library.function for node in each.node_def)
        return any(_DRAWING.match(node.op) for node in (*graph.node, *inner))


# Clients and batches of each that `sample_digest` reads.
_SAMPLED = 8
# TensorFlow operations that draw fresh random numbers whenever they run.
_DRAWING = re.compile(
    "Random|Truncated|Parameterized|Multinomial|Stateful(?!PartitionedCall)"
)


def client_names(count: int) -> tuple[str, ...]:
    """Client identifiers whose sorted order is their numerical order."""
    digits = len(str(count - 1))
    return tuple(f"client_{i:0{digits}d}" for i in range(count))


def fold_seed(seed: int, *values: Any) -> tf.Tensor:
    """Combines integers to one seed, int64[2], for TensorFlow's stateless functions.

    It depends on every argument and its position.

    Args:
      seed: Non-negative Python integer.
      *values: int64 scalar tensors or Python integers.
    """
    folded = tf.constant([seed % 2**63, 0], tf.int64)
    for value in values:
        folded = tf.random.experimental.stateless_fold_in(
            folded, tf.cast(value, tf.int64)
        )
    return folded


def local_order(
    count: tf.Tensor, config: TaskConfig, index: Any, round_index: Any
) -> tf.Tensor:
    """The order of a client's examples in a round, int64 positions in [0, count).

    It consists of `client_epochs` passes, each a fresh shuffle cut at
    `max_examples_per_client`.

    Args:
      count: int64 scalar, the number of examples.
      config: Batching, shuffling and capping.
      index: Index of the client.
      round_index: Index of the round.
    """

    def one_pass(epoch: int) -> tf.Tensor:
        order = tf.range(tf.cast(count, tf.int64))
        if config.shuffle_seed is not None:
            seed = fold_seed(config.shuffle_seed, index, round_index, epoch)
            order = tf.random.experimental.stateless_shuffle(order, seed)
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
    """A `Task.dataset_from_index` of clients whose examples are tensors.

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


def in_memory_datasets(
    x: np.ndarray,
    y: np.ndarray,
    sizes: Union[Sequence[int], np.ndarray],
    config: TaskConfig,
    to_input: Optional[Callable[[tf.Tensor], tf.Tensor]] = None,
) -> IndexedClients:
    """A task's `dataset_from_index` from arrays sorted by client.

    Graphs read `x` and `y` in place, see `shared_memory`.

    Args:
      x: Inputs of all clients, client after client: array of shape [examples, ...].
      y: Labels in the same order: array of shape [examples, ...].
      sizes: Number of examples of each client; their sum is `len(x)`.
      config: Batching, shuffling and capping.
      to_input: Function from rows of `x` to the model's inputs; None for the identity.

    Raises:
      ValueError: If the sizes do not add up to the number of examples.
    """
    if not len(x) == len(y) == sum(sizes):
        raise ValueError(
            f"sizes must add up to the {len(x)} rows of x and {len(y)} of y, found "
            f"{sum(sizes)}"
        )
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    inputs, labels = SharedArray(x), SharedArray(y)

    def examples(index: Any, round_index: Any) -> Examples:
        index = tf.cast(index, tf.int64)
        bounds = tf.gather(tf.constant(starts), tf.stack([index, index + 1]))
        order = local_order(bounds[1] - bounds[0], config, index, round_index)
        return Examples(inputs.tensor(), labels.tensor(), bounds[0] + order, to_input)

    return IndexedClients(examples, config.batch_size)


def check_split(name: str, fraction: float, training: int, testing: int) -> None:
    """Raises ValueError if the share of an option leaves one of two parts empty.

    Args:
      name: Name of the option.
      fraction: The share that is held out.
      training: Number of examples, or clients, to train on.
      testing: Number of examples, or clients, held out.
    """
    for number, purpose in ((training, "train"), (testing, "test")):
        if not number:
            raise ValueError(
                f"{name} must leave examples to {purpose} on, found {fraction!r}"
            )


def evaluation_batches(x: np.ndarray, y: np.ndarray) -> Callable[[], tf.data.Dataset]:
    """The `evaluation_dataset` of a task with these examples."""
    return lambda: tf.data.Dataset.from_tensor_slices((x, y)).batch(256)
