# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Federated averaging as processes of TFF whose clients are integers.

A client takes one SGD step per batch of `task.dataset_from_index`. The server gives the
aggregate of (old - new weights) to its optimizer as a gradient; if the aggregate is not
finite the model stays as it is.

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

import abc
from collections.abc import Callable, Sequence
from typing import Any, Union

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.engines.tff import grouped, local_training
from dpfl.engines.tff.process_state import (
    ProcessState,
    finalized,
    first_state,
    mapped,
    specs_of_state,
    state_type,
    stepped,
    type_of_weights,
)
from dpfl.tasks.task import Task
from dpfl.training import engine
from dpfl.training.engine import RoundOutput
from dpfl.training.server_optimizers import ServerOptimizer

AggregationFactory = Union[
    tff.aggregators.UnweightedAggregationFactory,
    tff.aggregators.WeightedAggregationFactory,
]


class TrainingProcess(abc.ABC):
    """A process as the training loop uses it, whose states become arrays and back."""

    def __init__(self, specs: ProcessState):
        """Initializes the process, whose states have some `specs_of_state`."""
        self._specs = specs

    @abc.abstractmethod
    def initialize(self) -> ProcessState:
        """The state before the first round, in the form that `next` returns."""

    @abc.abstractmethod
    def next(self, state: ProcessState, clients: list[int]) -> RoundOutput:
        """Runs a round of clients, given by their indices."""

    def weights(self, state: ProcessState) -> list[np.ndarray]:
        """The weights of the model in a state."""
        return [np.asarray(w) for part in keras_weights(state) for w in part]

    def leaves(self, state: ProcessState) -> list[np.ndarray]:
        """Converts a state to a list of arrays."""
        return [np.asarray(leaf) for leaf in tf.nest.flatten(state)]

    def from_leaves(self, leaves: Sequence[np.ndarray]) -> ProcessState:
        """Restores a state; raises ValueError for leaves of another process."""
        specs = tf.nest.flatten(self._specs)
        engine.check_leaves(leaves, specs)
        return tf.nest.pack_sequence_as(self._specs, [leaf[()] for leaf in leaves])


class GroupedProcess(TrainingProcess):
    """A process of one of dpfl's mechanisms, whose clients of TFF are groups.

    It puts noise into the aggregator's state before each round.
    """

    def __init__(
        self,
        rounds: grouped.GroupedRounds,
        put_noise: Callable[[Any], Any],
        client_key: Callable[[int], Sequence[int]],
    ):
        """Initializes the process.

        Args:
          rounds: The computations.
          put_noise: Function that puts noise into the aggregator's state before each
            round, see `aggregators.build_with_host_noise`.
          client_key: Function from a client's index to the two words of its key.
        """
        super().__init__(rounds.specs)
        self._rounds = rounds
        self._put_noise = put_noise
        self._client_key = client_key

    def initialize(self) -> ProcessState:
        """See base class."""
        return self._rounds.first_state()

    def next(self, state: ProcessState, clients: list[int]) -> RoundOutput:
        """Runs a round; the result's large leaves are `SharedLeaf`s."""
        rounds, keys = self._rounds, [self._client_key(client) for client in clients]
        ready = attrs.evolve(state, aggregator=self._put_noise(state.aggregator))
        values, _before, after = rounds.values.given(ready)
        output = rounds.next(values, grouped.split(clients, keys, rounds.groups))
        return output._replace(state=rounds.values.together(output.state, after))


class PlainProcess(TrainingProcess):
    """A process of any of TFF's aggregators, which is given a client at a time.

    Attributes:
      next_computation: TFF computation from the state and clients to a `RoundOutput`.
    """

    def __init__(
        self,
        task: Task,
        aggregator: AggregationFactory,
        client_lr: float,
        server_optimizer: ServerOptimizer,
        model_seed: int = 0,
    ):
        """Initializes the process.

        Args:
          task: The task, loaded.
          aggregator: The aggregation factory; a weighted one is given the number of
            examples.
          client_lr: Learning rate of the clients' SGD.
          server_optimizer: Optimizer of the server.
          model_seed: Seed of the model's initial weights.
        """
        model = task.functional_model(model_seed)
        weights_type = type_of_weights(model)

        @tff.tensorflow.computation(weights_type, np.int64, np.int64)
        def client_work(weights: Any, round_index: Any, client: Any) -> Any:
            initial = (tuple(weights.trainable), tuple(weights.non_trainable))
            trained = local_training.train(
                task, model, initial, client, round_index, client_lr
            )
            examples = tf.cast(trained.examples, tf.float32)
            return trained.update, examples, trained.metrics

        update_type, weight_type, _ = client_work.type_signature.result
        is_weighted = isinstance(aggregator, tff.aggregators.WeightedAggregationFactory)
        aggregation = aggregator.create(
            update_type, *((weight_type,) if is_weighted else ())
        )
        initialize = aggregation.initialize
        own_type = state_type(
            model, server_optimizer, initialize.type_signature.result.member
        )

        def step(state: Any, aggregator: Any, update: Any, metrics: Any) -> Any:
            after = stepped(server_optimizer, state, aggregator, update)
            return after, finalized(model, metrics)

        @tff.federated_computation(
            tff.FederatedType(own_type, tff.SERVER),
            tff.FederatedType(np.int64, tff.CLIENTS),
        )
        def next_fn(state: Any, client: Any) -> RoundOutput:
            handed = map(tff.federated_broadcast, (state.weights, state.round_index))
            work = tff.federated_map(client_work, (*handed, client))
            weight = (work[1],) if is_weighted else ()
            made = aggregation.next(state.aggregator, work[0], *weight)
            metrics = tff.federated_sum(work[2])
            last = mapped(step, state, made.state, made.result, metrics)
            return RoundOutput(last[0], last[1], made.measurements)

        super().__init__(specs_of_state(own_type))
        self._model, self._optimizer = model, server_optimizer
        self._first, self.next_computation = initialize, next_fn

    def initialize(self) -> ProcessState:
        """See base class."""
        return first_state(self._model, self._optimizer, self._first())

    def next(self, state: ProcessState, clients: list[int]) -> RoundOutput:
        """See base class."""
        return self.next_computation(state, clients)


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
