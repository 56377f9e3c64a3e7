# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""dp_accounting's own RDP tests, run on `DpflAccountant`, and every order from 1 on."""

import math
from unittest import mock

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant, rdp_privacy_accountant_test

from dpfl import accounting

GAUSSIAN = dp_accounting.GaussianDpEvent
INF = math.inf


class DpAccountingsOwnTest(rdp_privacy_accountant_test.RdpPrivacyAccountantTest):
    """The installed dp_accounting's tests, with our accountant in the place of theirs.

    They are the tests that dp_accounting (Apache-2.0) ships in its wheel; whatever
    release is installed, they are the ones that belong to it.
    """

    def setUp(self):
        super().setUp()
        patch = mock.patch.object(
            rdp_privacy_accountant, "RdpAccountant", accounting.DpflAccountant
        )
        patch.start()
        self.addCleanup(patch.stop)

    # Where dpfl does better than some releases of dp_accounting, or says it otherwise.

    def test_compute_rdp_poisson_sampled_gaussian(self):
        # From 0.4.4 on dp_accounting adds up the sizes of an alternating series at
        # fractional orders: 6.7058e-4 at 1.5. These are 0.4.3's, which are exact.
        accountant = accounting.DpflAccountant([1.5, 2.5, 5, 50, 100, INF])
        sampled = dp_accounting.PoissonSampledDpEvent(0.01, GAUSSIAN(2.5))
        accountant.compose(sampled, 50)
        want = [6.5007e-04, 1.0854e-03, 2.1808e-03, 2.3846e-02, 1.6742e02, INF]
        np.testing.assert_allclose(accountant.rdp, want, rtol=1e-4)

    def test_log_a_frac_early_termination(self):
        # At small orders dp_accounting's series may not converge; the quadrature does.
        sampled = dp_accounting.PoissonSampledDpEvent(0.1, GAUSSIAN(1.0))
        assert np.all(np.isfinite(accounting.DpflAccountant().compose(sampled).rdp))

    def _assert_refuses_rate(self, q):
        sampled = dp_accounting.PoissonSampledDpEvent(q, GAUSSIAN(1))
        with self.assertRaisesRegex(ValueError, "^sampling_probability must be"):
            accounting.DpflAccountant().compose(sampled)

    def test_raises_on_invalid_sampling_rate_q_neg(self):
        self._assert_refuses_rate(-0.1)

    def test_raises_on_invalid_sampling_rate_q_large(self):
        self._assert_refuses_rate(1.1)


@pytest.mark.parametrize("q", [1.0, 0.3, 0.01])
def test_order_1_is_the_kullback_leibler_divergence(q):
    x = np.linspace(-14, 15, 200_001)
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    ratio = 1 - q + q * np.exp(x - 0.5)
    exact = np.sum(density * ratio * np.log(ratio)) * (x[1] - x[0])
    event = accounting.SparsifiedGaussianDpEvent(1.0, 1.0, 1.0, 1, q)
    [found, above] = accounting.DpflAccountant([1, 1.01]).compose(event).rdp
    assert exact <= found < above
    assert found == pytest.approx(exact, rel=1e-5)


def test_events_at_orders_1_and_infinity():
    event = accounting.MatrixFactorizationDpEvent(2.0)
    found = accounting.DpflAccountant([1, 2, INF]).compose(event, 3).rdp
    np.testing.assert_allclose(found, [3 / 8, 6 / 8, INF], rtol=1e-5)
    nobody = accounting.SparsifiedGaussianDpEvent(2.0, 0.1, 0.1, 64, 0.0)
    ledger = accounting.DpflAccountant([1, INF]).compose(nobody)
    np.testing.assert_array_equal(ledger.rdp, [0, 0])
    assert ledger.get_epsilon(0.0) == 0


def test_what_is_infinite_at_infinity_is_converted_at_the_other_orders():
    # dp_accounting's conversion reports an epsilon of 0 here.
    with_infinity = accounting.DpflAccountant([2, 32, INF]).compose(GAUSSIAN(2.0))
    without = accounting.DpflAccountant([2, 32]).compose(GAUSSIAN(2.0))
    for delta in (1e-9, 1e-5, 0.1):
        want = without.get_epsilon_and_optimal_order(delta)
        assert with_infinity.get_epsilon_and_optimal_order(delta) == want
        assert with_infinity.get_epsilon(delta) == want[0] > 0
    for epsilon in (0.1, 1.0):
        want = without.get_delta_and_optimal_order(epsilon)
        assert with_infinity.get_delta_and_optimal_order(epsilon) == want
        assert with_infinity.get_delta(epsilon) == want[0]
    alone = accounting.DpflAccountant([INF]).compose(GAUSSIAN(2.0))
    assert alone.get_epsilon(1e-5) == INF
    assert alone.get_delta(5.0) == 1


def test_order_infinity_is_pure_privacy(monkeypatch):
    # No release of dp_accounting knows an event's largest loss under one name: by hand.
    ledger = accounting.DpflAccountant([1.5, INF])
    monkeypatch.setattr(ledger, "_rdp", np.array([1.2, 1.5]))
    assert ledger.get_epsilon_and_optimal_order(1e-9) == (1.5, INF)
    assert ledger.get_epsilon(0.0) == 1.5
    assert ledger.get_delta_and_optimal_order(1.5) == (0.0, INF)
    assert 0 < ledger.get_delta(1.0) <= math.sqrt(-math.expm1(-1.5))


@pytest.mark.parametrize("orders", [[0.5], [2, math.nan], [-INF], []])
def test_orders_below_1_are_refused(orders):
    with pytest.raises(ValueError, match="^orders must be"):
        accounting.DpflAccountant(orders)


def test_what_could_not_be_computed_costs_everything():
    from dpfl.accounting import accountant as accountant_lib

    found = accountant_lib.rdp_at(
        np.array([2.0, 3.0, INF]), lambda orders: [math.nan, 1.0, 1.0]
    )
    np.testing.assert_array_equal(found, [INF, 1.0, INF])
