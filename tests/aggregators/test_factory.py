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
from dpfl.aggregators import layout
from tests.aggregators import cohorts
from tests.codecs import rounds
from tests.refusals import refuses

N = 4
CONFIGS = [
    mechanisms.NoMechanism(N),
    mechanisms.Gaussian(N, 1.0, 0.1),
    mechanisms.Gaussian(N, 1.0, 0.1, adaptive_clipping=True),
    mechanisms.L2Csgm(N, 1.0, 0.1, 0.5),
    mechanisms.LinfCsgm(N, 1.0, 0.1, 0.5, rotation="dft"),
]
NOISY = CONFIGS[1:]


class TestComputation:
    @pytest.mark.parametrize(
        "value_type",
        [
            tff.TensorType(np.int32, [3]),
            tff.to_type([np.float32, np.int64]),
            tff.TensorType(np.float32, [None]),
            tff.to_type(collections.OrderedDict()),
            tff.SequenceType(np.float32),
            cohorts.with_keys(np.int32),
            tff.to_type(
                collections.OrderedDict(update=np.float32, client_key=np.int64)
            ),
            tff.FederatedType(np.float32, tff.CLIENTS),
        ],
        ids=str,
    )
    def test_unsupported_value_types_are_refused(self, value_type):
        factory = aggregators.build(NOISY[0])
        with refuses(TypeError, "value_type", value_type):
            factory.create(value_type)

    @pytest.mark.parametrize("shapes", [[(0,)], [(0, 3), (2, 0)]], ids=str)
    def test_updates_without_parameters_are_refused(self, shapes):
        value_type = tff.to_type([(np.float32, shape) for shape in shapes])
        for config in (NOISY[0], CONFIGS[0]):
            with refuses(ValueError, "value_type", repr(value_type)):
                aggregators.build(config).create(value_type)

    @pytest.mark.parametrize("seed", [-1, 2**126, 1.5, "1", True])
    def test_bad_seeds_are_refused(self, seed):
        error = ValueError if type(seed) is int else TypeError
        with refuses(error, "seed", seed):
            aggregators.build(NOISY[0], seed=seed)


class TestExecution:
    def test_structure_shapes_and_dtypes_are_preserved(self, tff_context):
        half, nothing = (np.float16, (1, 2, 2)), (np.float32, [0])
        value_type = tff.to_type(
            collections.OrderedDict(
                a=[(np.float32, (2, 3)), np.float64], b=(half, nothing)
            )
        )
        half = np.arange(4, dtype=np.float16).reshape(1, 2, 2)
        value = collections.OrderedDict(
            a=[np.arange(6, dtype=np.float32).reshape(2, 3), np.float64(7)],
            b=(half, np.zeros(0, np.float32)),
        )
        config = mechanisms.L2Csgm(2, 1e3, 0.0, 1.0, linf_ratio=1.0)
        process = aggregators.build(config).create(value_type)
        result = process.next(process.initialize(), [value, value]).result
        for actual, expected in zip(tf.nest.flatten(result), tf.nest.flatten(value)):
            # Rounding to the grid, within a clip of 100, is 1e-5 of it.
            assert_allclose(actual, expected, rtol=5e-5, atol=5e-5)
            assert np.asarray(actual).dtype == np.asarray(expected).dtype

    def test_executions_without_a_seed_never_share_noise(self, tff_context):
        value_type = tff.TensorType(np.float32, [9])
        process, other = (aggregators.build(NOISY[0]).create(value_type) for _ in "ab")
        states = [process.initialize(), other.initialize()]
        assert "seed" not in states[0]
        results = [process.next(states[i], []).result for i in (0, 0, 1)]
        assert all(np.all(results[i] != results[i - 1]) for i in range(3))

    def test_processes_with_one_seed_have_independent_noise(self):
        """Releases without clients are noise alone."""
        d, own = 4000, mechanisms.Gaussian(N, 1.0, 2.0)

        def noise(config, size=d, seed=5):
            factory = aggregators.build(config, seed=seed)
            steps = factory.round_functions(tff.TensorType(np.float32, [size]))
            state = steps.initial_state()
            shared = steps.prepare(state)
            _, sums = steps.encode(tf.zeros([size]), shared)
            nobody = tf.nest.map_structure(tf.zeros_like, sums)
            finished = steps.finish(state, shared, steps.codec.zero(), nobody)
            return finished["result"].numpy()

        once = noise(own)
        assert_array_equal(once, noise(mechanisms.Gaussian(N, 1.0, 2.0)))
        others = [
            noise(mechanisms.Gaussian(N, 1.0, 2.0001)),
            noise(mechanisms.Gaussian(N + 1, 1.0, 2.0)),
            noise(mechanisms.Gaussian(N, 0.5, 2.0)),
            noise(mechanisms.Gaussian(N, 1.0, 2.0, adaptive_clipping=True)),
            noise(mechanisms.L2Csgm(N, 1.0, 2.0, 1.0)),
            noise(own, size=d + 1)[:d],
            # As (7, round 1) and (7 + 2**63, round 0) were once alike.
            noise(own, seed=5 + 2**63),
        ]
        correlations = np.corrcoef([once, *others]) - np.eye(1 + len(others))
        assert np.abs(correlations).max() < 4.5 / np.sqrt(d)

    def test_client_draws_follow_from_its_key_and_the_round(self, tff_context):
        value_type = cohorts.with_keys((np.float32, [64]))
        config = mechanisms.L2Csgm(1, 1.0, 0.0, 0.5)
        process = aggregators.build(config, seed=3).create(value_type)
        state = process.initialize()

        def kept(key, at=state):
            value = {
                "update": np.full(64, 0.1, np.float32),
                "client_key": np.array(key),
            }
            return process.next(at, [collections.OrderedDict(value)]).result

        first = [1, 2]
        assert_array_equal(kept(first), kept(first))
        for other in ([1, 3], [2, 2], [2, 1]):
            assert np.any(kept(first) != kept(other))
        later = process.next(state, []).state
        assert np.any(kept(first) != kept(first, later))


def test_keys_of_a_structure_are_sorted():
    """As in the layout of a pytree of JAX; see `arrays/test_jax_aggregator.py`."""
    tree = collections.OrderedDict(z=tf.range(2.0), a=[tf.range(3.0) + 5])
    types = tff.to_type(
        collections.OrderedDict(z=(np.float32, [2]), a=[(np.float32, [3])])
    )
    vector = layout.Layout(types).flatten(tree, 6)
    assert_array_equal(vector, [5, 6, 7, 0, 1, 0])


def test_a_round_with_more_measurements(tff_context):
    norm = tff.tensorflow.computation(lambda result: tf.norm(result[0]))

    def measure(result):
        return collections.OrderedDict(first=tff.federated_map(norm, result))

    config = NOISY[3]
    factory = tff.aggregators.add_measurements(
        aggregators.build(config, seed=1), server_measurement_fn=measure
    )
    process = factory.create(tff.to_type([(np.float32, [12]), (np.float32, [3])]))
    update = [np.ones(12, np.float32), np.ones(3, np.float32)]
    measured = process.next(process.initialize(), [update] * N).measurements
    assert measured["first"] > 0
    assert measured["exact_clients"] == N
    assert measured["downlink_bits"] == config.downlink_bits(12 + 3)


VALUE_TYPE = tff.to_type(collections.OrderedDict(a=(np.float32, (2, 3)), b=np.float32))
TEN = mechanisms.NoMechanism(10)


def value(number):
    parts = {"a": np.full([2, 3], number, np.float32), "b": np.float32(number)}
    return collections.OrderedDict(parts)


class TestMean:
    def test_unprotected_mean_skips_non_finite_updates(self):
        # Huge ones are not touched.
        for rows, mean in (([1.0, 4.0, math.nan, math.inf], 2.5), ([1e30] * 2, 1e30)):
            decoded = rounds.run(TEN, np.outer(rows, np.ones(4))).decoded
            assert_allclose(decoded.mean, np.full(4, mean), rtol=1e-6)

    def test_unweighted(self, tff_context):
        process = aggregators.build(TEN).create(VALUE_TYPE)
        state = process.initialize()
        output = process.next(state, [value(x) for x in (1, 2, math.inf)])
        assert_allclose(output.result["a"], np.full([2, 3], 1.5))
        norm = pytest.approx(1.5 * math.sqrt(7))
        # Bits to a client, clients, those that are not finite, their norm, their bits.
        assert list(output.measurements.values()) == [7 * 32, 3, 1, norm, 7 * 32]
        nobody = process.next(state, [])
        assert_array_equal(nobody.result["a"], np.zeros([2, 3]))
