# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from dpfl.factorization import blt, optimal, sensitivity, toeplitz
from dpfl.factorization.workloads import Workload
from tests.refusals import refuses


def test_one_buffer_by_hand():
    # c(x) = (1 - x/4) / (1 - x/2): 1, 1/4, 1/8, ...; 1/c(x): 1, -1/4, -1/16, ...
    factors = blt.factors_from_pair(np.array([0.5]), np.array([0.25]), 4)
    np.testing.assert_allclose(factors.coefficients(), [1, 1 / 4, 1 / 8, 1 / 16])
    np.testing.assert_allclose(
        factors.inverse_coefficients(), [1, -1 / 4, -1 / 16, -1 / 64]
    )


@pytest.mark.parametrize("workload", [Workload(128), Workload(128, 0.9)])
def test_more_buffers_are_no_worse_and_near_optimal_toeplitz(workload):
    losses = [blt.optimize_blt(workload, buffers=d).loss for d in (1, 2, 3)]
    assert all(b <= a * (1 + 1e-6) for a, b in zip(losses, losses[1:]))
    best = toeplitz.optimize_toeplitz(workload).loss
    assert best * (1 - 1e-6) <= losses[-1] < 1.005 * best
    assert losses[-1] >= optimal.factorize(workload).lower_bound


def test_decays_interlace_and_scales_have_their_signs():
    factors = blt.optimize_blt(Workload(200), buffers=3).factors
    order = np.stack([factors.decay, factors.inverse_decay], axis=1).ravel()
    assert np.all(np.diff(order) < 0) and 0 < order[-1] and order[0] < 1
    assert np.all(factors.scale > 0) and np.all(factors.inverse_scale < 0)
    column = factors.coefficients()
    assert np.all(column > 0) and np.all(np.diff(column) < 0)


def test_rational_start_approaches_the_root():
    def error(buffers):
        decay, zeros = blt.rational_start(buffers, 100)
        column = blt._cascade(zeros, decay, 100)
        return np.max(np.abs(column - toeplitz.inverse_root(1.0, 100)))

    assert error(2) > error(4) > error(8)
    assert error(8) < 0.1


def test_optimising_improves_on_the_closed_form():
    workload = Workload(100)
    closed = blt.rational(workload, buffers=3)
    assert blt.optimize_blt(workload, buffers=3).loss < closed.loss


def test_several_participations_are_optimised_for():
    workload, plan = Workload(64), sensitivity.MinSeparation(8, 8)
    once = blt.optimize_blt(workload, buffers=2)
    many = blt.optimize_blt(workload, buffers=2, separation=8, participations=8)
    assert many.sensitivity(plan).exact
    assert many.errors(plan).total < 0.95 * once.errors(plan).total


def test_a_million_rounds_need_no_matrix():
    found = blt.rational(Workload(10**6), buffers=6)
    assert found.errors().last == pytest.approx(found.step_errors()[-1])


def test_buffers_that_coincide_are_refused():
    with refuses(ValueError, "buffers", 2):
        blt.factors_from_pair(np.array([0.5, 0.5 - 1e-13]), np.array([0.4, 0.3]), 9)
