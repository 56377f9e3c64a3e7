# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Federated averaging as a process of TFF whose clients are integers.

A client takes one SGD step per batch of `task.dataset_from_index`. The server gives the
aggregate of (old - new weights) to its optimizer as a gradient; if the aggregate is not
finite the model stays as it is.

A client receives only its index, its key, the round and the model; its batches are
built in the worker, and data set, local training and metrics are one TensorFlow
computation. A client of TFF is a group of simulated clients, see `grouped`. These
choices made the difference in speed, as measured:

  * batches are gathered from tensors where the task has its examples at hand; tf.data's
    autotuning and graph optimisation cost more than a small client's training and are
    off for the local data sets of other tasks;
  * a loop over an iterator, as TFF's `LoopImplementation.DATASET_ITERATOR`;
  * one computation for a whole group, since each call costs milliseconds;
  * one thread within an operation and as many clients at a time as processors, see
    `local_worker.start`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

from dpfl.engines.tff import grouped
from dpfl.engines.tff.process_state import ProcessState
from dpfl.tasks.task import Task
from dpfl.training import engine
from dpfl.training.engine import RoundOutput


class GroupedProcess:
    """A process whose clients of TFF are groups.

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
        self._rounds = rounds
        self._put_noise = put_noise
        self._client_key = client_key

    def initialize(self) -> ProcessState:
        """The state before the first round, in the form that `next` returns."""
        return self._rounds.first_state()

    def next(self, state: ProcessState, clients: list[int]) -> RoundOutput:
        """Runs a round of clients, given by their indices."""
        rounds, keys = self._rounds, [self._client_key(client) for client in clients]
        ready = attrs.evolve(state, aggregator=self._put_noise(state.aggregator))
        return rounds.next(ready, grouped.split(clients, keys, rounds.groups))

    def weights(self, state: ProcessState) -> list[np.ndarray]:
        """The weights of the model in a state."""
        own = state.weights
        return [np.asarray(w) for w in (*own.trainable, *own.non_trainable)]

    def leaves(self, state: ProcessState) -> list[np.ndarray]:
        """Converts a state to a list of arrays."""
        return [np.asarray(leaf) for leaf in tf.nest.flatten(state)]

    def from_leaves(self, leaves: Sequence[np.ndarray]) -> ProcessState:
        """Restores a state; raises ValueError for leaves of another process."""
        specs = self._rounds.specs
        engine.check_leaves(leaves, tf.nest.flatten(specs))
        return tf.nest.pack_sequence_as(specs, [leaf[()] for leaf in leaves])


def assign_weights(state: ProcessState, model: tf.keras.Model) -> None:
    """Copies the weights of a state to the task's Keras model."""
    for variables, values in (
        (model.trainable_variables, state.weights.trainable),
        (model.non_trainable_variables, state.weights.non_trainable),
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
