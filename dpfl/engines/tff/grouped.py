# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Rounds in which each of TFF's clients is a group of simulated ones.

    rounds = grouped.GroupedRounds(
        task, model, aggregator, client_lr, server_optimizer, groups
    )

A group's clients train, are encoded and are added up one after the other, in one loop
of one graph. So each group holds one update in memory, however large the cohort; a call
of TFF costs milliseconds once a group; and TFF sees the same number of clients in every
round, for each of which it keeps an executor.

The sum of a round is the same integers whatever the groups and their order, so that
mechanisms with integer sums have the same bits. So have their measurements and the
metrics of training, which are one row of numbers a client; rows are sorted into the
cohort's order before they are added up. Floating-point sums, those of 'none' and the
energy that DOME measures, depend on the groups in their last bits.
"""

from __future__ import annotations

import collections
import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.aggregators import reductions
from dpfl.aggregators.factory import CodecFactory
from dpfl.aggregators.layout import KEY_TYPE
from dpfl.aggregators.round_functions import GraphRoundFunctions
from dpfl.engines.tff import connection, local_training
from dpfl.engines.tff.process_state import (
    ProcessState,
    first_state,
    mapped,
    state_type,
    stepped,
    type_of_weights,
)
from dpfl.tasks.task import Task
from dpfl.training.engine import NotEnoughMemoryError, RoundOutput
from dpfl.training.server_optimizers import ServerOptimizer

# Function from weights, round, client and its key to the result of its training.
Train = Callable[[Any, Any, Any, Any], local_training.Trained]
# Length of a client's row in its group: place in the cohort, index, and its key.
_WIDTH = 4


class Cohort:
    """The clients' part of a round and its aggregation, as TFF computations.

    A total is the pair of the messages' sum and the clients' rows. Beside a secure sum
    there are no rows, unless a simulation asks for them: the second of the pair is then
    the secure sums that the codec needs, and no metrics of the clients' training are
    revealed.
    """

    def __init__(
        self,
        steps: GraphRoundFunctions,
        train: Train,
        weights_type: tff.Type,
        aggregator_type: tff.Type,
    ):
        """Initializes the computations.

        Args:
          steps: The mechanism's functions of a round.
          train: Trains one client, independently of all others.
          weights_type: TFF type of the model's weights.
          aggregator_type: TFF type of the aggregator's state.
        """
        self._steps = steps
        self._train = train
        self._rows = ScalarRows()
        self._is_sealed = steps.codec.sums_securely and not steps.measures_exactly
        self.group_type = tff.TensorType(np.int64, [None, _WIDTH])
        # From the aggregator's state to the values shared by clients and server.
        self.prepare = tff.tensorflow.computation(steps.prepare, aggregator_type)
        shared_type = self.prepare.type_signature.result

        @tff.tensorflow.computation(
            weights_type, np.int64, shared_type, self.group_type
        )
        def work(weights: Any, round_index: Any, shared: Any, clients: Any) -> Any:
            return self._group(weights, round_index, shared, clients)

        self._work = work
        total_type, rows_type = work.type_signature.result
        if self._is_sealed:
            self._reduce = reductions.reduction(steps.codec, total_type, rows_type)
            return
        self._reduce = reductions.group_reduction(steps.codec, total_type)

        def join(rows: Any, more: Any) -> Any:
            return tf.concat([rows, more], 0)

        self._join = reductions.aggregation(
            lambda: tf.zeros([0, self._rows.width], tf.float64),
            *(join, join, rows_type, rows_type),
        )

    def total(self, given: Iterable[tff.Value], groups: tff.Value) -> tff.Value:
        """The total of groups, at the server.

        Args:
          given: Weights, round and shared values, at the clients.
          groups: The groups, int64[None, 4] each, at the clients.
        """
        work = tff.federated_map(self._work, (*given, groups))
        if self._is_sealed:
            return self._reduce(work)
        return tff.federated_zip((self._reduce(work[0]), self._join(work[1])))

    def finish(self, state: Any, shared: Any, total: Any) -> tuple[Any, Any]:
        """The result of `GraphRoundFunctions.finish`, and sums of metrics, in a graph.

        Args:
          state: The aggregator's state.
          shared: The values shared by clients and server.
          total: The total of the round's groups.
        """
        messages, beside = total
        sums, metrics = beside, collections.OrderedDict()
        if not self._is_sealed:
            sums, metrics = self._rows.total(beside)
        return self._steps.finish(state, shared, messages, sums), metrics

    def _group(self, weights: Any, round_index: Any, shared: Any, clients: Any) -> Any:
        steps, codec = self._steps, self._steps.codec

        def client(row: tf.Tensor) -> tuple[Any, tf.Tensor]:
            trained = self._train(weights, round_index, row[1], row[2:])
            value = _value(trained.update, row[2:])
            weight = None
            if codec.takes_weights:
                weight = tf.cast(trained.examples, tf.float32)
            message, sums = steps.encode(value, shared, weight)
            metrics = trained.metrics if steps.measures_exactly else {}
            return message, self._rows.row(row[0], (sums, metrics))

        def body(i: tf.Tensor, total: Any, rows: tf.Tensor) -> tuple[Any, Any, Any]:
            message, row = client(clients[i])
            return i + 1, codec.accumulate(total, message), tf.concat([rows, row], 0)

        @tf.function(autograph=False)
        def loop() -> tuple[Any, tf.Tensor]:
            first = (tf.constant(0), codec.zero(), tf.zeros([0], tf.float64))
            any_shape = tf.nest.map_structure(lambda part: part.shape, first)
            _, total, rows = tf.while_loop(
                lambda i, *_: i < tf.shape(clients)[0],
                body,
                first,
                shape_invariants=(*any_shape[:2], tf.TensorShape([None])),
                parallel_iterations=1,
            )
            rows = tf.reshape(rows, [-1, self._rows.width])
            beside = self._rows.total(rows)[0] if self._is_sealed else rows
            return codec.reduce_modulo(total), beside

        return loop()


class GroupedRounds:
    """The computations of a process whose clients are groups.

    Attributes:
      groups: Number of groups in every round.
      specs: A state of the types of its leaves.
      cohort: The clients' computations.
      next: Computation from a state and groups to a `RoundOutput`.
    """

    def __init__(
        self,
        task: Task,
        model: tff.learning.models.FunctionalModel,
        factory: CodecFactory,
        client_lr: float,
        server_optimizer: ServerOptimizer,
        groups: int,
        canary_length: Optional[float] = None,
    ):
        """Initializes the computations.

        Args:
          task: The task, loaded.
          model: The task's model.
          factory: The aggregation factory, built with a seed.
          client_lr: Learning rate of the clients' SGD.
          server_optimizer: Optimizer of the server.
          groups: Number of groups.
          canary_length: The L2 norm of canaries, the clients behind the task's own;
            None for none.

        Raises:
          NotEnoughMemoryError: If a state is larger than a message of TFF.
          ValueError: If the factory has no seed.
        """
        weights_type = type_of_weights(model)
        steps = _round_functions(weights_type, factory)
        if steps.seed is None:
            raise ValueError(
                "aggregator must be built with a seed for groups of clients, found one "
                "with seed=None"
            )

        def train(weights: Any, round_index: Any, client: Any, key: Any) -> Any:
            initial = (tuple(weights.trainable), tuple(weights.non_trainable))

            def own() -> local_training.Trained:
                return local_training.train(
                    task, model, initial, client, round_index, client_lr
                )

            if canary_length is None:
                return own()
            return tf.cond(
                client < task.population,
                own,
                lambda: local_training.canary(model, initial, key, canary_length),
            )

        self._has_canaries = canary_length is not None
        self.groups = groups
        self._model, self._steps, self._optimizer = model, steps, server_optimizer
        first = tff.tensorflow.computation(steps.initial_state)
        own_type = first.type_signature.result
        whole_type = state_type(model, server_optimizer, own_type)
        self.specs = tff.types.structure_from_tensor_type_tree(
            lambda spec: spec, whole_type
        )
        _check_size(self.specs, self._has_canaries)
        self.cohort = Cohort(steps, train, weights_type, own_type)
        self.next = self._next_computation(whole_type)

    def with_other_seeds(
        self, model: tff.learning.models.FunctionalModel, factory: CodecFactory
    ) -> GroupedRounds:
        """The same graphs for a model and a factory that differ in their seeds only."""
        other = copy.copy(self)
        other._model = model
        other._steps = _round_functions(type_of_weights(model), factory)
        return other

    def first_state(self) -> ProcessState:
        """The state before the first round."""
        own = tf.nest.map_structure(np.asarray, self._steps.initial_state())
        return first_state(self._model, self._optimizer, own)

    def _next_computation(self, whole_type: tff.Type) -> tff.Computation:
        @tff.federated_computation(
            tff.FederatedType(whole_type, tff.SERVER),
            tff.FederatedType(self.cohort.group_type, tff.CLIENTS),
        )
        def next_fn(state: Any, groups: Any) -> tff.Value:
            shared = tff.federated_map(self.cohort.prepare, state.aggregator)
            given = (state.weights, state.round_index, shared)
            total = self.cohort.total(map(tff.federated_broadcast, given), groups)
            return mapped(self._finished, state, total, shared)

        return next_fn

    def _finished(self, state: Any, total: Any, shared: Any) -> RoundOutput:
        output, metrics = self.cohort.finish(state.aggregator, shared, total)
        after = stepped(self._optimizer, state, output["state"], output["result"])
        return RoundOutput(
            after,
            # None if these are hidden.
            collections.OrderedDict(
                self._model.finalize_metrics(metrics) if metrics else {}
            ),
            output["measurements"],
            tuple(tf.nest.flatten(output["result"])) if self._has_canaries else (),
        )


def _check_size(specs: ProcessState, has_canaries: bool) -> None:
    """Raises NotEnoughMemoryError if a state of such leaves is no message of TFF."""
    leaves = tf.nest.flatten(specs)
    if has_canaries:
        # A round returns its release in the same message.
        leaves += specs.weights.trainable
    size = sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in leaves)
    most = connection.MESSAGE_BYTES
    if size >= most:
        raise NotEnoughMemoryError(
            f"the state of a run in TFF must have less than {most / 1e9:g} GB, found "
            f"{size / 1e9:.2f} GB; --engine=jax has no such limit"
        )


def split(
    clients: Sequence[int], keys: Sequence[Sequence[int]], groups: int
) -> list[np.ndarray]:
    """Splits a cohort into groups of nearly equal size; surplus groups are empty.

    Args:
      clients: Indices of the clients.
      keys: The two words of each client's key.
      groups: Number of groups.

    Returns:
      An int64[clients, 4] array for each group.
    """
    rows = np.zeros([len(clients), _WIDTH], np.int64)
    rows[:, 0] = np.arange(len(clients))
    rows[:, 1] = clients
    rows[:, 2:] = np.reshape(keys, [-1, 2])
    return np.array_split(rows, groups)


def _value(update: Any, client_key: Any) -> Any:
    """A client's value for an aggregator."""
    return collections.OrderedDict(update=update, client_key=client_key)


def _round_functions(
    weights_type: tff.Type, factory: CodecFactory
) -> GraphRoundFunctions:
    value = _value(weights_type["trainable"], KEY_TYPE)
    return factory.round_functions(tff.to_type(value))


class ScalarRows:
    """Scalars of clients as rows of float64, to be added up in the cohort's order."""

    def __init__(self) -> None:
        self._structure: Any = None

    @property
    def width(self) -> int:
        """The length of a row, its place included; set by `row`."""
        leaves = tf.nest.flatten(self._structure)
        return 1 + sum(leaf.shape.num_elements() for leaf in leaves)

    def row(self, place: tf.Tensor, structure: Any) -> tf.Tensor:
        """A client's row, float64[width], of its place in the cohort and tensors."""
        self._structure = tf.nest.map_structure(
            lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype), structure
        )
        leaves = [place, *tf.nest.flatten(structure)]
        return tf.concat(
            [tf.reshape(tf.cast(leaf, tf.float64), [-1]) for leaf in leaves], 0
        )

    def total(self, rows: tf.Tensor) -> Any:
        """The sums of rows, each in its dtype, added in the cohort's order."""
        ordered = tf.gather(rows, tf.argsort(rows[:, 0]))
        sums: dict[tf.DType, tf.Tensor] = {}
        leaves, begin = [], 1
        for leaf in tf.nest.flatten(self._structure):
            if leaf.dtype not in sums:
                # All columns at once, so that TensorFlow adds row to row; a single
                # column would be split into several partial sums.
                sums[leaf.dtype] = tf.reduce_sum(tf.cast(ordered, leaf.dtype), 0)
            end = begin + leaf.shape.num_elements()
            leaves.append(tf.reshape(sums[leaf.dtype][begin:end], leaf.shape))
            begin = end
        return tf.nest.pack_sequence_as(self._structure, leaves)
