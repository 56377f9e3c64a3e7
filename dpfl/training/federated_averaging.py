# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Federated averaging as a TFF process whose clients are integers.

All that reaches a client is its index, its key, the round and the model; its batches
are built where it is worked on, and data set, local training and metrics are one
TensorFlow computation. What made the difference in speed, measured:

  * tf.data's autotuning and graph optimisation cost more than a small client's
    training; they are off for the local data set;
  * a loop over an iterator, as TFF's `LoopImplementation.DATASET_ITERATOR`;
  * one computation for all that a client does, since each call costs milliseconds;
  * one thread within an operation and as many clients at a time as processors, see
    `worker.start`.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional, Union

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import checks
from dpfl.tasks.task import Task

AggregationFactory = Union[
    tff.aggregators.UnweightedAggregationFactory,
    tff.aggregators.WeightedAggregationFactory,
]
# What a client is to `FedAvgProcess.next`, by what its aggregator is given.
_CLIENT_TYPES = {
    "client_id": tff.TensorType(np.int64),
    "client_key": tff.TensorType(np.int64, [3]),
}


class RoundOutput(NamedTuple):
    """What a round gives.

    Attributes:
      state: The process's state after the round.
      train: Metrics of the clients on their batches, each before its step: name to a
        scalar. Exact, so outside of the privacy guarantee.
      aggregator: The aggregator's measurements.
    """

    state: Any
    train: Any
    aggregator: Any


@attrs.define(eq=False, slots=False)
class ProcessState:
    """The state of a `FedAvgProcess`.

    Attributes:
      round_index: int64, rounds done.
      weights: `tff.learning.models.ModelWeights`.
      aggregator: The aggregator's state.
      optimizer: The server optimizer's state.
    """

    round_index: Any
    weights: Any
    aggregator: Any
    optimizer: Any


@dataclasses.dataclass(frozen=True)
class FedAvgProcess:
    """Federated averaging.

    Attributes:
      initialize: TFF computation without arguments to the `ProcessState`.
      next: TFF computation from (state, list of clients) to a `RoundOutput`; a client
        is its index, with its key if `build_process` was told so.
    """

    initialize: tff.Computation
    next: tff.Computation


class FedProcess:
    """A process as the loop of a run uses it.

    The aggregator's state is fed before each round, and a state can be taken apart into
    arrays and put together again.
    """

    def __init__(
        self,
        process: FedAvgProcess,
        feed: Callable[[Any], Any],
        client_key: Optional[Callable[[int], Sequence[int]]] = None,
    ):
        """Initializes the process.

        Args:
          process: What trains.
          feed: Called on the aggregator's state before each round, as
            `aggregators.build_fed` returns it.
          client_key: From a client's index to the two words of its key, for a process
            of `identity="client_key"`; None for others.
        """
        self._process = process
        self._feed = feed
        self._client_key = client_key
        self._first: Any = None

    def initialize(self) -> ProcessState:
        """Returns the state before the first round."""
        self._first = self._process.initialize()
        return self._first

    def next(self, state: ProcessState, clients: list[int]) -> RoundOutput:
        """Returns what a round with these clients gives."""
        fed = attrs.evolve(state, aggregator=self._feed(state.aggregator))
        return self._process.next(fed, [self._handed_to(c) for c in clients])

    def _handed_to(self, client: int) -> Any:
        if self._client_key is None:
            return client
        return np.array([client, *self._client_key(client)], np.int64)

    def weights(self, state: ProcessState) -> list[np.ndarray]:
        """Returns the weights of the model in a state."""
        return [np.asarray(w) for part in keras_weights(state) for w in part]

    def leaves(self, state: ProcessState) -> list[np.ndarray]:
        """Returns a state as a list of arrays."""
        return [np.asarray(leaf) for leaf in tf.nest.flatten(state)]

    def from_leaves(self, leaves: Sequence[np.ndarray]) -> ProcessState:
        """Returns the inverse of `leaves`; `initialize` must have been called.

        Raises:
          ValueError: If they are not those of this process.
        """
        wanted = [(leaf.shape, leaf.dtype) for leaf in self.leaves(self._first)]
        if [(leaf.shape, leaf.dtype) for leaf in leaves] != wanted:
            raise ValueError(
                "the checkpoint must hold the state of this run, found other shapes"
            )
        return tf.nest.pack_sequence_as(self._first, [leaf[()] for leaf in leaves])


def build_process(
    task: Task,
    aggregator: AggregationFactory,
    *,
    client_lr: float,
    server_optimizer: tff.learning.optimizers.Optimizer,
    model_seed: int = 0,
    identity: Optional[str] = "client_id",
) -> FedAvgProcess:
    """Builds the process.

    A client takes one SGD step per batch of `task.dataset_from_index`. The server
    gives the aggregate of (old - new weights) to its optimizer as a gradient. If the
    aggregate is not finite the model stays as it is.

    Args:
      task: Model and clients.
      aggregator: Unweighted, or weighted and then given the number of examples.
      client_lr: Learning rate of the clients' SGD.
      server_optimizer: See `server_optimizers.build_server_optimizer`.
      model_seed: Seed of the initial weights.
      identity: What the aggregator gets beside the update, from which dpfl's own derive
        each client's randomness: "client_key", a secret that `next` is given with the
        client's index; "client_id", the index, for simulations (see `CodecFactory`);
        None for the update alone.

    Returns:
      The process. Its client computation is deterministic if the model is, and, without
      an identity, if the aggregator's clients draw nothing. With keys `next` takes for
      each client int64[3], its index and the two words of its key.

    Raises:
      ValueError: If there is no such identity.
    """
    if identity is not None:
        checks.choice("identity", identity, _CLIENT_TYPES)
    client_type = _CLIENT_TYPES[identity or "client_id"]
    model = task.functional_model(model_seed)
    weights_type = _weights_type(model)
    client_work = _client_computation(task, model, weights_type, client_lr, identity)
    result_type = client_work.type_signature.result
    is_weighted = isinstance(aggregator, tff.aggregators.WeightedAggregationFactory)
    weight_type = (result_type["weight"],) if is_weighted else ()
    aggregation = aggregator.create(result_type["value"], *weight_type)
    finalizer = tff.learning.templates.build_apply_optimizer_finalizer(
        server_optimizer, weights_type
    )
    initialize = _initialize_computation(model, weights_type, aggregation, finalizer)

    @tff.tensorflow.computation(result_type["metrics"])
    def finalize_metrics(metrics: Any) -> Any:
        return collections.OrderedDict(model.finalize_metrics(metrics))

    @tff.tensorflow.computation(np.int64)
    def advance(round_index: Any) -> Any:
        return round_index + 1

    @tff.federated_computation(
        initialize.type_signature.result, tff.FederatedType(client_type, tff.CLIENTS)
    )
    def next_fn(state: Any, client: Any) -> RoundOutput:
        work = tff.federated_map(
            client_work,
            (
                tff.federated_broadcast(state.weights),
                tff.federated_broadcast(state.round_index),
                client,
            ),
        )
        weight = (work["weight"],) if is_weighted else ()
        aggregated = aggregation.next(state.aggregator, work["value"], *weight)
        finalized = finalizer.next(state.optimizer, state.weights, aggregated.result)
        new_state = ProcessState(
            tff.federated_map(advance, state.round_index),
            finalized.result,
            aggregated.state,
            finalized.state,
        )
        return RoundOutput(
            tff.federated_zip(new_state),
            tff.federated_map(finalize_metrics, tff.federated_sum(work["metrics"])),
            aggregated.measurements,
        )

    return FedAvgProcess(initialize, next_fn)


def keras_weights(state: ProcessState) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Returns a state's weights, trainable and other, in the Keras model's order."""
    weights = state.weights
    return list(weights.trainable), list(weights.non_trainable)


def assign_weights(state: ProcessState, model: tf.keras.Model) -> None:
    """Writes the weights of a state into the task's Keras model."""
    trainable, other = keras_weights(state)
    for variables, values in (
        (model.trainable_variables, trainable),
        (model.non_trainable_variables, other),
    ):
        for variable, value in zip(variables, values):
            variable.assign(value)


def _weights_type(model: tff.learning.models.FunctionalModel) -> tff.Type:
    trainable, other = model.initial_weights
    return tff.types.to_type(
        tff.learning.models.ModelWeights(
            tuple(tff.TensorType(w.dtype.type, w.shape) for w in trainable),
            tuple(tff.TensorType(w.dtype.type, w.shape) for w in other),
        )
    )


def _initialize_computation(
    model: Any, weights_type: tff.Type, aggregation: Any, finalizer: Any
) -> tff.Computation:
    @tff.tensorflow.computation
    def first_weights() -> Any:
        trainable, other = model.initial_weights
        return tff.learning.models.ModelWeights(
            tuple(tf.constant(w) for w in trainable),
            tuple(tf.constant(w) for w in other),
        )

    @tff.federated_computation
    def initialize() -> Any:
        state = ProcessState(
            tff.federated_value(np.int64(0), tff.SERVER),
            tff.federated_eval(first_weights, tff.SERVER),
            aggregation.initialize(),
            finalizer.initialize(),
        )
        return tff.federated_zip(state)

    del weights_type
    return initialize


def _client_computation(
    task: Task,
    model: tff.learning.models.FunctionalModel,
    weights_type: tff.Type,
    client_lr: float,
    identity: Optional[str],
) -> tff.Computation:
    """Returns (weights, round, client) to (value, weight, metrics), in one graph."""
    client_type = _CLIENT_TYPES[identity or "client_id"]

    @tff.tensorflow.computation(weights_type, np.int64, client_type)
    def client_work(weights: Any, round_index: Any, client: Any) -> Any:
        client_index, own = client, client
        if identity == "client_key":
            client_index, own = client[0], client[1:]
        initial = (tuple(weights.trainable), tuple(weights.non_trainable))
        dataset = lean_dataset(task.dataset_from_index(client_index, round_index))
        trained, metrics, examples = _train(model, initial, dataset, client_lr)
        update = tuple(old - new for old, new in zip(initial[0], trained))
        value = (
            collections.OrderedDict([("update", update), (identity, own)])
            if identity
            else update
        )
        return collections.OrderedDict(
            value=value,
            weight=tf.cast(examples, tf.float32),
            metrics=collections.OrderedDict(
                _finite_or_initial(metrics, model.initialize_metrics_state())
            ),
        )

    return client_work


def lean_dataset(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the data set without tf.data's tuning, which a short one never repays."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.threading.private_threadpool_size = 1
    options.deterministic = True
    return dataset.with_options(options)


def _train(
    model: tff.learning.models.FunctionalModel,
    initial: tuple[Sequence[tf.Tensor], Sequence[tf.Tensor]],
    dataset: tf.data.Dataset,
    client_lr: float,
) -> tuple[Sequence[tf.Tensor], Any, tf.Tensor]:
    """Returns trainable weights after one SGD step a batch, metrics, examples seen."""

    def step(trainable: Any, x: tf.Tensor, y: tf.Tensor) -> tuple[Any, Any, Any]:
        with tf.GradientTape() as tape:
            tape.watch(trainable)
            output = model.predict_on_batch((trainable, initial[1]), x, training=True)
            loss = model.loss(output=output, label=y)
        gradients = tape.gradient(loss, trainable)
        moved = tuple(
            weight - client_lr * tf.convert_to_tensor(gradient)
            for weight, gradient in zip(trainable, gradients)
        )
        return moved, output, loss

    @tf.function
    def loop(trainable: Any, batches: tf.data.Dataset) -> tuple[Any, Any, Any]:
        metrics = model.initialize_metrics_state()
        examples = tf.zeros([], tf.int64)
        # Over the data set itself this would become a reduction inside of tf.data,
        # single-threaded and without the fast kernels.
        for x, y in iter(batches):
            trainable, output, loss = step(trainable, x, y)
            size = tf.shape(x)[0]
            metrics = model.update_metrics_state(
                metrics,
                batch_output=tff.learning.models.BatchOutput(
                    loss=loss, predictions=output, num_examples=size
                ),
                labels=y,
            )
            examples += tf.cast(size, tf.int64)
        return trainable, metrics, examples

    return loop(initial[0], dataset)


def _finite_or_initial(metrics: Any, initial: Any) -> Any:
    """Returns the metrics, or the initial ones where the client's training diverged."""
    is_finite = tf.reduce_all(
        [
            tf.reduce_all(tf.math.is_finite(part))
            for part in tf.nest.flatten(metrics)
            if part.dtype.is_floating
        ]
        or [True]
    )
    return tf.nest.map_structure(
        lambda part, zero: tf.where(is_finite, part, zero), metrics, initial
    )
