# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import collections
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from numpy.testing import assert_allclose, assert_array_equal

from dpfl import aggregators, mechanisms
from dpfl.aggregators import none
from tests.aggregators.rounds import run_codec

VALUE_TYPE = tff.to_type(collections.OrderedDict(a=(np.float32, (2, 3)), b=np.float32))
MEASUREMENTS = collections.OrderedDict(
    downlink_bits=np.float32,
    exact_clients=np.int32,
    exact_nonfinite_clients=np.int32,
    exact_mean_update_norm=np.float32,
    exact_uplink_bits=np.float32,
)
CONFIG = mechanisms.NoMechanism(10)


def value(number):
    return collections.OrderedDict(
        a=np.full([2, 3], number, np.float32), b=np.float32(number)
    )


class TestCodec:
    def test_is_the_mean_of_the_finite(self):
        codec = none.MeanCodec(CONFIG, 4)
        rows = [1.0, 4.0, math.nan, math.inf]
        decoded, _ = run_codec(codec, [tf.fill([4], x) for x in rows], 0)
        assert_allclose(decoded.mean, np.full(4, 2.5))
        # Huge updates are not touched.
        decoded, _ = run_codec(codec, [tf.fill([4], 1e30)] * 2, 0)
        assert_allclose(decoded.mean, np.full(4, 1e30), rtol=1e-6)


class TestComputation:
    def test_weighted_type_signature(self):
        factory = aggregators.build(CONFIG, weighted=True)
        assert isinstance(factory, tff.aggregators.WeightedAggregationFactory)
        process = factory.create(VALUE_TYPE, tff.TensorType(np.float32))
        state = process.initialize.type_signature.result
        expected = tff.FunctionType(
            collections.OrderedDict(
                state=state,
                value=tff.FederatedType(VALUE_TYPE, tff.CLIENTS),
                weight=tff.FederatedType(np.float32, tff.CLIENTS),
            ),
            tff.templates.MeasuredProcessOutput(
                state=state,
                result=tff.FederatedType(VALUE_TYPE, tff.SERVER),
                measurements=tff.FederatedType(MEASUREMENTS, tff.SERVER),
            ),
        )
        assert process.next.type_signature.is_equivalent_to(expected)


class TestExecution:
    def test_unweighted(self, tff_context):
        process = aggregators.build(CONFIG).create(VALUE_TYPE)
        state = process.initialize()
        output = process.next(state, [value(x) for x in (1, 2, math.inf)])
        assert_allclose(output.result["a"], np.full([2, 3], 1.5))
        assert output.measurements == collections.OrderedDict(
            downlink_bits=7 * 32,
            exact_clients=3,
            exact_nonfinite_clients=1,
            exact_mean_update_norm=pytest.approx(1.5 * math.sqrt(7)),
            exact_uplink_bits=7 * 32,
        )
        nobody = process.next(state, [])
        assert_array_equal(nobody.result["a"], np.zeros([2, 3]))

    def test_weighted(self, tff_context):
        process = aggregators.build(CONFIG, weighted=True).create(
            VALUE_TYPE, tff.TensorType(np.float32)
        )
        state = process.initialize()
        values = [value(x) for x in (1, 2, math.nan)]
        output = process.next(state, values, [1.0, 3.0, 5.0])
        assert_allclose(output.result["a"], np.full([2, 3], 1.75))
        assert output.result["b"] == pytest.approx(1.75)
        assert output.measurements["exact_nonfinite_clients"] == 1
        assert output.measurements["exact_uplink_bits"] == 8 * 32
        weights = [1.0, 3.0, math.nan, math.inf, -math.inf, -2.0, 3e38]
        values = [value(x) for x in (1, 2, 3, 4, 5, 6, 7)]
        output = process.next(state, values, weights)
        assert_allclose(output.result["a"], np.full([2, 3], 1.75))
        assert output.measurements["exact_nonfinite_clients"] == 5
        assert output.measurements["exact_mean_update_norm"] == pytest.approx(
            1.5 * math.sqrt(7)
        )
        nobody = process.next(state, [], [])
        assert_array_equal(nobody.result["a"], np.zeros([2, 3]))
