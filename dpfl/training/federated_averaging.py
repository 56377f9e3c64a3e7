# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Federated averaging as a TFF process whose clients are integers.

A client receives only its index, its key, the round and the model; its batches are
built in the worker, and data set, local training and metrics are one TensorFlow
computation. With dpfl's own mechanisms a client of TFF is a group of simulated clients,
see `grouped`. These choices made the difference in speed, as measured:

  * batches are gathered from tensors where the task has its examples at hand; tf.data's
    autotuning and graph optimisation cost more than a small client's training and are
    off for the local data sets of other tasks;
  * a loop over an iterator, as TFF's `LoopImplementation.DATASET_ITERATOR`;
  * one computation for a whole group, since each call costs milliseconds;
  * one thread within an operation and as many clients at a time as processors, see
    `local_worker.start`.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Optional, Union

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import checks
from dpfl.aggregators.factory import CodecFactory
from dpfl.tasks.task import Task
from dpfl.training import grouped, local_training
from dpfl.training.process_state import (
    ProcessState,
    RoundOutput,
    build_finalizer,
    finalize_computation,
    initialize_computation,
    next_state,
    specs_of_state,
    type_of_weights,
)

AggregationFactory = Union[
    tff.aggregators.UnweightedAggregationFactory,
    tff.aggregators.WeightedAggregationFactory,
]
# TFF type of a client for `FedAvgProcess.next`, by the aggregator's identity.
_CLIENT_TYPES = {
    "client_id": tff.TensorType(np.int64),
    "client_key": tff.TensorType(np.int64, [3]),
}


@dataclasses.dataclass(frozen=True)
class FedAvgProcess:
    """A federated averaging process.

    Attributes:
      initialize: TFF computation without arguments to the `ProcessState`.
      next: TFF computation from (state, list of clients) to a `RoundOutput`; a client
        is its index, with its key if `build_process` was asked for keys. With groups,
        the `next` of `grouped.GroupedRounds`.
      rounds: The computations of groups; None if each client is one of TFF's.
      groups: Number of groups in every round; None without groups.
      initial_weights: The model's weights, trainable and other; with groups
        `initialize` has zeros in place of those that the worker reads from files.
    """

    initialize: tff.Computation
    next: tff.Computation
    rounds: Optional[grouped.GroupedRounds] = None
    groups: Optional[int] = None
    initial_weights: Any = None


class TrainingProcess:
    """A process as the training loop uses it.

    It puts noise into the aggregator's state before each round, and converts states to
    lists of arrays and back.
    """

    def __init__(
        self,
        process: FedAvgProcess,
        put_noise: Callable[[Any], Any],
        client_key: Optional[Callable[[int], Sequence[int]]] = None,
    ):
        """Initializes the process.

        Args:
          process: The process to wrap.
          put_noise: Function that puts noise into the aggregator's state before each
            round, see `aggregators.build_with_host_noise`.
          client_key: Function from a client's index to the two words of its key, for a
            process of `identity="client_key"`; None for others.
        """
        self._process = process
        self._put_noise = put_noise
        self._client_key = client_key
        self._specs = specs_of_state(process.initialize.type_signature.result.member)

    def initialize(self) -> ProcessState:
        """The state before the first round, in the form that `next` returns."""
        process, rounds = self._process, self._process.rounds
        if rounds is None:
            return process.initialize()
        return rounds.first_state(process.initialize, process.initial_weights)

    def next(self, state: ProcessState, clients: list[int]) -> RoundOutput:
        """Runs a round; with groups the result's large leaves are `SharedLeaf`s."""
        ready, keys = self._with_noise(state), self._keys(clients)
        process, rounds = self._process, self._process.rounds
        if rounds is not None and process.groups is not None:
            groups = rounds.cohort.split(clients, keys, process.groups)
            values, _before, after = rounds.values.given(ready)
            output = process.next(values, groups)
            return output._replace(state=rounds.values.together(output.state, after))
        if keys is None:
            return process.next(ready, clients)
        handed = [np.array([c, *key], np.int64) for c, key in zip(clients, keys)]
        return process.next(ready, handed)

    def _with_noise(self, state: ProcessState) -> ProcessState:
        return attrs.evolve(state, aggregator=self._put_noise(state.aggregator))

    def _keys(self, clients: list[int]) -> Optional[list[Sequence[int]]]:
        if self._client_key is None:
            return None
        return [self._client_key(client) for client in clients]

    def weights(self, state: ProcessState) -> list[np.ndarray]:
        """The weights of the model in a state."""
        return [np.asarray(w) for part in keras_weights(state) for w in part]

    def leaves(self, state: ProcessState) -> list[np.ndarray]:
        """Converts a state to a list of arrays."""
        return [np.asarray(leaf) for leaf in tf.nest.flatten(state)]

    def from_leaves(self, leaves: Sequence[np.ndarray]) -> ProcessState:
        """Restores a state; raises ValueError for leaves of another process."""
        specs = tf.nest.flatten(self._specs)
        wanted = [(tuple(spec.shape), np.dtype(spec.dtype)) for spec in specs]
        if [(leaf.shape, leaf.dtype) for leaf in leaves] != wanted:
            raise ValueError(
                "the checkpoint's arrays differ in shape or type from this run's state"
            )
        return tf.nest.pack_sequence_as(self._specs, [leaf[()] for leaf in leaves])


def build_process(
    task: Task,
    aggregator: AggregationFactory,
    *,
    client_lr: float,
    server_optimizer: tff.learning.optimizers.Optimizer,
    model_seed: int = 0,
    identity: Optional[str] = "client_id",
    groups: Optional[int] = None,
) -> FedAvgProcess:
    """Builds the process.

    A client takes one SGD step per batch of `task.dataset_from_index`. The server
    gives the aggregate of (old - new weights) to its optimizer as a gradient. If the
    aggregate is not finite the model stays as it is.

    With `groups` a client of TFF is a group of clients, see `grouped`; the results are
    the same, to the last bit if the sum is in integers.

    Args:
      task: The task, loaded.
      aggregator: The aggregation factory; a weighted one is given the number of
        examples.
      client_lr: Learning rate of the clients' SGD.
      server_optimizer: Optimizer of the server.
      model_seed: Seed of the model's initial weights.
      identity: The client's identity beside the update, from which dpfl's aggregators
        derive its randomness: "client_key", a secret that `next` is given with the
        client's index; "client_id", the index, for simulations (see `CodecFactory`);
        None for the update alone.
      groups: Number of groups that a cohort is split into in every round, for a
        `CodecFactory` only; None for no groups.

    Returns:
      The process. Its client computation is deterministic if the model is, and, without
      an identity, if the aggregator's clients draw nothing. With keys `next` takes for
      each client int64[3], its index and the two words of its key.
    """
    if identity is not None:
        identity = checks.choice("identity", identity, _CLIENT_TYPES)
    groups = checks.optional_integer("groups", groups)
    client_type = _CLIENT_TYPES[identity or "client_id"]
    model = task.functional_model(model_seed)
    weights_type = type_of_weights(model)
    if groups is not None and isinstance(aggregator, CodecFactory):
        rounds = grouped.GroupedRounds(
            task, model, aggregator, client_lr, server_optimizer, identity, groups
        )
        return FedAvgProcess(
            rounds.initialize, rounds.next, rounds, groups, model.initial_weights
        )
    # Metrics of the clients' training are opened where the aggregator may measure
    # exactly.
    is_open = not isinstance(aggregator, CodecFactory) or (
        grouped.round_functions(model, aggregator, identity).measures_exactly
    )
    client_work = _client_computation(task, model, weights_type, client_lr, identity)
    result_type = client_work.type_signature.result
    is_weighted = isinstance(aggregator, tff.aggregators.WeightedAggregationFactory)
    weight_type = (result_type["weight"],) if is_weighted else ()
    aggregation = aggregator.create(result_type["value"], *weight_type)
    finalizer = build_finalizer(server_optimizer, weights_type)
    initialize = initialize_computation(
        model, aggregation.initialize, finalizer.initialize
    )

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
        metrics = tff.federated_value(collections.OrderedDict(), tff.SERVER)
        if is_open:
            finalize = finalize_computation(model, result_type["metrics"])
            metrics = tff.federated_map(finalize, tff.federated_sum(work["metrics"]))
        return RoundOutput(
            next_state(state, finalizer, aggregated.state, aggregated.result),
            metrics,
            aggregated.measurements,
        )

    return FedAvgProcess(initialize, next_fn)


def with_other_seeds(
    process: FedAvgProcess, task: Task, aggregator: AggregationFactory, model_seed: int
) -> Optional[FedAvgProcess]:
    """Derives a process with other seeds from the same graphs; None without groups.

    Args:
      process: The process.
      task: Its task.
      aggregator: An aggregator that differs in its seed alone.
      model_seed: Seed of the model's initial weights.
    """
    if process.rounds is None or not isinstance(aggregator, CodecFactory):
        return None
    model = task.functional_model(model_seed)
    initialize = process.rounds.initialize_with(model, aggregator)
    return dataclasses.replace(
        process, initialize=initialize, initial_weights=model.initial_weights
    )


def keras_weights(state: ProcessState) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """A state's weights, trainable and other, in the Keras model's order."""
    weights = state.weights
    return list(weights.trainable), list(weights.non_trainable)


def assign_weights(state: ProcessState, model: tf.keras.Model) -> None:
    """Copies the weights of a state to the task's Keras model."""
    trainable, other = keras_weights(state)
    for variables, values in (
        (model.trainable_variables, trainable),
        (model.non_trainable_variables, other),
    ):
        for variable, value in zip(variables, values):
            variable.assign(np.asarray(value))


class Evaluator:
    """Evaluates the model of a state on the task's evaluation set."""

    def __init__(self, task: Task, model_seed: int):
        self._model = task.build_keras_model(model_seed)
        self._metrics = task.metrics()
        self._dataset = task.evaluation_dataset()

        @tf.function(input_signature=task.element_spec, autograph=False)
        def update(x: tf.Tensor, y: tf.Tensor) -> None:
            output = self._model(x, training=False)
            for metric in self._metrics:
                metric.update_state(y, output)

        self._update = update

    def __call__(self, state: ProcessState, is_due: bool = True) -> dict[str, Any]:
        """The metrics of a state's model by name; each is None if none is due."""
        if not is_due:
            return {metric.name: None for metric in self._metrics}
        assign_weights(state, self._model)
        for metric in self._metrics:
            metric.reset_state()
        for x, y in self._dataset:
            self._update(x, y)
        return {metric.name: metric.result().numpy() for metric in self._metrics}


def _client_computation(
    task: Task,
    model: tff.learning.models.FunctionalModel,
    weights_type: tff.Type,
    client_lr: float,
    identity: Optional[str],
) -> tff.Computation:
    """The computation from (weights, round, client) to (value, weight, metrics)."""
    client_type = _CLIENT_TYPES[identity or "client_id"]

    @tff.tensorflow.computation(weights_type, np.int64, client_type)
    def client_work(weights: Any, round_index: Any, client: Any) -> Any:
        client_index, own = client, client
        if identity == "client_key":
            client_index, own = client[0], client[1:]
        initial = (tuple(weights.trainable), tuple(weights.non_trainable))
        trained = local_training.train(
            task, model, initial, client_index, round_index, client_lr
        )
        return collections.OrderedDict(
            value=local_training.value(trained.update, identity, own),
            weight=tf.cast(trained.examples, tf.float32),
            metrics=trained.metrics,
        )

    return client_work
