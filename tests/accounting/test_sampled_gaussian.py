# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The sampled Gaussian at fractional orders: high precision, dp_accounting, its limits."""

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import rdp

from dpfl import accounting
from dpfl.accounting import gaussian

SAMPLED = dp_accounting.PoissonSampledDpEvent
GAUSSIAN = dp_accounting.GaussianDpEvent


def by_definition(order, q, z):
    with mpmath.workdps(40):
        m, q, a = 1 / mpmath.mpf(z), mpmath.mpf(q), mpmath.mpf(order)

        def integrand(x):
            return (1 - q + q * mpmath.exp(m * x - m * m / 2)) ** a * mpmath.npdf(x)

        edges = [-14 + (a * m + 28) * i / 20 for i in range(21)]
        return float(mpmath.log(mpmath.quad(integrand, edges)) / (a - 1))


@pytest.mark.parametrize("z", [0.3, 1.0, 40.0, 1e6])
@pytest.mark.parametrize("q", [1e-6, 0.01, 0.5, 0.999])
@pytest.mark.parametrize("order", [1.1, 2.5, 10.9])
def test_forty_digits_and_rounded_up(order, q, z):
    got = gaussian.sampled_gaussian_rdp([order], q, z)[0]
    want = by_definition(order, q, z)
    assert want * (1 - 1e-13) <= got <= want * (1 + 1e-10)


@pytest.mark.parametrize("q", [0.001, 0.3, 0.99])
def test_whole_orders_are_the_binomial_sum(q):
    orders = [2, 3, 10]
    sum_ = accounting.SparsifiedGaussianDpEvent(0.8, 1.0, 1.0, 1, q).rdp(orders)
    got = gaussian.sampled_gaussian_rdp(orders, q, 0.8)
    np.testing.assert_allclose(got, sum_, rtol=1e-10)
    assert np.all(got >= sum_)


def test_large_orders_do_not_overflow():
    [got] = gaussian.sampled_gaussian_rdp([300.5], 0.2, 0.5)
    event = accounting.SparsifiedGaussianDpEvent(0.5, 1.0, 1.0, 1, 0.2)
    low, high = event.rdp([300, 301])
    assert low < got < high


def test_hardly_any_noise_is_left_to_the_chord():
    assert np.isinf(gaussian.sampled_gaussian_rdp([2.5], 0.2, 1e-4)[0])
    event = accounting.SparsifiedGaussianDpEvent(1e-4, 1.0, 1.0, 1, 0.2)
    assert np.isfinite(event.rdp([2.5])[0])


@pytest.mark.parametrize("q", [0.02, 0.5])
@pytest.mark.parametrize("z", [0.7, 9.0])
def test_accountant_agrees_with_dp_accounting(q, z):
    orders = [1.3, 2, 4.7, 30]
    ours = accounting.DpflAccountant(orders).compose(SAMPLED(q, GAUSSIAN(z)))
    exact = [by_definition(order, q, z) for order in orders]
    np.testing.assert_allclose(ours.rdp, exact, rtol=1e-8, atol=1e-13)
    # From 0.4.4 on what dp_accounting computes at fractional orders is only a bound.
    theirs = rdp.RdpAccountant(orders).compose(SAMPLED(q, GAUSSIAN(z))).rdp
    np.testing.assert_allclose(ours.rdp[[1, 3]], theirs[[1, 3]], rtol=1e-8, atol=1e-13)
    assert np.all(ours.rdp <= theirs * (1 + 1e-8) + 1e-13)


def test_large_noise_is_positive():
    # dp_accounting takes seconds here and finds values below zero.
    ledger = accounting.DpflAccountant().compose(SAMPLED(0.5, GAUSSIAN(1e6)))
    assert np.all(ledger.rdp > 0) and np.all(np.diff(ledger.rdp) >= 0)
