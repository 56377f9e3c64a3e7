# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from numpy.testing import assert_array_equal

from dpfl import mechanisms
from dpfl.aggregators import reductions
from dpfl.arrays import in_tensorflow as nx
from dpfl.codecs import distributed, measurements

SUMS_TYPE = tff.to_type(collections.OrderedDict(clients=np.float64))
MESSAGE = collections.OrderedDict(update=(np.int32, [3]), within=np.int32)
MESSAGE_TYPE = tff.to_type(MESSAGE)


def opened(reduce, message_type, messages):
    """What the protocol shows the server of messages, before anything is decoded."""

    @tff.federated_computation(
        tff.FederatedType(tff.to_type((message_type, SUMS_TYPE)), tff.CLIENTS)
    )
    def run(encoded):
        return reduce(encoded)

    sums = collections.OrderedDict(clients=1.0)
    return run([(message, sums) for message in messages])[0]


def secure(modulus_bits):
    return reductions.secure_sums(modulus_bits, SUMS_TYPE, ["clients"])


def message(update, within=0):
    parts = {"update": np.array(update, np.int32), "within": np.int32(within)}
    return collections.OrderedDict(parts)


class TestSecureSums:
    @pytest.mark.parametrize("bits", [4, 16, 30])
    def test_only_the_modular_sum_is_revealed(self, tff_secure_context, bits):
        """(1, -1), (0, 0) and (2, 3, -5) all sum to nothing; their wraps differ."""
        reduce = secure({"update": bits, "within": 5})
        modulus = 1 << bits
        cohorts = [[1, modulus - 1], [0, 0], [2, 3, modulus - 5], [modulus - 1] * 4]
        sent = [[message([x, x, 1]) for x in cohort] for cohort in cohorts]
        totals = [opened(reduce, MESSAGE_TYPE, messages) for messages in sent]
        for total in totals[:3]:
            assert_array_equal(total["update"][:2], [0, 0])
        # Four times 2^30 - 1 is more than int32 holds.
        assert_array_equal(totals[3]["update"], [modulus - 4] * 2 + [4])

    def test_each_part_has_its_own_modulus(self, tff_secure_context):
        reduce = secure({"update": 6, "within": 3})
        total = opened(reduce, MESSAGE_TYPE, [message([40, 0, 63], 7)] * 3)
        assert_array_equal(total["update"], [120 - 64, 0, 189 - 128])
        assert total["within"] == 21 - 16

    def test_wraparound_does_not_reveal_a_client(self, tff_secure_context):
        """All others send e1, one -e1 or zeros: only the sum's noise may hide it."""
        config = mechanisms.DistributedDiscreteGaussian(
            4, 1.0, 1.0, bits=16, rotation="hadamard"
        )
        codec = distributed.IntegerCodec(config, 4, nx)
        seed = tf.constant([1, 2], tf.int64)
        shared = codec.decode_broadcast(codec.broadcast(codec.initial_state(), seed))
        reduce = reductions.reduction(codec, None, SUMS_TYPE)
        unit = tf.constant([1.0, 0, 0, 0])
        for first in (-unit, 0 * unit):
            messages = [
                codec.encode(x, shared, tf.constant([i, 5], tf.int64)).message
                for i, x in enumerate([first, unit, unit, unit])
            ]
            whole = sum(m["update"].numpy().astype(np.int64) for m in messages)
            assert whole.max() >= 1 << 16
            messages = [tf.nest.map_structure(lambda t: t.numpy(), m) for m in messages]
            message_type = tff.to_type(collections.OrderedDict(update=(np.int32, [4])))
            total = opened(reduce, message_type, messages)["update"]
            assert_array_equal(total, whole % (1 << 16))


@pytest.mark.parametrize(
    ("tensor", "bits"),
    [
        (tf.zeros([3]), 96),
        (tf.zeros([], tf.bool), 1),
        (tf.zeros([2], tf.int64), 128),
        (tf.zeros([5], tf.float16), 80),
    ],
)
def test_bits_of_a_tensor(tensor, bits):
    assert measurements.structure_bits(nx, [tensor, tensor]) == 2 * bits


def test_tensors_of_unknown_length_include_their_length():
    bits = tf.function(
        functools.partial(measurements.structure_bits, nx),
        input_signature=[tf.TensorSpec([None])],
    )
    assert bits(tf.zeros([3])) == 96 + 32


@pytest.mark.parametrize(
    ("numerator", "denominator", "expected"),
    [(3.0, 4.0, 0.75), (0.0, 0.0, 0.0), (1e300, 1.0, np.finfo(np.float32).max)],
)
def test_ratio_is_finite(numerator, denominator, expected):
    quotient = measurements.ratio(
        tf.constant(numerator, tf.float64), tf.constant(denominator, tf.float64)
    )
    assert quotient.dtype == tf.float32
    assert quotient == expected
