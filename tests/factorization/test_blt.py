# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from dpfl.factorization import blt, toeplitz
from dpfl.factorization.workloads import Workload
from tests.refusals import refuses


def test_one_buffer_by_hand():
    # c(x) = (1 - x/4) / (1 - x/2): 1, 1/4, 1/8, ...; 1/c(x): 1, -1/4, -1/16, ...
    factors = blt.factors_from_pair(np.array([0.5]), np.array([0.25]), 4)
    np.testing.assert_allclose(factors.coefficients(), [1, 1 / 4, 1 / 8, 1 / 16])
    np.testing.assert_allclose(
        factors.inverse_coefficients(), [1, -1 / 4, -1 / 16, -1 / 64]
    )


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


def test_a_million_rounds_need_no_matrix():
    found = blt.rational(Workload(10**6), buffers=6)
    assert found.errors().last == pytest.approx(found.step_errors()[-1])


def test_buffers_that_coincide_are_refused():
    with refuses(ValueError, "buffers", 2):
        blt.factors_from_pair(np.array([0.5, 0.5 - 1e-13]), np.array([0.4, 0.3]), 9)
