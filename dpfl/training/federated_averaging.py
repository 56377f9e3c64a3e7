# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Federated averaging as a TFF process whose clients are integers.

All that reaches a client is its index, its key, the round and the model; its batches
are built where it is worked on, and data set, local training and metrics are one
TensorFlow computation. With dpfl's own mechanisms a client of TFF is a group of
simulated ones, see `grouped`. What made the difference in speed, measured:

  * batches are gathered from tensors where the task has its examples at hand; tf.data's
    autotuning and graph optimisation cost more than a small client's training and are
    off for the local data sets of other tasks;
  * a loop over an iterator, as TFF's `LoopImplementation.DATASET_ITERATOR`;
  * one computation for all that a group does, since each call costs milliseconds;
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
# What a client is to `FedAvgProcess.next`, by what its aggregator is given.
_CLIENT_TYPES = {
    "client_id": tff.TensorType(np.int64),
    "client_key": tff.TensorType(np.int64, [3]),
}


@dataclasses.dataclass(frozen=True)
class FedAvgProcess:
    """Federated averaging.

    Attributes:
      initialize: TFF computation without arguments to the `ProcessState`.
      next: TFF computation from (state, list of clients) to a `RoundOutput`; a client
        is its index, with its key if `build_process` was told so. With groups, that of
        `grouped.GroupedRounds`.
      rounds: What the clients of a group do; None where each is one of TFF's.
      groups: How many groups there are in every round; None without groups.
      initial_weights: The model's, trainable and other; with groups `initialize` has
        zeros in place of those that the worker reads from files.
    """

    initialize: tff.Computation
    next: tff.Computation
    rounds: Optional[grouped.GroupedRounds] = None
    groups: Optional[int] = None
    initial_weights: Any = None


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
          client_key: From a client's index to the two words of its key, for a process
            of `identity="client_key"`; None for others.
        """
        self._process = process
        self._feed = feed
        self._client_key = client_key
        self._specs = specs_of_state(process.initialize.type_signature.result.member)

    def initialize(self) -> ProcessState:
        """The state before the first round, as `next` gives that after one."""
        process, rounds = self._process, self._process.rounds
        if rounds is None:
            return process.initialize()
        return rounds.first_state(process.initialize, process.initial_weights)

    def next(self, state: ProcessState, clients: list[int]) -> RoundOutput:
        """The result of a round; with groups its large leaves are `SharedLeaf`s."""
        fed, keys = self._fed(state), self._keys(clients)
        process, rounds = self._process, self._process.rounds
        if rounds is not None and process.groups is not None:
            groups = rounds.cohort.split(clients, keys, process.groups)
            values, _before, after = rounds.values.given(fed)
            output = process.next(values, groups)
            return output._replace(state=rounds.values.together(output.state, after))
        if keys is None:
            return process.next(fed, clients)
        handed = [np.array([c, *key], np.int64) for c, key in zip(clients, keys)]
        return process.next(fed, handed)

    def _fed(self, state: ProcessState) -> ProcessState:
        return attrs.evolve(state, aggregator=self._feed(state.aggregator))

    def _keys(self, clients: list[int]) -> Optional[list[Sequence[int]]]:
        if self._client_key is None:
            return None
        return [self._client_key(client) for client in clients]

    def weights(self, state: ProcessState) -> list[np.ndarray]:
        """The weights of the model in a state."""
        return [np.asarray(w) for part in keras_weights(state) for w in part]

    def leaves(self, state: ProcessState) -> list[np.ndarray]:
        """A state as a list of arrays."""
        return [np.asarray(leaf) for leaf in tf.nest.flatten(state)]

    def from_leaves(self, leaves: Sequence[np.ndarray]) -> ProcessState:
        """The inverse of `leaves`; ValueError if they are of another process."""
        specs = tf.nest.flatten(self._specs)
        wanted = [(tuple(spec.shape), np.dtype(spec.dtype)) for spec in specs]
        if [(leaf.shape, leaf.dtype) for leaf in leaves] != wanted:
            raise ValueError(
                "the checkpoint must hold the state of this run, found other shapes"
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

    With `groups` a client of TFF is a group of these, see `grouped`; the results are
    those without, to the last bit where the sum is one of integers.

    Args:
      aggregator: Unweighted, or weighted and then given the number of examples.
      identity: What the aggregator gets beside the update, from which dpfl's own derive
        each client's randomness: "client_key", a secret that `next` is given with the
        client's index; "client_id", the index, for simulations (see `CodecFactory`);
        None for the update alone.
      groups: How many groups a cohort is split into, in every round; for a
        `CodecFactory` alone, other aggregators have one client each. None for no
        groups.

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
    # How the clients' training went is opened where the aggregator may measure exactly.
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
    """A process with other seeds and the same graphs; None if it has no groups."""
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
    """Writes the weights of a state into the task's Keras model."""
    trainable, other = keras_weights(state)
    for variables, values in (
        (model.trainable_variables, trainable),
        (model.non_trainable_variables, other),
    ):
        for variable, value in zip(variables, values):
            variable.assign(np.asarray(value))


class Evaluator:
    """The task's metrics of a state's model on its evaluation set."""

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
        """The metrics of a state's model by name, None each if none is due."""
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
    """The graph from (weights, round, client) to (value, weight, metrics)."""
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
