# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Measurements of every round, whatever the mechanism: counts, norms and bits.

A name that begins with `MARK` is an exact value of clients' data, outside of the
privacy guarantee. All others are public or computed from the release.
"""

from __future__ import annotations

import collections
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.mechanisms.mechanism import COUNT_BITS, FLOAT_BITS
from dpfl.privacy_coverage import MARK
from dpfl.vectors import clipping


def no_metrics(
    metric_finalizers: Any, local_unfinalized_metrics_type: Any = None
) -> tff.Computation:
    """A `metrics_aggregator` for TFF's learning algorithms that opens nothing.

    TFF's own sums the clients' losses and example counts in the open. Beside a secure
    sum, that is an exact function of their data which no epsilon covers.

    Args:
      metric_finalizers: Ignored.
      local_unfinalized_metrics_type: Ignored.
    """
    del metric_finalizers, local_unfinalized_metrics_type

    @tff.federated_computation
    def aggregate(metrics: tff.Value) -> tff.Value:
        del metrics
        return tff.federated_value(collections.OrderedDict(), tff.SERVER)

    return aggregate


def client_sums(
    normed: clipping.NormedVector,
    uplink_bits: tf.Tensor,
    extra: Optional[collections.OrderedDict] = None,
) -> collections.OrderedDict:
    """The float64 scalars of one client that the server sums.

    Args:
      normed: The client's update.
      uplink_bits: Bits of the client's message, a scalar.
      extra: `Encoded.sums` of the mechanism; None for none.
    """
    sums = collections.OrderedDict(
        clients=1,
        nonfinite_clients=~normed.is_finite,
        norms=normed.norm,
        uplink_bits=uplink_bits,
        **(extra or {}),
    )
    return tf.nest.map_structure(_as_float64, sums)


def exact_measurements(
    sums: collections.OrderedDict, more: collections.OrderedDict
) -> collections.OrderedDict:
    """The exact measurements of a round and a mechanism, under their marked names."""
    clients, nonfinite = sums["clients"], sums["nonfinite_clients"]
    measured = collections.OrderedDict(
        clients=tf.cast(clients, tf.int32),
        nonfinite_clients=tf.cast(nonfinite, tf.int32),
        mean_update_norm=ratio(sums["norms"], clients - nonfinite),
        uplink_bits=ratio(sums["uplink_bits"], clients),
        **more,
    )
    marked = ((MARK + name, part) for name, part in measured.items())
    return collections.OrderedDict(marked)


def downlink_bits(broadcast_bits: tf.Tensor, dimension: int) -> tf.Tensor:
    """The bits that a client receives, the model as float32 included."""
    bits = tf.cast(broadcast_bits, tf.float64) + FLOAT_BITS * dimension
    return tf.cast(bits, tf.float32)


def structure_bits(structure: Any) -> tf.Tensor:
    """The bits of a structure of tensors on the wire, a float64 scalar.

    A tensor whose shape is not known in advance is sent with its length.
    """
    bits = tf.zeros([], tf.float64)
    for tensor in tf.nest.flatten(structure):
        width = 1 if tensor.dtype == tf.bool else 8 * tensor.dtype.size
        bits += _as_float64(tf.size(tensor)) * width
        if not tensor.shape.is_fully_defined():
            bits += COUNT_BITS
    return bits


def ratio(numerator: tf.Tensor, denominator: tf.Tensor) -> tf.Tensor:
    """The float32 quotient of two float64 scalars; 0 / 0 = 0, always finite."""
    quotient = tf.math.divide_no_nan(numerator, denominator)
    return tf.cast(tf.minimum(quotient, np.finfo(np.float32).max), tf.float32)


def _as_float64(value: Any) -> tf.Tensor:
    return tf.cast(value, tf.float64)
