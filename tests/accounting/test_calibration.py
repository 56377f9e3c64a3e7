# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Calibration: private enough, hardly more than enough, monotone, clear refusals."""

import math

import dp_accounting
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl import accounting
from dpfl.accounting import calibration

GAUSSIAN = dp_accounting.GaussianDpEvent
SELF = dp_accounting.SelfComposedDpEvent


def sparsified(z):
    return SELF(accounting.SparsifiedGaussianDpEvent(z, 0.05, 0.02, 65536), 20)


def sampled(z):
    return SELF(accounting.SparsifiedGaussianDpEvent(z, 0.05, 0.02, 65536, 0.05), 200)


def sampled_gaussian(z):
    return SELF(dp_accounting.PoissonSampledDpEvent(0.1, GAUSSIAN(z)), 20)


ORDERS = [1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64]


@settings(max_examples=30, derandomize=True, deadline=None)
@given(
    target=st.floats(0.05, 100),
    delta=st.floats(1e-12, 0.1),
    rtol=st.floats(1e-6, 0.1),
    make_event=st.sampled_from([GAUSSIAN, sparsified, sampled]),
)
def test_private_enough_and_hardly_more(target, delta, rtol, make_event):
    try:
        z = accounting.calibrate_noise_multiplier(
            make_event, target, delta, rtol=rtol, orders=ORDERS
        )
    except calibration.UnreachableBudgetError:
        # Few orders cannot reach a small epsilon at a small delta.
        assert accounting.epsilon(GAUSSIAN(1e11), delta, orders=ORDERS).epsilon > target
        return
    assert accounting.epsilon(make_event(z), delta, orders=ORDERS).epsilon <= target
    less = z / (1 + 1.001 * rtol)
    assert accounting.epsilon(make_event(less), delta, orders=ORDERS).epsilon > target


@pytest.mark.parametrize("make_event", [sparsified, sampled])
def test_monotone_in_the_target(make_event):
    targets = [1.0, 1.0001, 1.0002, 1.001, 2.0, 2.00001, 8.0, 50.0]
    found = [
        accounting.calibrate_noise_multiplier(make_event, target, 1e-5, rtol=1e-3)
        for target in targets
    ]
    assert found == sorted(found, reverse=True)


@settings(max_examples=10, derandomize=True, deadline=None)
@given(target=st.floats(0.2, 20), delta=st.floats(1e-9, 1e-2))
def test_tight_needs_no_more_noise(target, delta):
    rdp = accounting.calibrate_noise_multiplier(GAUSSIAN, target, delta)
    tight = accounting.calibrate_noise_multiplier(
        GAUSSIAN, target, delta, method="tight"
    )
    assert tight <= rdp
    assert accounting.gaussian_epsilon(delta, tight) <= target
    assert accounting.gaussian_epsilon(delta, tight / 1.0002) > target


def test_tight_with_sampling():
    z = accounting.calibrate_noise_multiplier(
        sampled_gaussian, 2.0, 1e-5, method="tight", rtol=0.01
    )
    report = accounting.epsilon(sampled_gaussian(z), 1e-5, method="tight")
    assert report.method == "pld"
    assert 1.9 < report.epsilon <= 2.0
    assert z < accounting.calibrate_noise_multiplier(sampled_gaussian, 2.0, 1e-5)


def test_tight_is_rdp_where_nothing_tighter_is_proven():
    tight = accounting.calibrate_noise_multiplier(
        sparsified, 2.0, 1e-5, method="tight", rtol=1e-3
    )
    rdp = accounting.calibrate_noise_multiplier(sparsified, 2.0, 1e-5, rtol=1e-3)
    assert tight == rdp


def test_finds_noise_far_from_one():
    for target, delta in ((1e6, 1e-5), (1e-3, 1e-2), (1e-3, 1e-9)):
        z = accounting.calibrate_noise_multiplier(
            GAUSSIAN, target, delta, method="tight"
        )
        assert accounting.gaussian_epsilon(delta, z) <= target
        assert accounting.gaussian_epsilon(delta, z / 1.001) > target


def test_few_evaluations_suffice():
    calls = []

    def make_event(z):
        calls.append(z)
        return sampled(z)

    accounting.calibrate_noise_multiplier(make_event, 4.0, 1e-6)
    assert len(calls) <= 30


def test_budget_out_of_reach():
    # Laplace noise that does not depend on the multiplier.
    def make_event(z):
        return dp_accounting.ComposedDpEvent(
            [GAUSSIAN(z), dp_accounting.LaplaceDpEvent(0.1)]
        )

    with pytest.raises(calibration.UnreachableBudgetError, match="target_epsilon"):
        accounting.calibrate_noise_multiplier(make_event, 1.0, 1e-5, rtol=0.1)


def test_budget_that_asks_for_no_noise():
    with pytest.raises(calibration.BudgetNotBindingError, match="make_event"):
        accounting.calibrate_noise_multiplier(
            lambda z: dp_accounting.NoOpDpEvent(), 1.0, 1e-5, rtol=0.1
        )
    assert issubclass(calibration.BudgetNotBindingError, calibration.CalibrationError)
    assert issubclass(calibration.CalibrationError, ValueError)


def test_report_of_rdp():
    report = accounting.epsilon(GAUSSIAN(1.0), 1e-5, orders=[2, 5, 9])
    want = dp_accounting.rdp.RdpAccountant([2, 5, 9]).compose(GAUSSIAN(1.0))
    assert report == accounting.PrivacyReport(
        epsilon=want.get_epsilon(1e-5), delta=1e-5, method="rdp", order=5.0
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("target_epsilon", 0.0),
        ("target_epsilon", math.nan),
        ("target_epsilon", True),
        ("target_delta", 0.0),
        ("target_delta", 1.0),
        ("target_delta", "1e-5"),
        ("rtol", 0.0),
        ("rtol", 1.0),
        ("method", "moments"),
        ("orders", [0.5]),
    ],
)
def test_bad_arguments_are_refused_by_name(name, value):
    arguments = {"target_epsilon": 1.0, "target_delta": 1e-5, name: value}
    with pytest.raises((TypeError, ValueError), match=f"^{name} must"):
        accounting.calibrate_noise_multiplier(GAUSSIAN, **arguments)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [({"delta": 0}, "delta"), ({"delta": 0.1, "method": "x"}, "method")],
)
def test_epsilon_refuses_bad_arguments(arguments, name):
    with pytest.raises((TypeError, ValueError), match=f"^{name} must"):
        accounting.epsilon(GAUSSIAN(1.0), **arguments)
