# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The state of federated averaging: its type, beginning and update.

state = first_state(model, optimizer, aggregator_state)
state = stepped(optimizer, state, aggregator_state, update)  # in a graph
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import arrays
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
