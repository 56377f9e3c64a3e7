# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Tight epsilons: the definition by quadrature, known calibrations, conservativeness."""

import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import pld, rdp
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl import accounting
from dpfl.accounting import gaussian, gaussian_domination, sampled_rdp, trees
from tests.refusals import refuses

GAUSSIAN = dp_accounting.GaussianDpEvent
POISSON = dp_accounting.PoissonSampledDpEvent
SELF = dp_accounting.SelfComposedDpEvent
COMPOSED = dp_accounting.ComposedDpEvent


def tight(event, delta=1e-6):
    return accounting.epsilon(event, delta, accounting_method="tight")


@pytest.mark.parametrize("z", [0.3, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 4.0])
def test_delta_equals_its_definition(z, epsilon):
    t = np.linspace(-12, 12 + 1 / z, 400001)
    p = np.exp(-((t - 1 / z) ** 2) / 2) / math.sqrt(2 * math.pi)
    q = np.exp(-(t**2) / 2) / math.sqrt(2 * math.pi)
    want = np.maximum(p - math.exp(epsilon) * q, 0).sum() * (t[1] - t[0])
    got = accounting.gaussian_delta(epsilon, z)
    assert got == pytest.approx(want, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(("epsilon", "z"), [(5.0, 1.0), (30.0, 0.3), (0.5, 20.0)])
def test_delta_is_rounded_up_and_by_little(epsilon, z):
    with mpmath.workdps(60):
        m, e = 1 / mpmath.mpf(z), mpmath.mpf(epsilon)
        want = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
    got = accounting.gaussian_delta(epsilon, z)
    assert float(want) <= got <= float(want) * (1 + 1e-9)


def test_known_calibration():
    # The Gaussian mechanism at epsilon 1, delta 1e-5 needs 3.7306 (Balle and Wang).
    calibrate = accounting.calibrate_noise_multiplier
    z = calibrate(GAUSSIAN, 1.0, 1e-5, accounting_method="tight", rtol=1e-7)
    assert z == pytest.approx(3.7306, abs=1e-4)
    assert accounting.gaussian_epsilon(1e-5, z) <= 1.0


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    z=st.floats(1e-3, 1e4), delta=st.floats(1e-15, 0.9), factor=st.floats(1.0001, 10)
)
def test_epsilon_is_a_close_monotone_upper_bound(z, delta, factor):
    epsilon = accounting.gaussian_epsilon(delta, z)
    assert accounting.gaussian_delta(epsilon, z) <= delta
    if epsilon:
        # A hair less noise or budget would be too much.
        assert accounting.gaussian_delta(epsilon * (1 - 1e-9), z) > delta * (1 - 1e-6)
    assert accounting.gaussian_epsilon(delta, z * factor) <= epsilon
    assert accounting.gaussian_epsilon(delta / factor, z) >= epsilon


def test_epsilon_at_the_ends():
    assert accounting.gaussian_epsilon(1e-5, 1e6) == 0
    assert accounting.gaussian_epsilon(1e-5, 0.0) == math.inf
    assert accounting.gaussian_epsilon(1e-5, 1e-200) == math.inf
    assert accounting.gaussian_epsilon(1e-5, 1e-3) > 5e5


def test_compositions_are_one_gaussian():
    tree = COMPOSED(
        [
            SELF(GAUSSIAN(3.0), 4),
            COMPOSED([SELF(SELF(GAUSSIAN(6.0), 2), 2)]),
            accounting.MatrixFactorizationDpEvent(2.0),
            dp_accounting.NoOpDpEvent(),
            POISSON(1.0, GAUSSIAN(5.0)),
            POISSON(0.0, GAUSSIAN(5.0)),
        ]
    )
    one = (4 / 9 + 4 / 36 + 1 / 4 + 1 / 25) ** -0.5
    report = tight(tree)
    assert (report.accounting_method, report.order) == ("exact-gaussian", None)
    want = accounting.gaussian_epsilon(1e-6, one)
    assert report.epsilon == pytest.approx(want, rel=1e-9)


def test_sampled_gaussians_use_dp_accountings_losses():
    tree = COMPOSED([SELF(POISSON(0.1, GAUSSIAN(1.0)), 50)])
    report = tight(tree, 1e-5)
    theirs = pld.PLDAccountant().compose(tree).get_epsilon(1e-5)
    assert report.accounting_method == "pld"
    assert report.epsilon == pytest.approx(theirs, rel=1e-4)
    assert (
        report.epsilon < accounting.epsilon(tree, 1e-5, accounting_method="rdp").epsilon
    )


def test_sampled_and_plain_gaussians_together():
    both = COMPOSED([POISSON(0.1, GAUSSIAN(1.0)), GAUSSIAN(2.0)])
    plain = accounting.gaussian_epsilon(1e-5, 2.0)
    report = tight(both, 1e-5)
    assert report.accounting_method == "pld"
    by_rdp = accounting.epsilon(both, 1e-5, accounting_method="rdp")
    assert plain < report.epsilon < by_rdp.epsilon


def test_pld_is_never_below_the_exact_epsilon():
    # Sampling with probability almost 1 is almost no sampling.
    tree = SELF(POISSON(1 - 1e-9, GAUSSIAN(2.0)), 3)
    exact = accounting.gaussian_epsilon(1e-5, 2 / math.sqrt(3))
    report = accounting.epsilon(tree, 1e-5, accounting_method="tight")
    value, accounting_method = report.epsilon, report.accounting_method
    # Losses are rounded up, so that the curve without sampling may be the smaller one.
    assert accounting_method in ("pld", "unsampled-gaussian")
    assert exact * (1 - 1e-6) <= value <= exact * (1 + 1e-12)
    interval = gaussian._interval(0.0, {gaussian.Part(0.9, 2.0): 3})
    composed, _ = gaussian._pld_epsilons(0.0, {gaussian.Part(1 - 1e-9, 2.0): 3}, 1e-5)
    assert exact * (1 - 1e-6) <= max(composed) <= exact + interval


def test_little_noise_does_not_exhaust_memory():
    event = POISSON(0.5, GAUSSIAN(0.01))
    value = accounting.epsilon(event, 1e-5, accounting_method="tight").epsilon
    assert accounting.gaussian_epsilon(1e-5, 0.01) * 1.01 > value > 4000


STREAM = accounting.MatrixFactorizationDpEvent(2.0)
INTEGERS = accounting.DistributedDiscreteGaussianDpEvent(9, 2.0, 1.0, 4.0, 15)


@pytest.mark.parametrize(
    "event",
    [
        POISSON(0.5, STREAM),
        INTEGERS,
        POISSON(0.5, INTEGERS),
        dp_accounting.LaplaceDpEvent(1.0),
    ],
)
def test_other_events_are_not_gaussian(event):
    assert gaussian.gaussian_parts(trees.releases(event)) is None
    tree = COMPOSED([GAUSSIAN(1.0), event])
    assert gaussian.gaussian_parts(trees.releases(tree)) is None
    neighboring_relations = accounting.relations_of(tree)
    # What is correlated, or of clients who bring their noise, has no sampled bound.
    is_refused = event in (POISSON(0.5, STREAM), POISSON(0.5, INTEGERS))
    assert bool(neighboring_relations) != is_refused


@pytest.mark.parametrize(
    "event", [STREAM, gaussian.FixedSizeDpEvent(GAUSSIAN(1.0), 0.1)]
)
def test_cohorts_are_drawn_for_a_round_alone(event):
    with refuses(TypeError, "round_event", type(event).__name__):
        gaussian.FixedSizeDpEvent(event, 0.1)


def test_no_noise_is_infinite_and_no_release_is_zero():
    silent = GAUSSIAN(0.0), POISSON(0.5, GAUSSIAN(0.0))
    for event in (*silent, dp_accounting.NonPrivateDpEvent()):
        assert tight(event).epsilon == math.inf
    assert tight(dp_accounting.NoOpDpEvent()).epsilon == 0


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan, True, "a"])
def test_bad_delta_is_refused(delta):
    with refuses((TypeError, ValueError), "delta", delta):
        accounting.gaussian_epsilon(delta, 1.0)


def by_definition(order, q, z):
    """By equal steps, whose error is exp(-2 pi (pi z) / step) or less."""
    with mpmath.workdps(40):
        m, q, a = 1 / mpmath.mpf(z), mpmath.mpf(q), mpmath.mpf(order)
        steps = (mpmath.mpf(i) / 16 for i in range(-14 * 16, int(16 * (a * m + 14))))
        total = mpmath.fsum(
            (1 - q + q * mpmath.exp(m * x - m * m / 2)) ** a * mpmath.npdf(x)
            for x in steps
        )
        return float(mpmath.log(total / 16) / (a - 1))


@pytest.mark.parametrize("z", [0.3, 1.0, 40.0, 1e6])
@pytest.mark.parametrize("q", [1e-6, 0.01, 0.5, 0.999])
@pytest.mark.parametrize("order", [1.1, 2.5, 10.9])
def test_forty_digits_and_rounded_up(order, q, z):
    got = sampled_rdp.sampled_gaussian_rdp([order], q, z)[0]
    want = by_definition(order, q, z)
    assert want * (1 - 1e-13) <= got <= want * (1 + 1e-10)


@pytest.mark.parametrize("q", [0.001, 0.3, 0.99])
def test_whole_orders_are_the_binomial_sum(q):
    orders = [2, 3, 10]
    sum_ = accounting.SparsifiedGaussianDpEvent(0.8, 1.0, 1.0, 1, q).rdp(orders)
    got = sampled_rdp.sampled_gaussian_rdp(orders, q, 0.8)
    np.testing.assert_allclose(got, sum_, rtol=1e-10)
    assert np.all(got >= sum_)


def test_large_orders_do_not_overflow():
    [got] = sampled_rdp.sampled_gaussian_rdp([300.5], 0.2, 0.5)
    event = accounting.SparsifiedGaussianDpEvent(0.5, 1.0, 1.0, 1, 0.2)
    low, high = event.rdp([300, 301])
    assert low < got < high


def test_tiny_noise_falls_back_to_the_chord():
    assert np.isinf(sampled_rdp.sampled_gaussian_rdp([2.5], 0.2, 1e-4)[0])
    event = accounting.SparsifiedGaussianDpEvent(1e-4, 1.0, 1.0, 1, 0.2)
    assert np.isfinite(event.rdp([2.5])[0])


@pytest.mark.parametrize("q", [0.02, 0.5])
@pytest.mark.parametrize("z", [0.7, 9.0])
def test_accountant_agrees_with_dp_accounting(q, z):
    orders = [1.3, 2, 4.7, 30]
    ours = accounting.DpflAccountant(orders).compose(POISSON(q, GAUSSIAN(z)))
    exact = [by_definition(order, q, z) for order in orders]
    np.testing.assert_allclose(ours.rdp, exact, rtol=1e-8, atol=1e-13)
    # From 0.4.4 on what dp_accounting computes at fractional orders is only a bound.
    theirs = rdp.RdpAccountant(orders).compose(POISSON(q, GAUSSIAN(z))).rdp
    np.testing.assert_allclose(ours.rdp[[1, 3]], theirs[[1, 3]], rtol=1e-8, atol=1e-13)
    assert np.all(ours.rdp <= theirs * (1 + 1e-8) + 1e-13)


def test_large_noise_is_positive():
    # dp_accounting takes seconds here and finds values below zero.
    ledger = accounting.DpflAccountant().compose(POISSON(0.5, GAUSSIAN(1e6)))
    assert np.all(ledger.rdp > 0) and np.all(np.diff(ledger.rdp) >= 0)


@pytest.mark.parametrize(("q", "rounds"), [(1e-3, 1000), (1e-4, 10_000)])
def test_grid_resolves_small_sampling_probabilities(q, rounds):
    once = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(1.0))
    run = dp_accounting.SelfComposedDpEvent(once, rounds)
    report = accounting.epsilon(run, 1e-6, accounting_method="tight")
    finer = max(s.epsilon(1e-6) for s in gaussian_domination.losses(run, 1e-6, 5e-6))
    assert report.accounting_method == "pld" and finer <= report.epsilon < 1.015 * finer


class TestEnds:
    @pytest.mark.parametrize("z", [0.05, 1.0, 30.0, 1e4])
    def test_smallest_delta_is_accurate(self, z):
        epsilon = accounting.gaussian_epsilon(1e-300, z)
        with mpmath.workdps(60):
            upper, lower = 0.5 / z - epsilon * z, -0.5 / z - epsilon * z
            delta = mpmath.ncdf(upper) - mpmath.exp(epsilon) * mpmath.ncdf(lower)
            assert 1 - 1e-6 < delta / mpmath.mpf(1e-300) <= 1
        for event in (GAUSSIAN(z), POISSON(0.1, GAUSSIAN(z))):
            for accounting_method in ("rdp", "tight"):
                found = [
                    accounting.epsilon(
                        event, delta, accounting_method=accounting_method
                    ).epsilon
                    for delta in (1e-290, 1e-299, 1e-300)
                ]
                assert found[0] < found[1] < found[2] < math.inf
        for delta in (9e-301, 1e-310, 5e-324, 0.0):
            for call in (
                lambda: accounting.epsilon(GAUSSIAN(z), delta),  # noqa: B023
                lambda: accounting.gaussian_epsilon(delta, z),  # noqa: B023
                lambda: accounting.loss_distribution(GAUSSIAN(z), delta),  # noqa: B023
            ):
                with refuses(ValueError, "delta", delta):
                    call()

    @pytest.mark.parametrize("q", [1.0, 0.1])
    def test_noise_beyond_the_limit_counts_as_the_limit(self, q):
        def events(z):
            dropped = {"keep_fraction": 0.5, "linf_ratio": 0.5, "dimension": 4}
            plain = [GAUSSIAN(z)]
            plain += [accounting.SparsifiedGaussianDpEvent(z, **dropped)]
            plain += [accounting.LinfSparsifiedGaussianDpEvent(z, **dropped)]
            if q == 1:
                return [*plain, accounting.MatrixFactorizationDpEvent(z)]
            return [POISSON(q, event) for event in plain]

        def epsilons(z):
            return [
                accounting.epsilon(
                    SELF(event, 100), 1e-30, accounting_method=accounting_method
                ).epsilon
                for event in events(z)
                for accounting_method in ("rdp", "tight")
            ]

        least = epsilons(1e12)
        assert min(least) > 0
        for z in (1e13, 1e50, 1e160, 1e300):
            assert epsilons(z) == least
