# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from scipy import optimize

from dpfl import factorization as mf
from dpfl.factorization import banded, inverse_banded, sensitivity, toeplitz
from dpfl.factorization.factors import BandedFactors, series_inverse
from dpfl.factorization.workloads import LinearCooldown, Workload
from tests.factorization.test_sensitivity import brute_force, separated

BOTH = ("banded-inverse-root", "banded-inverse")


def test_error_and_gradient_against_dense():
    workload = Workload(9, 0.7, LinearCooldown())
    rng = np.random.default_rng(0)
    diagonals = rng.random((9, 3)) + [[1.0, 0, 0]]
    diagonals[np.arange(9)[:, None] + np.arange(3) >= 9] = 0
    matrix = workload.matrix()

    def dense(flat):
        encoder = BandedFactors(flat.reshape(9, 3)).encoder(workload)
        return np.sum((matrix @ np.linalg.inv(encoder)) ** 2)

    error, gradient = banded.error_and_gradient(diagonals, matrix)
    assert error == pytest.approx(dense(diagonals.ravel()))
    slope = optimize.approx_fprime(diagonals.ravel(), dense, 1e-7)
    np.testing.assert_allclose(gradient.ravel(), slope, rtol=1e-3, atol=1e-4)


def test_gradient_through_the_normalisation():
    matrix = Workload(9, 0.7).matrix()
    params = np.random.default_rng(0).random(27) + 0.2
    found = banded.log_error(params, matrix, 3)[1]
    slope = optimize.approx_fprime(
        params, lambda p: banded.log_error(p, matrix, 3)[0], 1e-7
    )
    np.testing.assert_allclose(found, slope, rtol=1e-3, atol=1e-6)


def test_columns_have_unit_norm_within_the_band():
    found = banded.optimize_banded(Workload(32), bands=4)
    decoder, encoder = found.materialize()
    np.testing.assert_allclose(decoder @ encoder, np.tri(32), atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(encoder, axis=0), 1)
    assert not np.any(np.tril(encoder, -4)) and np.any(np.diagonal(encoder, -3))
    assert found.sensitivity().value == pytest.approx(1)


@pytest.mark.parametrize("rounds", [1, 5])
@pytest.mark.parametrize("method", ["banded", *BOTH])
def test_one_band_is_the_identity(method, rounds):
    decoder, encoder = mf.compute(Workload(rounds), method, bands=1).materialize()
    np.testing.assert_array_equal(encoder, np.eye(rounds))
    np.testing.assert_array_equal(decoder, np.tri(rounds))


def test_inverse_root_is_truncated():
    """(1 - x)^(1/2) = 1 - x/2 - x^2/8 - x^3/16 - ..."""
    factors = inverse_banded.root(Workload(6), bands=4).factors
    np.testing.assert_allclose(factors.e, [1, -1 / 2, -1 / 8, -1 / 16, 0, 0])
    assert factors.entries == 4


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize("workload", [Workload(9), Workload(9, 0.9, LinearCooldown())])
def test_the_inverse_of_the_encoder_has_few_diagonals(workload, method):
    encoder = mf.compute(workload, method, bands=3).encoder()
    inverse = np.linalg.inv(encoder)
    np.testing.assert_allclose(np.tril(inverse, -3), 0, atol=1e-12)
    assert np.all(np.diagonal(inverse, -1) < 0) and np.max(encoder[3:, 0]) > 0.01


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize("plan", [(2, 3), (3, 2), (2, 5), (9, 1)])
def test_sensitivity_by_all_patterns_and_signs(method, plan):
    """Every set of at most k rounds at least b apart, vectors of one sign or two."""
    limit, separation = plan
    several = {"participations": limit, "separation": separation}
    params = several if method == "banded-inverse" else {}
    found = mf.compute(Workload(9), method, bands=3, **params)
    encoder = found.encoder()
    worst = brute_force(encoder, separated(9, separation, limit))
    known = found.sensitivity(mf.MinSeparation(separation, limit))
    assert known.exact
    assert known.value == pytest.approx(worst)


@pytest.mark.parametrize("seed", range(5))
def test_non_increasing_hazards_give_non_increasing_columns(seed):
    rng = np.random.default_rng(seed)
    inverse = inverse_banded.from_hazards(inverse_banded.hazards(rng.normal(2, 2, 7)))
    column = series_inverse(inverse, 60)
    assert np.all(column >= 0) and np.all(np.diff(column) <= 0)
    rising = inverse_banded.from_hazards(np.array([0.1, 0.1, 0.9]))
    assert np.any(np.diff(series_inverse(rising, 60)) > 0.1)


def test_chain_is_the_derivative():
    rng = np.random.default_rng(0)
    params, gradient = rng.normal(size=5), rng.normal(size=5)

    def along(params):
        entries = inverse_banded.from_hazards(inverse_banded.hazards(params))
        return gradient @ entries[1:]

    slope = optimize.approx_fprime(params, along)
    found = inverse_banded.chain(params, gradient)
    np.testing.assert_allclose(found, slope, atol=1e-6)


@pytest.mark.parametrize(("limit", "separation"), [(1, 1), (4, 12)])
@pytest.mark.parametrize("bands", [2, 5])
def test_optimised_by_a_search_without_gradients(bands, limit, separation):
    """Nelder-Mead over the entries themselves, with the true sensitivity."""
    workload = Workload(48)
    plan = mf.MinSeparation(separation, limit)
    several = {"participations": limit, "separation": separation}
    found = mf.compute(workload, "banded-inverse", bands=bands, **several)
    form = toeplitz.error_form(workload)

    def total(hazards):
        hazards = np.minimum.accumulate(np.clip(hazards, 0, 1))
        inverse = np.zeros(48)
        inverse[:bands] = inverse_banded.from_hazards(hazards)
        column = series_inverse(inverse, 48)
        comb = sensitivity.toeplitz_min_separation(column, separation, limit)
        return form(inverse)[0] * comb**2

    start = np.full(bands - 1, 0.5)
    options = {"maxiter": 4000, "maxfev": 4000, "xatol": 1e-9, "fatol": 1e-9}
    best = optimize.minimize(total, start, method="Nelder-Mead", options=options).fun
    assert found.errors(plan).total <= best * (1 + 1e-4)
    root = mf.compute(workload, "banded-inverse-root", bands=bands)
    assert found.errors(plan).total < root.errors(plan).total
