# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import itertools

import numpy as np
import pytest
from scipy import optimize

from dpfl import factorization as mf
from dpfl.factorization import optimal_epochs
from dpfl.factorization.iteration import ConvergenceError


def brute_sensitivity(encoder, separation):
    """The largest move by a client in rounds j, j + b, ..., with any signs."""
    rounds = encoder.shape[1]
    worst = 0.0
    for first in range(separation):
        own = np.arange(first, rounds, separation)
        for signs in itertools.product([-1, 0, 1], repeat=len(own)):
            worst = max(worst, np.linalg.norm(encoder[:, own] @ np.array(signs)))
    return worst


@pytest.mark.parametrize(
    ("workload", "separation"),
    [(mf.prefix_sum(12), 3), (mf.prefix_sum(11), 4), (mf.momentum(12, 0.5), 4)],
)
def test_error_and_sensitivity_of_the_factors(workload, separation):
    found = mf.compute(workload, "optimal-epochs", separation=separation)
    decoder, encoder = found.materialize()
    np.testing.assert_allclose(decoder @ encoder, workload.matrix(), atol=1e-9)
    assert not np.any(np.triu(encoder, 1))
    times = -(-workload.rounds // separation)
    plan = mf.FixedEpochs(times, separation)
    assert found.sensitivity(plan).value == pytest.approx(1)
    worst = brute_sensitivity(encoder, separation)
    assert worst <= 1 + 1e-9 and worst > 0.999
    solution = optimal_epochs.solve_epochs(workload, separation)
    assert found.errors(plan).total == pytest.approx(solution.loss, rel=1e-9)
    assert 0 <= solution.gap <= 1e-3


def test_nobody_comes_back():
    found = mf.compute(mf.prefix_sum(20), "optimal-epochs", rtol=1e-6)
    want = mf.compute(mf.prefix_sum(20), "optimal")
    assert found.loss == pytest.approx(want.loss, rel=2e-6)
    assert found.params == {"separation": 20, "rtol": 1e-6}


def test_no_other_encoder_is_below_the_bound():
    """Toeplitz, banded and random ones; and a search over all triangular encoders."""
    workload, plan = mf.prefix_sum(8), mf.FixedEpochs(4, 2)
    bound = optimal_epochs.solve_epochs(workload, 2, rtol=1e-5).bound
    for method, params in (
        ("toeplitz", {"participations": 4, "separation": 2}),
        ("banded", {"bands": 2}),
        ("optimal", {}),
        ("identity", {}),
    ):
        found = mf.compute(workload, method, **params)
        assert found.errors(plan).total > bound
    matrix = workload.matrix()
    below = np.tril_indices(8)

    def total(entries):
        encoder = np.zeros((8, 8))
        encoder[below] = entries
        squared = plan.sensitivity(encoder).value ** 2
        return np.sum((matrix @ np.linalg.inv(encoder)) ** 2) * squared

    start = mf.compute(workload, "banded", bands=2).encoder()[below]
    for seed in range(3):
        moved = start + 0.05 * np.random.default_rng(seed).normal(size=len(start))
        found = optimize.minimize(total, moved, method="Powell", options={"maxiter": 3})
        assert found.fun > bound


def test_the_gradient_and_a_step_too_far():
    matrix = mf.prefix_sum(6).matrix()
    dual = optimal_epochs.Dual(matrix.T @ matrix, 2)
    rng = np.random.default_rng(0)
    near = dual.start + 0.2 * rng.normal(size=len(dual.start))
    slope = optimize.approx_fprime(near, lambda params: dual(params)[0], 1e-6)
    np.testing.assert_allclose(dual(near)[1], slope, atol=1e-4)
    # Entries of S at 1 and of both signs: W has negative eigenvalues.
    far = dual.start.copy()
    far[2:] = np.where(np.arange(len(far) - 2) % 2, 1.0, -1.0)
    assert np.isfinite(dual(far)[0]) and dual(far)[0] > dual(dual.start)[0]
    assert dual.solution(far).bound == 0


def test_too_few_iterations():
    with pytest.raises(ConvergenceError, match="rtol 1e-09 was not reached in 2 iter"):
        optimal_epochs.solve_epochs(mf.prefix_sum(9), 3, rtol=1e-9, max_iterations=2)
    with pytest.raises(ValueError, match="^separation must be"):
        optimal_epochs.solve_epochs(mf.prefix_sum(9), 10)
