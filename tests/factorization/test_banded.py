# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from scipy import optimize

from dpfl.factorization import banded, optimal, sensitivity, toeplitz
from dpfl.factorization.factors import BandedFactors
from dpfl.factorization.workloads import LinearCooldown, Workload


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


def test_columns_are_unit_and_the_band_is_kept():
    found = banded.optimize_banded(Workload(32), bands=4)
    decoder, encoder = found.materialize()
    np.testing.assert_allclose(decoder @ encoder, np.tri(32), atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(encoder, axis=0), 1)
    assert not np.any(np.tril(encoder, -4)) and np.any(np.diagonal(encoder, -3))
    assert found.sensitivity().value == pytest.approx(1)


def test_more_bands_are_not_worse_and_all_of_them_are_optimal():
    workload = Workload(32, 0.5)
    losses = [
        banded.optimize_banded(workload, bands=bands).loss for bands in (1, 2, 4, 8, 32)
    ]
    assert all(b < a for a, b in zip(losses, losses[1:]))
    assert losses[-1] == pytest.approx(optimal.factorize(workload).loss, rel=1e-3)


@pytest.mark.parametrize(
    ("workload", "most"), [(Workload(64, 0.9), 0.995), (Workload(48), 1)]
)
def test_better_than_the_banded_toeplitz_at_which_it_starts(workload, most):
    found = banded.optimize_banded(workload, bands=8)
    start = toeplitz.optimize_toeplitz(workload, bands=8)
    assert found.loss < most * start.loss


def test_participations_apart_by_the_band_add_in_squares():
    found = banded.optimize_banded(Workload(32), bands=8)
    several = found.sensitivity(sensitivity.MinSeparation(8, 3))
    assert several.exact and several.value == pytest.approx(np.sqrt(3))


@pytest.mark.parametrize("rounds", [1, 5])
def test_one_band_is_the_identity(rounds):
    decoder, encoder = banded.optimize_banded(Workload(rounds), bands=1).materialize()
    np.testing.assert_array_equal(encoder, np.eye(rounds))
    np.testing.assert_array_equal(decoder, np.tri(rounds))
