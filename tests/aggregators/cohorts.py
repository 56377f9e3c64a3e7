# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Values of clients with their keys, and a model that is trained by them."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


def with_keys(value_type):
    """The type of a value and its client's key."""
    parts = collections.OrderedDict(update=value_type, client_key=(np.int64, [2]))
    return tff.to_type(parts)


def keyed(values):
    """Values, each with its place for its client's key."""
    return [
        collections.OrderedDict(update=value, client_key=np.array([i, 0]))
        for i, value in enumerate(values)
    ]


def fed_avg(factory):
    """TFF's federated averaging of a linear model from 4 numbers to 3."""

    def model_fn():
        layer = tf.keras.layers.Dense(3, kernel_initializer="zeros", input_shape=[4])
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential([layer]),
            loss=tf.keras.losses.MeanSquaredError(),
            input_spec=(tf.TensorSpec([None, 4]), tf.TensorSpec([None, 3])),
        )

    return tff.learning.algorithms.build_unweighted_fed_avg(
        model_fn,
        tff.learning.optimizers.build_sgdm(0.1),
        tff.learning.optimizers.build_sgdm(1.0),
        model_aggregator=factory,
    )
