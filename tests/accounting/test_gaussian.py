# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Tight epsilons: the definition by quadrature, known calibrations, conservativeness."""

import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl import accounting
from dpfl.accounting import gaussian, gaussian_domination, sampled_rdp, trees
from tests.accounting.event_names import (
    COMPOSED,
    GAUSSIAN,
    L2,
    LAPLACE,
    POISSON,
    SELF,
)
from tests.refusals import refuses


def tight(event, delta=1e-6):
    return accounting.epsilon(event, delta, accounting_method="tight")


@pytest.mark.parametrize("z", [0.3, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 4.0, 30.0])
def test_delta_is_rounded_up_and_by_little(epsilon, z):
    with mpmath.workdps(60):
        m, e = 1 / mpmath.mpf(z), mpmath.mpf(epsilon)
        want = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
    got = accounting.gaussian_delta(epsilon, z)
    assert float(want) <= got <= float(want) * (1 + 1e-9)


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


def test_little_noise_does_not_exhaust_memory():
    event = POISSON(0.5, GAUSSIAN(0.01))
    value = accounting.epsilon(event, 1e-5, accounting_method="tight").epsilon
    assert accounting.gaussian_epsilon(1e-5, 0.01) * 1.01 > value > 4000


STREAM = accounting.MatrixFactorizationDpEvent(2.0)
INTEGERS = accounting.DistributedDiscreteGaussianDpEvent(9, 2.0, 1.0, 4.0, 15)


@pytest.mark.parametrize(
    "event", [POISSON(0.5, STREAM), INTEGERS, POISSON(0.5, INTEGERS), LAPLACE(1.0)]
)
def test_other_events_are_not_gaussian(event):
    assert gaussian.gaussian_parts(trees.releases(event)) is None
    tree = COMPOSED([GAUSSIAN(1.0), event])
    assert gaussian.gaussian_parts(trees.releases(tree)) is None
    neighboring_relations = accounting.relations_of(tree)
    # What is correlated, or of clients who bring their noise, has no sampled bound.
    is_refused = event in (POISSON(0.5, STREAM), POISSON(0.5, INTEGERS))
    assert bool(neighboring_relations) != is_refused


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
@pytest.mark.parametrize("order", [1.1, 2.5, 3])
def test_forty_digits_and_rounded_up(order, q, z):
    got = sampled_rdp.sampled_gaussian_rdp([order], q, z)[0]
    want = by_definition(order, q, z)
    assert want * (1 - 1e-13) <= got <= want * (1 + 1e-10)


def test_large_orders_do_not_overflow():
    [got] = sampled_rdp.sampled_gaussian_rdp([300.5], 0.2, 0.5)
    event = L2(0.5, 1.0, 1.0, 1, 0.2)
    low, high = event.rdp([300, 301])
    assert low < got < high


def test_tiny_noise_falls_back_to_the_chord():
    assert np.isinf(sampled_rdp.sampled_gaussian_rdp([2.5], 0.2, 1e-4)[0])
    event = L2(1e-4, 1.0, 1.0, 1, 0.2)
    assert np.isfinite(event.rdp([2.5])[0])


@pytest.mark.parametrize(("q", "rounds"), [(1e-3, 1000), (1e-4, 10_000)])
def test_grid_resolves_small_sampling_probabilities(q, rounds):
    once = POISSON(q, GAUSSIAN(1.0))
    run = SELF(once, rounds)
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
