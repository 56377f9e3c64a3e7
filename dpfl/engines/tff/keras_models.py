# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Keras's models of networks, and Keras's loss and metrics of objectives.

    model = keras_models.build(network, seed=0)
    loss = keras_models.Crossentropy(objective)

A model is a plain stack of Keras's own layers.
"""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from dpfl import arrays
from dpfl.tasks import networks
from dpfl.tasks.metrics import LabelMetric, Objective
from dpfl.tasks.networks import Network
from dpfl.tasks.task import KerasParts, Task

_NX = arrays.named("tensorflow")
_LAYERS: dict[type, Callable[[Any], tf.keras.layers.Layer]] = {
    networks.Convolution: lambda own: tf.keras.layers.Conv2D(
        own.filters, own.size, own.strides, activation="relu"
    ),
    networks.Dense: lambda own: tf.keras.layers.Dense(own.units, own.activation),
    networks.Dropout: lambda own: tf.keras.layers.Dropout(own.rate),
    networks.Embedding: lambda own: tf.keras.layers.Embedding(own.tokens, own.width),
    networks.Flatten: lambda own: tf.keras.layers.Flatten(),
    # Unrolled, a step takes half the time on a processor.
    networks.LSTM: lambda own: tf.keras.layers.LSTM(
        own.units, return_sequences=True, unroll=True
    ),
    networks.MaxPool: lambda own: tf.keras.layers.MaxPool2D(),
}


def build(network: Network, seed: int) -> tf.keras.Model:
    """The uncompiled model of a network, with the first weights of a seed."""
    first = tf.keras.layers.Input(network.input_shape, dtype=network.input_dtype)
    layers = [_LAYERS[type(layer)](layer) for layer in network.layers]
    model = tf.keras.Sequential([first, *layers])
    model.set_weights(network.initial_weights(seed))
    return model


class Crossentropy(tf.keras.losses.Loss):
    """The loss of an objective."""

    def __init__(self, objective: Objective, name: str = "crossentropy"):
        super().__init__(name=name)
        self._objective = objective

    def __call__(
        self,
        y_true: tf.Tensor,
        y_pred: tf.Tensor,
        sample_weight: Optional[tf.Tensor] = None,
    ) -> tf.Tensor:
        """The loss, a scalar; replaces Keras's reduction over all positions.

        Args:
          y_true: int32[batch, ...], labels.
          y_pred: float32[batch, ..., classes], logits.
          sample_weight: Ignored.
        """
        loss = self._objective.metrics[0]
        values, counts = self._objective.values(loss, _NX, y_pred, y_true)
        return tf.math.divide_no_nan(tf.reduce_sum(values), tf.reduce_sum(counts))


class MeanOfLabels(tf.keras.metrics.Metric):
    """A metric of an objective."""

    def __init__(self, objective: Objective, metric: LabelMetric):
        super().__init__(name=metric.name)
        self._objective, self._metric = objective, metric
        self._sums = [
            self.add_weight(name, initializer="zeros") for name in ("total", "count")
        ]

    def update_state(
        self,
        y_true: tf.Tensor,
        y_pred: tf.Tensor,
        sample_weight: Optional[tf.Tensor] = None,
    ) -> Any:
        """Adds the values of a batch's labels.

        Args:
          y_true: int32[batch, ...], labels.
          y_pred: float32[batch, ..., classes], logits.
          sample_weight: Ignored.
        """
        parts = self._objective.values(self._metric, _NX, y_pred, y_true)
        return tf.group(
            *(each.assign_add(tf.reduce_sum(p)) for each, p in zip(self._sums, parts))
        )

    def result(self) -> tf.Tensor:
        """The mean; 0 if no label counted."""
        return tf.math.divide_no_nan(*self._sums)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"objective": self._objective, "metric": self._metric}


def metrics(objective: Objective) -> list[tf.keras.metrics.Metric]:
    """The metrics of an objective."""
    return [MeanOfLabels(objective, metric) for metric in objective.metrics]


def parts(network: Network, objective: Objective) -> KerasParts:
    """The model, loss and metrics of a network and an objective."""
    return KerasParts(
        functools.partial(build, network),
        functools.partial(Crossentropy, objective),
        functools.partial(metrics, objective),
    )


def functional_model(task: Task, seed: int) -> Any:
    """A task's model as TFF's `FunctionalModel`, for use inside a graph."""
    import tensorflow_federated as tff

    own = task.keras_parts

    # Excluded from AutoGraph, which would parse it at every call.
    @tf.autograph.experimental.do_not_convert
    def metrics_constructor() -> collections.OrderedDict[str, Any]:
        # TFF accepts metrics in no other container.
        return collections.OrderedDict((m.name, m) for m in own.metrics())

    return tff.learning.models.functional_model_from_keras(
        own.model(seed),
        loss_fn=own.loss(),
        input_spec=task.element_spec,
        metrics_constructor=metrics_constructor,
    )


def weight_names(task: Task, model: tf.keras.Model) -> Sequence[str]:
    """Names of the weights of a task's model, without the numbers Keras counts up."""
    if task.network is not None:
        return task.network.weight_names
    return [each.name.rpartition("/")[2].partition(":")[0] for each in model.weights]


# TensorFlow operations that draw fresh random numbers whenever they run.
_DRAWING = re.compile(
    "Random|Truncated|Parameterized|Multinomial|Stateful(?!PartitionedCall)"
)


def draws_in_training(task: Task) -> bool:
    """Whether a task's model draws random numbers in training, as dropout does.

    Then no two trainings of a client are equal.
    """
    model = task.build_keras_model(0)
    signature = task.element_spec[:1]

    @tf.function(input_signature=signature, autograph=False)
    def trained(x: tf.Tensor) -> tf.Tensor:
        return model(x, training=True)

    graph = trained.get_concrete_function().graph.as_graph_def()
    inner = (node for each in graph.library.function for node in each.node_def)
    return any(_DRAWING.match(node.op) for node in (*graph.node, *inner))


def logits_of(
    task: Task,
) -> Callable[[Sequence[np.ndarray], np.ndarray], np.ndarray]:
    """The function of a task's weights and inputs, as they are stored, to logits."""
    model = task.build_keras_model()

    def logits(weights: Sequence[np.ndarray], x: np.ndarray) -> np.ndarray:
        model.set_weights(weights)
        x = task.to_input(x) if task.to_input else x
        return model(x, training=False).numpy()

    return logits
