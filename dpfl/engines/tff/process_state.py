# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The state of federated averaging: its beginning, transfer and update.

values = StateValues(state_type)
given, before, after = values.given(state)
state = values.together(output.state, after)
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any, Optional

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.engines.tff import shared_memory
from dpfl.engines.tff.optimizers import TffOptimizer
from dpfl.training.server_optimizers import ServerOptimizer


@attrs.define(eq=False, slots=False)
class ProcessState:
    """The state of a `FedAvgProcess`.

    Attributes:
      round_index: int64, rounds done.
      weights: `tff.learning.models.ModelWeights`.
    """

    round_index: Any
    weights: Any
    aggregator: Any
    optimizer: Any


def type_of_weights(model: tff.learning.models.FunctionalModel) -> tff.Type:
    """The TFF type of a model's weights."""
    trainable, other = model.initial_weights
    return tff.types.to_type(
        tff.learning.models.ModelWeights(
            tuple(tff.TensorType(w.dtype.type, w.shape) for w in trainable),
            tuple(tff.TensorType(w.dtype.type, w.shape) for w in other),
        )
    )


def specs_of_state(state_type: tff.Type) -> ProcessState:
    """A state whose leaves are their `tff.TensorType`s."""
    return tff.types.structure_from_tensor_type_tree(lambda spec: spec, state_type)


def files_take(spec: tff.TensorType) -> bool:
    """Whether a leaf of a state is passed through files rather than sent."""
    return not shared_memory.is_in_graphs() and shared_memory.is_large(spec)


class StateValues:
    """The transfer of a state to TFF's worker, and back after a round.

    Large leaves are not sent: they are `shared_memory.SharedLeaf`s, and the worker is
    told the paths of the old and the new ones. If graphs carry their arrays themselves
    (`shared_memory.in_graphs`), these leaves are sent too.

    Attributes:
      type: TFF type of the message: the small leaves, and the paths of the large leaves
        of the old state and of the new.
      paths_type: The type of the paths of the large leaves of one state.
      has_files: Whether some leaves are passed through files.
    """

    def __init__(self, state_type: tff.Type):
        self._specs = specs_of_state(state_type)
        leaves = tf.nest.flatten(self._specs)
        self._is_large = [files_take(spec) for spec in leaves]
        self._large = [spec for spec, large in zip(leaves, self._is_large) if large]
        small = tuple(spec for spec, large in zip(leaves, self._is_large) if not large)
        parts = [shared_memory.rows_of_parts(s.shape, s.dtype) for s in self._large]
        self._files = [len(rows) for rows in parts]
        self.has_files = bool(self._large)
        self.paths_type = tff.TensorType(np.str_, [sum(self._files)])
        self.type = tff.to_type((small, self.paths_type, self.paths_type))

        @tff.tensorflow.computation(self.type)
        def read(values: Any) -> Any:
            return self.in_graph(values)

        @tff.tensorflow.computation(
            shared_memory.of_any_length(state_type), self.paths_type
        )
        def write(state: Any, paths: Any) -> Any:
            state = shared_memory.of_known_length(state, state_type)
            small, large = self._apart(state)
            done: list[tf.Operation] = []
            for paths_of_leaf, leaf in zip(self._by_leaf(paths), large):
                done += shared_memory.write(paths_of_leaf, leaf)
            with tf.control_dependencies(done):
                return tf.nest.map_structure(tf.identity, small)

        self._read, self._write = read, write

    def given(self, state: Any) -> tuple[Any, list[Any], list[Any]]:
        """The message of a state, and its large leaves and those of the next state.

        All of the leaves must be kept until the round is done.
        """
        small, large = self._apart(state)
        before = [shared_memory.SharedLeaf.of(leaf) for leaf in large]
        paths, after = self.files()
        return (small, _paths(before), paths), before, after

    def files(self) -> tuple[np.ndarray, list[Any]]:
        """Paths of empty files for the large leaves of a state, and these leaves.

        The leaves must be kept until they are written.
        """
        large = [shared_memory.SharedLeaf(s.shape, s.dtype) for s in self._large]
        return _paths(large), large

    def together(self, small: Any, large: Any) -> Any:
        """The state of small leaves, as they are returned, and of large leaves."""
        others, files = iter(small), iter(large)
        leaves = [next(files if is_large else others) for is_large in self._is_large]
        return tf.nest.pack_sequence_as(self._specs, leaves)

    def in_graph(self, values: Any) -> Any:
        """Rebuilds a state from its message in a graph, which reads what it uses."""
        large = [
            shared_memory.read(paths, spec.shape, spec.dtype)
            for paths, spec in zip(self._by_leaf(values[1]), self._large)
        ]
        return self.together(values[0], large)

    def read_at_server(
        self, values: tff.Value, after: Optional[tff.Value] = None
    ) -> tff.Value:
        """Rebuilds a state from its message at the server, once `after` is known."""
        if after is None:
            return tff.federated_map(self._read, values)

        @tff.tensorflow.computation(self.type, after.type_signature.member)
        def read(values: Any, first: Any) -> Any:
            with tf.control_dependencies(tf.nest.flatten(first)):
                return self.in_graph(values)

        return tff.federated_map(read, (values, after))

    def write_at_server(self, state: tff.Value, paths: tff.Value) -> tff.Value:
        """Writes the large leaves at the server, and returns the small ones."""
        return tff.federated_map(self._write, (state, paths))

    def _by_leaf(self, paths: tf.Tensor) -> list[list[tf.Tensor]]:
        """Splits the paths of all large leaves by leaf."""
        every = iter(tf.unstack(paths, num=sum(self._files)))
        return [[next(every) for _ in range(number)] for number in self._files]

    def _apart(self, state: Any) -> tuple[tuple[Any, ...], list[Any]]:
        leaves = list(zip(self._is_large, tf.nest.flatten(state)))
        small = tuple(leaf for is_large, leaf in leaves if not is_large)
        return small, [leaf for is_large, leaf in leaves if is_large]


def _paths(leaves: list[shared_memory.SharedLeaf]) -> np.ndarray:
    return np.array([path for leaf in leaves for path in leaf.paths], np.str_)


def next_state(
    state: Any, finalizer: Any, aggregator_state: Any, aggregate: Any
) -> tff.Value:
    """The state after the server's optimizer applied the aggregate.

    Args:
      state: The state before, at the server.
      finalizer: The result of `build_finalizer`.
      aggregator_state: The aggregator's new state.
      aggregate: The aggregated update.
    """

    @tff.tensorflow.computation(np.int64)
    def advance(round_index: Any) -> Any:
        return round_index + 1

    finalized = finalizer.next(state.optimizer, state.weights, aggregate)
    new_state = ProcessState(
        tff.federated_map(advance, state.round_index),
        finalized.result,
        aggregator_state,
        finalized.state,
    )
    return tff.federated_zip(new_state)


def build_finalizer(
    optimizer: ServerOptimizer, weights_type: tff.Type
) -> tff.learning.templates.FinalizerProcess:
    """TFF's finalizer, which skips an update that is not finite."""
    # TFF's own check has nothing to convert for AutoGraph, which takes long to find
    # out.
    should_reject = tf.autograph.experimental.do_not_convert(
        tff.learning.templates.reject_non_finite_update
    )
    return tff.learning.templates.build_apply_optimizer_finalizer(
        TffOptimizer(optimizer), weights_type, should_reject
    )


def finalize_computation(model: Any, metrics_type: tff.Type) -> tff.Computation:
    """The computation from the sum of the clients' metrics to their values."""

    @tff.tensorflow.computation(metrics_type)
    def finalize(metrics: Any) -> Any:
        # There are no metrics if a secure sum hides the clients' training.
        return collections.OrderedDict(
            model.finalize_metrics(metrics) if metrics else {}
        )

    return finalize


def initialize_computation(
    weights_type: tff.Type,
    first_aggregator: tff.Computation,
    first_optimizer: tff.Computation,
) -> tff.Computation:
    """The computation of a `ProcessState` with weights of zero; see `with_weights`.

    TFF keeps several copies of a graph, and of its constants.

    Args:
      weights_type: TFF type of the model's weights.
      first_aggregator: Computation of the aggregator's first state.
      first_optimizer: Computation of the optimizer's first state.
    """

    @tff.tensorflow.computation
    def zeros() -> Any:
        return tff.types.structure_from_tensor_type_tree(
            lambda spec: tf.zeros(spec.shape, spec.dtype), weights_type
        )

    @tff.federated_computation
    def initialize() -> Any:
        state = ProcessState(
            tff.federated_value(np.int64(0), tff.SERVER),
            tff.federated_eval(zeros, tff.SERVER),
            first_aggregator(),
            first_optimizer(),
        )
        return tff.federated_zip(state)

    return initialize


def with_weights(state: ProcessState, initial_weights: Sequence[Any]) -> ProcessState:
    """A first state with a model's weights, trainable and other."""
    weights = tff.learning.models.ModelWeights(*map(tuple, initial_weights))
    return attrs.evolve(state, weights=weights)
