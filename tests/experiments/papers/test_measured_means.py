# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import tensorflow as tf

from dpfl import mechanisms, planning
from experiments.papers import measured_means, secure_sums

D, N = 512, 10
VECTORS = {
    "similar": (measured_means.similar_vectors, 0.5),
    "independent": (measured_means.independent_vectors, 0.0),
}


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (mechanisms.ProjectAndPerturb(N, 1.0, 0.1, 5.0), "similar"),
        (mechanisms.DistributedDiscreteGaussian(N, 1.0, 0.5, 10), "independent"),
    ],
)
def test_errors_match_theory(config, kind):
    """Within 10% over 30 draws, with enough compression for its part to count."""
    vectors, product = VECTORS[kind]
    errors = measured_means.measured_errors(config, D, 30, vectors, seed=8)
    expected = secure_sums.expected_error(config, D, product)
    assert errors.mean() == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("name", ["gaussian", "l2_csgm"])
def test_errors_with_trusted_server_match_theory(name):
    keep = {} if name == "gaussian" else {"keep_fraction": 0.1}
    config = mechanisms.MECHANISMS[name](20, 1.0, 1.0, **keep)
    config = planning.calibrate(config, None, D, 4.0, 1e-5, "rdp")
    errors = measured_means.measured_errors(config, D, 60, seed=8)
    # 60 errors of 512 coordinates each: a standard error below 1%.
    assert errors.mean() == pytest.approx(config.mean_squared_error(D), rel=0.04)


def test_vectors_have_the_stated_distribution():
    seeds = [tf.constant([0, i], tf.int64) for i in range(40)]
    for kind, (vectors, product) in VECTORS.items():
        made = np.array([vectors(2000, 3)(seed).numpy() for seed in seeds])
        products = made @ made.T
        assert np.allclose(np.diag(products), 1, atol=1e-5), kind
        others = products[~np.eye(len(seeds), dtype=bool)]
        assert others.mean() == pytest.approx(product, abs=0.02)
    sparse = measured_means.sparse_vectors(5)(100, 3)
    made = np.array([sparse(seed).numpy() for seed in seeds])
    assert (np.abs(made).sum(0) > 0).sum() == 5
    assert np.allclose(np.linalg.norm(made, axis=1), 1, atol=1e-5)
