# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The plain mean without privacy, based on TFF's own aggregator.

    process = FiniteMeanFactory().create(value_type, tff.TensorType(np.float32))
    output = process.next(process.initialize(), updates, weights)

Clients whose update is not finite do not count.
"""

from __future__ import annotations

import collections
from typing import Any, Optional

import tensorflow as tf
import tensorflow_federated as tff

from dpfl.aggregators.layout import Layout
from dpfl.arrays import in_tensorflow as nx
from dpfl.codecs import measurements
from dpfl.codecs.base import Fields
from dpfl.codecs.none import weighted
from dpfl.privacy_coverage import RELEASED
from dpfl.vectors import clipping


class FiniteMeanFactory(tff.aggregators.WeightedAggregationFactory):
    """`tff.aggregators.MeanFactory` on the clients whose update is finite.

    An update that is not finite has weight zero, and so has one whose weight, or whose
    product with it, is negative or no finite float32; `exact_nonfinite_clients` counts
    both. Value types and measurements are those of `factory.CodecFactory`; state is
    that of `tff.aggregators.MeanFactory`. If no client has a weight, the mean is zero.
    """

    def __init__(self, measure: Optional[str] = None):
        """Initializes the factory; `measure` is that of `factory.CodecFactory`."""
        self._measures_exactly = measure != RELEASED

    def create(
        self, value_type: tff.Type, weight_type: tff.Type
    ) -> tff.templates.AggregationProcess:
        """The aggregation process for one type of value and of weight.

        Raises:
          TypeError: If `value_type` is not one that `factory.CodecFactory` takes.
        """
        layout = Layout(value_type)

        @tff.tensorflow.computation(value_type, weight_type)
        def screen(value: Any, weight: Any) -> Any:
            update, _ = layout.split(value)
            vector = layout.flatten(update, layout.dimension)
            normed = weighted(clipping.safe_norm(vector), weight)
            finite = clipping.finite(vector, normed)
            weight = tf.cast(weight, tf.float32)
            sums = measurements.client_sums(
                normed, measurements.structure_bits(nx, (vector, weight))
            )
            return layout.restore(finite), tf.where(normed.is_finite, weight, 0.0), sums

        update_type, finite_weight_type, sums_type = screen.type_signature.result
        inner = tff.aggregators.MeanFactory(no_nan_division=True).create(
            update_type, finite_weight_type
        )

        @tff.tensorflow.computation(sums_type)
        def report(sums: Any) -> Any:
            measured: Fields = collections.OrderedDict(
                downlink_bits=measurements.downlink_bits(nx, 0.0, layout.dimension)
            )
            if self._measures_exactly:
                measured.update(measurements.exact_measurements(sums, Fields()))
            return measured

        @tff.federated_computation(
            inner.initialize.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_fn(state: Any, value: Any, weight: Any) -> Any:
            update, finite_weight, sums = tff.federated_map(screen, (value, weight))
            output = inner.next(state, update, finite_weight)
            measured = tff.federated_map(report, tff.federated_sum(sums))
            return tff.templates.MeasuredProcessOutput(
                output.state, output.result, measured
            )

        return tff.templates.AggregationProcess(inner.initialize, next_fn)
