# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from scipy import optimize

from dpfl.factorization import blt, factors, sensitivity, toeplitz
from dpfl.factorization.workloads import LinearCooldown, Workload

COOLDOWN = Workload(20, 0.8, LinearCooldown())


def test_root_of_the_prefix_sum_by_hand():
    root = [1, 1 / 2, 3 / 8, 5 / 16, 35 / 128]
    np.testing.assert_allclose(toeplitz.inverse_root(1.0, 5), root)


@pytest.mark.parametrize("workload", [Workload(40), Workload(40, 0.9)])
def test_root_squares_to_the_workload(workload):
    found = toeplitz.root(workload)
    decoder, encoder = found.materialize()
    np.testing.assert_allclose(encoder @ encoder, workload.matrix(), atol=1e-10)
    np.testing.assert_allclose(decoder, encoder, atol=1e-10)


def test_weight_decay_root():
    column = toeplitz.root_coefficients(30, 0.99, 0.9)
    square = np.convolve(column, column)[:30]
    expected = np.convolve(0.99 ** np.arange(30), 0.9 ** np.arange(30))[:30]
    np.testing.assert_allclose(square, expected, rtol=1e-9)


@pytest.mark.parametrize("workload", [Workload(20), Workload(20, 0.9), COOLDOWN])
def test_error_form_is_the_dense_error(workload):
    inverse = np.random.default_rng(0).normal(size=20)
    decoder = workload.matrix() @ factors.toeplitz_matrix(inverse, 20)
    form = toeplitz.error_form(workload)
    assert form(inverse)[0] == pytest.approx(np.sum(decoder**2))
    error = optimize.check_grad(lambda e: form(e)[0], lambda e: form(e)[1], inverse)
    assert error < 1e-5 * np.linalg.norm(form(inverse)[1])


def test_pull_back_is_the_derivative_of_the_inverse():
    rng = np.random.default_rng(0)
    column, gradient = 1 + rng.random(8), rng.normal(size=8)
    found = toeplitz.pull_back(factors.series_inverse(column, 8), gradient)

    def along(c):
        return gradient @ factors.series_inverse(c, 8)

    np.testing.assert_allclose(found, optimize.approx_fprime(column, along), rtol=1e-4)


@pytest.mark.parametrize("plan", [(1, 1), (3, 4), (5, 2)])
def test_sensitivity_gradient(plan):
    column = np.sort(np.random.default_rng(0).random(12))[::-1]

    def log_of(c):
        return toeplitz.log_sensitivity_squared(c, *plan)

    expected = 2 * np.log(sensitivity.toeplitz_min_separation(column, *plan))
    assert log_of(column)[0] == pytest.approx(expected)
    slope = optimize.approx_fprime(column, lambda c: log_of(c)[0])
    np.testing.assert_allclose(log_of(column)[1], slope, rtol=1e-4)


def test_several_participations_are_optimised_for():
    workload, plan = Workload(64), sensitivity.MinSeparation(16, 4)
    options = {"separation": 16, "participations": 4}
    many = toeplitz.optimize_toeplitz(workload, **options)
    assert many.sensitivity(plan).exact
    buffered = [blt.optimize_blt(workload, buffers=2, **own) for own in (options, {})]
    assert buffered[0].sensitivity(plan).exact
    totals = [found.errors(plan).total for found in buffered]
    assert many.errors(plan).total <= totals[0] < 0.95 * totals[1]
    for other in (
        toeplitz.optimize_toeplitz(workload),
        toeplitz.optimize_toeplitz(workload, bands=4),
        toeplitz.root(workload),
    ):
        assert many.errors(plan).total < other.errors(plan).total
    banded = toeplitz.optimize_toeplitz(workload, bands=16)
    assert banded.sensitivity(plan).value == pytest.approx(2)
    assert many.errors(plan).total <= banded.errors(plan).total * (1 + 1e-4)
