# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Matrix factorization and SGMF: results of a workload, and their correlated noise.

That a killed run goes on with its noise is in `loops/test_server.py`.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dpfl import mechanisms
from tests.codecs import rounds

ROUNDS = 5
FIELDS = {"cohort_size": 2, "clip_norm": 1.0, "rounds_per_epoch": ROUNDS}
DENSE = {"keep_fraction": 1.0, "linf_ratio": 1.0}
WORKLOADS = {
    "prefix": {},
    "momentum": {"matrix_momentum": 0.9, "matrix_schedule": "cooldown"},
}


def matrix(noise_multiplier=0.0, **changes):
    fields = {**FIELDS, "noise_multiplier": noise_multiplier, **changes}
    return mechanisms.MatrixFactorization(**fields)


def sgmf(**changes):
    return mechanisms.Sgmf(**FIELDS, **DENSE, noise_multiplier=0.0, **changes)


def of_rounds(config, updates):
    """The decoded results of a round for each of the updates."""
    state, results = None, []
    for number, given in enumerate(updates):
        decoded = rounds.run(config, given, number, state).decoded
        state = decoded.state
        results.append(decoded)
    return results, np.stack([each.mean for each in results]).astype(np.float64)


@pytest.mark.parametrize("maker", [matrix, sgmf])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_noiseless_results_sum_to_the_workload(maker, workload):
    config = maker(**WORKLOADS[workload])
    given = np.random.default_rng(0).normal(size=(12, 2, 6)) / 10
    _, found = of_rounds(config, given)
    sums = given.sum(1) / 2
    for first in (0, 5):
        expected = config.factorization.workload.apply(sums[first : first + 5])
        actual = np.cumsum(found[first : first + 5], axis=0)
        assert_allclose(actual, expected, atol=1e-5)
    # The third epoch has only two rounds, and begins afresh like the others.
    rates = config.factorization.workload.rates
    assert_allclose(found[10], rates[0] * sums[10], atol=1e-5)


@pytest.mark.parametrize(
    "fields",
    [
        {"matrix_method": "optimal", **WORKLOADS["momentum"]},
        {"matrix_method": "honaker-online"},
        {"matrix_method": "band-low-rank", "matrix_bands": 2, "matrix_rank": 1},
        {"matrix_method": "blt", "matrix_buffers": 1},
    ],
    ids=lambda fields: fields["matrix_method"],
)
def test_noise_of_summed_results_has_bs_covariance(fields):
    """Of two epochs; each method's matrix is in `noise_streams`."""
    config = matrix(0.5, **fields)
    dimension = 30_000
    results, found = of_rounds(config, [np.zeros([2, dimension])] * 10)
    scale = 0.5 * config.factorization.sensitivity().value / 2
    b = config.factorization.decoder()
    covariance = scale**2 * (b @ b.T)
    sums = [np.cumsum(found[:5], axis=0), np.cumsum(found[5:], axis=0)]
    deviations = np.sqrt(np.diag(covariance))
    unit = np.outer(deviations, deviations)
    for epoch in sums:
        assert_allclose(
            epoch @ epoch.T / dimension / unit, covariance / unit, atol=0.04
        )
    assert np.abs(sums[0] @ sums[1].T / dimension / unit).max() < 0.04
    rows = scale * np.linalg.norm(config.factorization.noising_rows()[:5], axis=1)
    for name, expected in (
        ("iterate_noise_stddev", deviations),
        ("noise_stddev", rows),
    ):
        reported = [float(result.measurements[name]) for result in results]
        assert_allclose(reported, np.tile(expected, 2), rtol=1e-5)
