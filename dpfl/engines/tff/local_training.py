# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A client's training on its examples, in plain TensorFlow functions.

trained = local_training.train(task, model, initial, client, round_index, 0.1)
update, metrics = trained.update, trained.metrics
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from dpfl.engines.tff.datasets import IndexedClients
from dpfl.tasks.metrics import LARGEST_SUM
from dpfl.tasks.task import Task
from dpfl.vectors import canaries

# Weights of a model, trainable and other.
Weights = tuple[Sequence[tf.Tensor], Sequence[tf.Tensor]]


class Trained(NamedTuple):
    """The result of a client's training.

    Attributes:
      metrics: OrderedDict of the model's metrics, on each batch before its step; the
        initial ones if the training diverged, and at most `LARGEST_SUM`.
    """

    update: Sequence[tf.Tensor]
    metrics: Any
    examples: tf.Tensor


def train(
    task: Task,
    model: tff.learning.models.FunctionalModel,
    initial: Weights,
    client_index: Any,
    round_index: Any,
    client_lr: float,
) -> Trained:
    """Trains one client: an SGD step for each batch of `task.dataset_from_index`.

    Args:
      task: The task, loaded.
      model: The task's model.
      initial: The initial weights, trainable and other.
      client_index: Index of the client, int64 scalar.
      round_index: Index of the round, int64 scalar.
      client_lr: Learning rate.
    """
    clients = task.dataset_from_index
    if isinstance(clients, IndexedClients):
        loop = _over_rows(model, initial, clients, client_index, round_index, client_lr)
    else:
        dataset = lean_dataset(clients(client_index, round_index))
        loop = _over_batches(model, initial, dataset, client_lr)
    trained, metrics, examples = loop
    return Trained(
        tuple(old - new for old, new in zip(initial[0], trained)),
        collections.OrderedDict(_bounded(metrics, model.initialize_metrics_state())),
        examples,
    )


def canary(
    model: tff.learning.models.FunctionalModel,
    initial: Weights,
    key: tf.Tensor,
    length: float,
) -> Trained:
    """The update of a canary, which trains on nothing.

    Args:
      model: The task's model.
      initial: The initial weights, trainable and other.
      key: The canary's key, int64[2].
      length: The L2 norm of its update.
    """
    sizes = [weight.shape.num_elements() for weight in initial[0]]
    parts = tf.split(canaries.update(key, sum(sizes), length), sizes)
    return Trained(
        tuple(tf.reshape(part, w.shape) for part, w in zip(parts, initial[0])),
        collections.OrderedDict(model.initialize_metrics_state()),
        tf.zeros([], tf.int64),
    )


def lean_dataset(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Disables tf.data's tuning, which never pays off for a short data set."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.threading.private_threadpool_size = 1
    options.deterministic = True
    return dataset.with_options(options)


def _step(
    model: tff.learning.models.FunctionalModel,
    trainable: Any,
    other: Any,
    metrics: Any,
    batch: tuple[tf.Tensor, tf.Tensor],
    client_lr: float,
) -> tuple[Any, Any]:
    x, y = batch
    with tf.GradientTape() as tape:
        tape.watch(trainable)
        output = model.predict_on_batch((trainable, other), x, training=True)
        loss = model.loss(output=output, label=y)
    gradients = tape.gradient(loss, trainable)
    moved = tuple(
        weight - client_lr * tf.convert_to_tensor(gradient)
        for weight, gradient in zip(trainable, gradients)
    )
    metrics = model.update_metrics_state(
        metrics,
        batch_output=tff.learning.models.BatchOutput(
            loss=loss, predictions=output, num_examples=tf.shape(x)[0]
        ),
        labels=y,
    )
    return moved, metrics


def _over_batches(
    model: tff.learning.models.FunctionalModel,
    initial: Weights,
    dataset: tf.data.Dataset,
    client_lr: float,
) -> tuple[Any, Any, tf.Tensor]:
    """The trainable weights after an SGD step a batch, metrics, and examples seen."""

    @tf.function
    def loop(trainable: Any, batches: tf.data.Dataset) -> tuple[Any, Any, Any]:
        metrics = model.initialize_metrics_state()
        examples = tf.zeros([], tf.int64)
        # A loop over the data set itself would become a reduction inside of tf.data,
        # which is single-threaded and without the fast kernels.
        for x, y in iter(batches):
            trainable, metrics = _step(
                model, trainable, initial[1], metrics, (x, y), client_lr
            )
            examples += tf.cast(tf.shape(x)[0], tf.int64)
        return trainable, metrics, examples

    return loop(initial[0], dataset)


def _over_rows(
    model: tff.learning.models.FunctionalModel,
    initial: Weights,
    clients: IndexedClients,
    client_index: Any,
    round_index: Any,
    client_lr: float,
) -> tuple[Any, Any, tf.Tensor]:
    """As `_over_batches`, for examples in tensors from which steps take batches."""
    examples = clients.examples(client_index, round_index)
    count = tf.size(examples.rows)

    def body(begin: tf.Tensor, trainable: Any, metrics: Any) -> tuple[Any, Any, Any]:
        end = begin + clients.batch_size
        moved, metrics = _step(
            model, trainable, initial[1], metrics, examples.take(begin, end), client_lr
        )
        return end, moved, metrics

    @tf.function(autograph=False)
    def loop() -> tuple[Any, Any]:
        first = [tf.constant(0), initial[0], model.initialize_metrics_state()]
        return tf.while_loop(
            lambda begin, *_: begin < count, body, first, parallel_iterations=1
        )[1:]

    return (*loop(), tf.cast(count, tf.int64))


def _bounded(metrics: Any, initial: Any) -> Any:
    """The metrics, or the initial ones if the client's training diverged.

    Without this and the bound, one client's metrics could spoil all sums.
    """
    is_finite = tf.reduce_all(
        [
            tf.reduce_all(tf.math.is_finite(part))
            for part in tf.nest.flatten(metrics)
            if part.dtype.is_floating
        ]
        or [True]
    )

    def one(part: tf.Tensor, zero: tf.Tensor) -> tf.Tensor:
        chosen = tf.where(is_finite, part, zero)
        if part.dtype.is_floating:
            return tf.clip_by_value(chosen, -LARGEST_SUM, LARGEST_SUM)
        return chosen

    return tf.nest.map_structure(one, metrics, initial)
