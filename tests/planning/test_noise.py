# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The noise of a run for any training loop."""

import functools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dpfl

DIMENSION = 30_000
EPOCHS = dpfl.OncePerEpoch(population=100, cohort_size=10, rounds=12)
POISSON = dpfl.PoissonSampling(population=100, cohort_size=10, rounds=12)


FIELDS = {"cohort_size": 10, "clip_norm": 0.5, "noise_multiplier": 2.0}


def matrix(rounds_per_epoch=10, **changes):
    return dpfl.MatrixFactorization(rounds_per_epoch, **{**FIELDS, **changes})


def over_run(**changes):
    return matrix(None, noise_stream="run", rounds=12, **changes)


CASES = {
    "independent": (dpfl.Gaussian(**FIELDS), POISSON),
    "dense": (matrix(matrix_momentum=0.9), EPOCHS),
    "banded": (matrix(matrix_method="banded", matrix_bands=3), EPOCHS),
    "tree": (matrix(matrix_method="honaker-online"), EPOCHS),
    "run": (
        over_run(matrix_method="toeplitz", matrix_bands=3),
        dpfl.CyclicPoisson(population=100, cohort_size=10, rounds=12, min_separation=4),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_have_the_covariance_that_is_accounted_for(name):
    """Whitened, of 30,000 draws: one standard error is 0.8% of a variance."""
    mechanism, plan = CASES[name]
    rows = np.stack(list(dpfl.noise(mechanism, plan, DIMENSION, seed=3)))
    assert rows.dtype == np.float32
    expected = np.eye(12)
    if name != "independent":
        period = mechanism.stream_rounds
        part = mechanism.factorization.noising_rows()[:period]
        first, rest = part @ part.T, part[: 12 - period] @ part[: 12 - period].T
        zeros = np.zeros([period, 12 - period])
        expected = np.block([[first, zeros], [zeros.T, rest]])
        expected *= mechanism.matrix_sensitivity**2
    root = np.linalg.cholesky(expected)
    white = np.linalg.solve(root, rows.astype(np.float64) / (2.0 * 0.5))
    assert_allclose(white @ white.T / DIMENSION, np.eye(12), atol=0.05)
    assert np.abs(white.mean(axis=1)).max() < 0.03


@pytest.mark.parametrize("name", CASES)
def test_a_run_that_goes_on_has_the_same_bits(name):
    mechanism, plan = CASES[name]
    rows = list(dpfl.noise(mechanism, plan, 50, seed=3))
    assert len(rows) == 12
    for first in (0, 4, 10, 11, 12):
        resumed = dpfl.noise(mechanism, plan, 50, seed=3, first_round=first)
        assert resumed.round == first
        assert_array_equal(np.array(list(resumed)), np.array(rows[first:]))
        assert resumed.round == 12


def test_seeds():
    """The system's own unless one is given, and of one mechanism alone."""
    mechanism, plan = CASES["independent"]
    make = functools.partial(dpfl.noise, mechanism, plan, 50)
    fresh = make()
    assert fresh.seed != make().seed
    again = next(make(seed=fresh.seed))
    assert_array_equal(next(fresh), again)
    louder = dpfl.Gaussian(**{**FIELDS, "noise_multiplier": 4.0})
    other = next(dpfl.noise(louder, plan, 50, seed=fresh.seed)) / 2
    assert not np.isclose(other, again).any()


def test_the_program_of_tensorflow_has_the_same_rows():
    """From the same words: a stream of the aggregator's, fed by its program."""
    from dpfl.aggregators.matrix_factorization import NoiseFeeder

    mechanism, plan = CASES["run"]
    rows = dpfl.noise(mechanism, plan, 50, seed=3)
    words = np.array(rows._words, np.int64)
    feeder = NoiseFeeder(mechanism, 50)
    state = {"seed": words, "round": 0, "row": 0, "noise_row": 0}
    first = feeder.feed(state)
    state = {**state, "row": 1, "epoch_seed": first["noise_seed"]}
    for fed in (first, feeder.feed(state)):
        assert_allclose(mechanism.stddev * fed["noise"], next(rows), atol=1e-5)


@pytest.mark.parametrize(
    ("mechanism", "plan", "options", "error", "words"),
    [
        (dpfl.EXAMPLES["sgmf"], EPOCHS, {}, TypeError, "dpfl.aggregator"),
        (
            dpfl.Gaussian(**FIELDS, adaptive_clipping=True),
            POISSON,
            {},
            TypeError,
            "a fixed clip",
        ),
        (matrix(), POISSON, {}, ValueError, "once_per_epoch"),
        (dpfl.Gaussian(**FIELDS), POISSON, {"first_round": 13}, ValueError, "most 12"),
        (dpfl.Gaussian(**FIELDS), POISSON, {"seed": -1}, ValueError, "seed must be"),
    ],
)
def test_refusals(mechanism, plan, options, error, words):
    with pytest.raises(error, match=words):
        dpfl.noise(mechanism, plan, 50, **options)
