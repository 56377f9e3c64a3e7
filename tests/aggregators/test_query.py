# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mechanisms as queries of TensorFlow Privacy."""

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow_privacy.privacy.optimizers import dp_optimizer_keras

import dpfl
from tests.refusals import refuses

SPECS = [tf.TensorSpec([40, 20]), tf.TensorSpec([200])]
TYPE = tff.types.tensorflow_to_type(SPECS)
FIELDS = {"cohort_size": 4, "clip_norm": 1.0, "noise_multiplier": 0.5}
MATRIX = dpfl.MatrixFactorization(2, **FIELDS, matrix_momentum=0.9)
CASES = {
    "gaussian": dpfl.Gaussian(**FIELDS),
    "adaptive": dpfl.Gaussian(**FIELDS, adaptive_clipping=True),
    "matrix": MATRIX,
    "sketch": dpfl.ProjectAndPerturb(**FIELDS, compression_rate=2.0),
}


@pytest.mark.parametrize("name", CASES)
def test_query_in_tff_equals_the_aggregator_bit_for_bit(name, tff_context):
    """Over three rounds, in the second of which a stream of two starts afresh."""
    mechanism = CASES[name]
    query = dpfl.query(mechanism, SPECS, seed=1)
    theirs = tff.aggregators.DifferentiallyPrivateFactory(query).create(TYPE)
    ours = dpfl.aggregator(mechanism, seed=1, measure="released").create(TYPE)
    clients = [
        [np.full([40, 20], i, np.float32), np.ones(200, np.float32)] for i in (1, 2)
    ]
    state, own = theirs.initialize(), ours.initialize()
    for _ in range(3):
        found, expected = theirs.next(state, clients), ours.next(own, clients)
        state, own = found.state, expected.state
        for part, other in zip(found.result, expected.result):
            assert_array_equal(part, other)
            assert np.abs(part).max() > 0


@pytest.mark.parametrize("eagerly", [True, False])
def test_query_in_a_tensorflow_privacy_optimizer(eagerly):
    """Two examples a step, of gradients (1, 0) and (0, 1), and noise that is fresh.

    In a graph its state would be a constant, and each step's noise the same.
    """
    mechanism = dpfl.Gaussian(2, clip_norm=1.0, noise_multiplier=1.0)
    query = dpfl.query(mechanism, [tf.TensorSpec([2, 1])], seed=1, output="sum")
    layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = tf.keras.Sequential([layer])
    optimizer = dp_optimizer_keras.GenericDPSGDOptimizer(query, 2, learning_rate=1.0)
    loss = tf.keras.losses.MeanAbsoluteError(reduction="none")
    model.compile(optimizer, loss, run_eagerly=eagerly)
    x, y = np.eye(2, dtype=np.float32), np.full([2, 1], -100, np.float32)
    if not eagerly:
        with refuses(RuntimeError, "run_eagerly=True"):
            model.fit(x, y, verbose=0)
        return
    state, expected = query.initial_global_state(), np.zeros([2, 1])
    for _ in range(3):
        params, total = query.derive_sample_params(state), query.initial_sample_state()
        for row in x:
            record = [tf.constant(row[:, np.newaxis])]
            total = query.accumulate_record(params, total, record)
        [result], state, _ = query.get_noised_result(total, state)
        expected = expected - result.numpy() / 2
        model.fit(x, y, verbose=0)
        assert_allclose(layer.kernel.numpy(), expected, atol=1e-5)


def test_events():
    """Of correlated noise a round alone has none."""
    one = dp_accounting.GaussianDpEvent(0.5)
    events = {"gaussian": one, "matrix": dp_accounting.UnsupportedDpEvent()}
    for name, expected in events.items():
        query = dpfl.query(CASES[name], SPECS)
        state, total = query.initial_global_state(), query.initial_sample_state()
        assert query.get_noised_result(total, state)[2] == expected


@pytest.mark.parametrize("name", ["l2_csgm", "sgmf", "dome", "sketched_ddg"])
def test_unsuitable_mechanisms_are_refused_as_queries(name):
    mechanism = dpfl.TEST_CONFIGS[name]
    with refuses(ValueError, name, "dpfl.aggregator"):
        dpfl.query(mechanism, SPECS)
