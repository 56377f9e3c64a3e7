# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The state of federated averaging, how it begins and how a round leaves it."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


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


def type_of_weights(model: tff.learning.models.FunctionalModel) -> tff.Type:
    """Returns the TFF type of a model's weights."""
    trainable, other = model.initial_weights
    return tff.types.to_type(
        tff.learning.models.ModelWeights(
            tuple(tff.TensorType(w.dtype.type, w.shape) for w in trainable),
            tuple(tff.TensorType(w.dtype.type, w.shape) for w in other),
        )
    )


def next_state(
    state: Any, finalizer: Any, aggregator_state: Any, aggregate: Any
) -> tff.Value:
    """Returns the state after the server's optimizer took the aggregate."""

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


def finalize_computation(model: Any, metrics_type: tff.Type) -> tff.Computation:
    """Returns the map from the sum of the clients' metrics to their values."""

    @tff.tensorflow.computation(metrics_type)
    def finalize(metrics: Any) -> Any:
        return collections.OrderedDict(model.finalize_metrics(metrics))

    return finalize


def initialize_computation(
    model: Any, first_aggregator: tff.Computation, first_optimizer: tff.Computation
) -> tff.Computation:
    """Returns the computation of the first `ProcessState`, from those of its parts."""

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
            first_aggregator(),
            first_optimizer(),
        )
        return tff.federated_zip(state)

    return initialize
