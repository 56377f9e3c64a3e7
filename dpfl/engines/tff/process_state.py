# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The state of federated averaging: its beginning, transfer and update.

values = StateValues(specs)
given, before, after = values.given(state)
state = values.together(output.state, after)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import arrays
from dpfl.engines.tff import shared_memory
from dpfl.training import server_optimizers
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


def state_type(
    model: tff.learning.models.FunctionalModel,
    optimizer: ServerOptimizer,
    aggregator_type: tff.Type,
) -> tff.Type:
    """The TFF type of a state.

    Args:
      model: The model.
      optimizer: The server's optimizer.
      aggregator_type: TFF type of the aggregator's state.
    """
    shapes = [w.shape for w in model.initial_weights[0]]
    first = tff.tensorflow.computation(
        lambda: optimizer.initialize(arrays.named("tensorflow"), shapes)
    )
    weights_type, own_type = type_of_weights(model), first.type_signature.result
    return tff.to_type(
        ProcessState(tff.TensorType(np.int64), weights_type, aggregator_type, own_type)
    )


def first_state(
    model: tff.learning.models.FunctionalModel,
    optimizer: ServerOptimizer,
    aggregator_state: Any,
) -> ProcessState:
    """The state before the first round.

    Args:
      model: The model.
      optimizer: The server's optimizer.
      aggregator_state: The aggregator's first state.
    """
    trainable, other = model.initial_weights
    weights = tff.learning.models.ModelWeights(tuple(trainable), tuple(other))
    shapes = [w.shape for w in trainable]
    own = optimizer.initialize(arrays.named("numpy"), shapes)
    return ProcessState(np.int64(0), weights, aggregator_state, own)


def stepped(
    optimizer: ServerOptimizer, state: Any, aggregator_state: Any, update: Any
) -> ProcessState:
    """The state after a step of the server, in a graph.

    Weights and optimizer stay as they are if the update is not finite.

    Args:
      optimizer: The server's optimizer.
      state: The state before.
      aggregator_state: The aggregator's new state.
      update: The aggregated update.
    """
    weights, gradients = list(state.weights.trainable), tf.nest.flatten(update)
    moved, trainable = server_optimizers.stepped(
        optimizer, state.optimizer, weights, gradients
    )
    return ProcessState(
        state.round_index + 1,
        tff.learning.models.ModelWeights(tuple(trainable), state.weights.non_trainable),
        aggregator_state,
        moved,
    )


def mapped(function: Callable[..., Any], *given: tff.Value) -> tff.Value:
    """The result of a function of tensors on values at the server."""
    types = [value.type_signature.member for value in given]
    return tff.federated_map(tff.tensorflow.computation(function, *types), given)


class StateValues:
    """The transfer of a state to TFF's worker, and back after a round.

    Large leaves are not sent: they are `shared_memory.SharedLeaf`s, and the worker is
    told the paths of the old and the new ones.

    Attributes:
      type: TFF type of the message: the small leaves, and the paths of the large leaves
        of the old state and of the new.
      paths_type: The type of the paths of the large leaves of one state.
      has_files: Whether some leaves are passed through files.
    """

    def __init__(self, specs: ProcessState):
        """Initializes the transfer of states.

        Args:
          specs: A state whose leaves are their `tff.TensorType`s.
        """
        self._specs = specs
        leaves = tf.nest.flatten(specs)
        self._is_large = [shared_memory.is_large(spec) for spec in leaves]
        self._large = [spec for spec, large in zip(leaves, self._is_large) if large]
        small = tuple(spec for spec, large in zip(leaves, self._is_large) if not large)
        parts = [shared_memory.rows_of_parts(s.shape, s.dtype) for s in self._large]
        self._files = [len(rows) for rows in parts]
        self.has_files = bool(self._large)
        self.paths_type = tff.TensorType(np.str_, [sum(self._files)])
        self.type = tff.to_type((small, self.paths_type, self.paths_type))

    def given(self, state: Any) -> tuple[Any, list[Any], list[Any]]:
        """The message of a state, and its large leaves and those of the next state.

        All of the leaves must be kept until the round is done.
        """
        small, large = self._apart(state)
        before = [shared_memory.SharedLeaf.of(leaf) for leaf in large]
        after = [shared_memory.SharedLeaf(s.shape, s.dtype) for s in self._large]
        return (small, _paths(before), _paths(after)), before, after

    def in_files(self, state: Any) -> Any:
        """The same state, with its large leaves in files."""
        small, large = self._apart(state)
        return self.together(small, map(shared_memory.SharedLeaf.of, large))

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

    def written(self, state: Any, paths: tf.Tensor) -> Any:
        """Writes the large leaves of a state in a graph, and returns the small ones."""
        small, large = self._apart(state)
        done: list[tf.Operation] = []
        for paths_of_leaf, leaf in zip(self._by_leaf(paths), large):
            done += shared_memory.write(paths_of_leaf, leaf)
        with tf.control_dependencies(done):
            return tf.nest.map_structure(tf.identity, small)

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
