# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Calibration: private enough, hardly more than enough, monotone, clear refusals."""

import functools
import math
from unittest import mock

import attr
import dp_accounting
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl import accounting
from dpfl.accounting import calibration
from tests.accounting.event_names import (
    COMPOSED,
    GAUSSIAN,
    L2,
    LAPLACE,
    POISSON,
    SELF,
    UNSUPPORTED,
)
from tests.refusals import names, refuses

calibrate = accounting.calibrate_noise_multiplier


def epsilon_of(event, delta, accounting_method, **more):
    return accounting.epsilon(
        event, delta, accounting_method=accounting_method, **more
    ).epsilon


def sparsified(z):
    return SELF(L2(z, 0.05, 0.02, 65536), 20)


def integers(z):
    return accounting.DistributedDiscreteGaussianDpEvent(100, z, 0.1, 1.0, 10)


def sampled(z):
    return SELF(L2(z, 0.05, 0.02, 65536, 0.05), 200)


def sampled_gaussian(z):
    return SELF(POISSON(0.1, GAUSSIAN(z)), 20)


ORDERS = [1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64]


@settings(max_examples=30, derandomize=True, deadline=None)
@given(
    target=st.floats(0.05, 100),
    delta=st.floats(1e-12, 0.1),
    rtol=st.floats(1e-6, 0.1),
    make_event=st.sampled_from([GAUSSIAN, sparsified, sampled]),
)
def test_result_meets_the_budget_closely(target, delta, rtol, make_event):
    def epsilon(event):
        return epsilon_of(event, delta, "rdp", orders=ORDERS)

    options = {"accounting_method": "rdp", "rtol": rtol, "orders": ORDERS}
    try:
        z = calibrate(make_event, target, delta, **options)
    except calibration.UnreachableBudgetError:
        # Few orders cannot reach a small epsilon at a small delta.
        assert epsilon(GAUSSIAN(1e11)) > target
        return
    assert epsilon(make_event(z)) <= target
    assert epsilon(make_event(z / (1 + 1.001 * rtol))) > target


def test_auto_takes_renyi_divergences_where_they_are_smaller(monkeypatch):
    real = calibration.epsilon

    def loose(event, delta, *, accounting_method, orders):
        report = real(event, delta, accounting_method=accounting_method, orders=orders)
        twice = attr.evolve(report, epsilon=2 * report.epsilon)
        return twice if accounting_method == "tight" else report

    monkeypatch.setattr(calibration, "epsilon", loose)
    by_rdp = calibrate(GAUSSIAN, 1.0, 1e-5, accounting_method="rdp")
    assert calibrate(GAUSSIAN, 1.0, 1e-5) == by_rdp


def test_auto_takes_the_smaller_and_tight_refuses_unproven_events():
    for make in (sparsified, integers):
        auto, rdp = (
            calibrate(make, 2.0, 1e-5, accounting_method=accounting_method, rtol=1e-2)
            for accounting_method in ("auto", "rdp")
        )
        assert auto < rdp
        assert accounting.epsilon(make(auto), 1e-5).accounting_method.startswith(
            "stopped-"
        )
    with refuses(UNSUPPORTED, "accounting_method", "tight"):
        accounting.epsilon(LAPLACE(1.0), 1e-5, accounting_method="tight")
    with refuses(UNSUPPORTED, "accounting_method", "tight"):
        calibrate(LAPLACE, 2.0, 1e-5, accounting_method="tight")


def test_budget_out_of_reach():
    # Laplace noise that does not depend on the multiplier.
    def make_event(z):
        return COMPOSED([GAUSSIAN(z), LAPLACE(0.1)])

    with refuses(calibration.UnreachableBudgetError, "target_epsilon", "1e+12"):
        calibrate(make_event, 1.0, 1e-5, rtol=0.1)


def test_budget_met_without_noise_is_refused():
    with refuses(calibration.BudgetNotBindingError, "target_epsilon", 1e-6):
        calibrate(lambda z: dp_accounting.NoOpDpEvent(), 1.0, 1e-5, rtol=0.1)
    assert issubclass(calibration.BudgetNotBindingError, calibration.CalibrationError)
    assert issubclass(calibration.CalibrationError, ValueError)


def test_report_of_rdp():
    report = accounting.epsilon(
        GAUSSIAN(1.0), 1e-5, accounting_method="rdp", orders=[2, 5, 9]
    )
    want = dp_accounting.rdp.RdpAccountant([2, 5, 9]).compose(GAUSSIAN(1.0))
    assert report == accounting.PrivacyReport(
        want.get_epsilon(1e-5), 1e-5, "rdp", order=5.0, relation="add_or_remove"
    )


def once(z):
    return POISSON(1e-3, GAUSSIAN(z))


def thrice(z):
    return SELF(once(z), 3)


@pytest.mark.parametrize(
    ("make_event", "below", "accounting_method"),
    [(once, 10.0, "exact-gaussian"), (thrice, 1.4e4, "unsampled-gaussian")],
)
def test_tiny_budgets_use_the_stated_method(make_event, below, accounting_method):
    z = calibrate(make_event, 1e-3, 1e-15)
    report = accounting.epsilon(make_event(z), 1e-15)
    assert report.accounting_method == accounting_method
    assert 0.999e-3 < report.epsilon <= 1e-3
    assert z < below


@pytest.mark.parametrize("z", [3e-5, 1e-6])
def test_tiny_noise_has_a_finite_epsilon(z):
    for event in (once(z), thrice(z)):
        report = accounting.epsilon(event, 1e-5, accounting_method="tight")
        assert 0.4 / z**2 < report.epsilon < 2 / z**2


class TestNoiseThatThereIsNot:
    """Mechanisms that exist for some noise alone."""

    def event(self, z, least=0.0, most=math.inf):
        if z > most:
            raise accounting.NoiseTooLargeError(f"z must be at most {most}, found {z}")
        if z < least:
            raise accounting.NoiseTooSmallError(f"z must be at least {least}")
        return sampled_gaussian(z)

    @pytest.mark.parametrize("accounting_method", ["auto", "rdp"])
    def test_search_stays_within_the_possible_noise(self, accounting_method):
        arguments = {"target_epsilon": 0.5, "target_delta": 1e-5, "rtol": 1e-3}
        wanted = calibrate(
            sampled_gaussian, accounting_method=accounting_method, **arguments
        )
        for bounds in ({"most": 1.1 * wanted}, {"least": 0.9 * wanted}):
            make_event = functools.partial(self.event, **bounds)
            assert (
                calibrate(make_event, accounting_method=accounting_method, **arguments)
                == wanted
            )

    def test_noise_limit_is_named_if_the_budget_needs_more(self):
        make_event = functools.partial(self.event, most=0.7)
        with refuses(calibration.UnreachableBudgetError, "target_epsilon", 0.7):
            calibrate(make_event, 0.5, 1e-5, rtol=0.01)

    def test_least_possible_noise_may_be_the_result(self):
        make_event = functools.partial(self.event, least=20.0)
        found = calibrate(make_event, 0.5, 1e-5, accounting_method="rdp", rtol=0.01)
        assert 20 <= found < 20.21


def test_report_names_epsilon_and_warns_if_it_is_large():
    good = accounting.epsilon(GAUSSIAN(2.0), 1e-5)
    assert names(str(good), "epsilon 1.993", "delta 1e-05", good.accounting_method)
    bad = accounting.epsilon(GAUSSIAN(0.05), 1e-5)
    assert bad.epsilon > accounting.LARGE_EPSILON
    assert ["epsilon_remark" in str(report) for report in (good, bad)] == [False, True]


def test_an_epsilon_that_is_no_number_meets_no_budget():
    found = calibration.epsilon

    def broken(event, delta, **more):
        report = found(event, delta, **more)
        is_known = event.noise_multiplier > 3.0
        return report if is_known else attr.evolve(report, epsilon=math.nan)

    with mock.patch.object(calibration, "epsilon", broken):
        made = calibrate(GAUSSIAN, 8.0, 1e-5)
    assert 3.0 < made < 3.01
