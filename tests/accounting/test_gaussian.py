# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Tight epsilons: the definition by quadrature, known calibrations, conservativeness."""

import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import pld
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl import accounting
from dpfl.accounting import gaussian

GAUSSIAN = dp_accounting.GaussianDpEvent
POISSON = dp_accounting.PoissonSampledDpEvent
SELF = dp_accounting.SelfComposedDpEvent
COMPOSED = dp_accounting.ComposedDpEvent


def tight(event, delta=1e-6):
    return accounting.epsilon(event, delta, method="tight")


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
    z = accounting.calibrate_noise_multiplier(
        GAUSSIAN, 1.0, 1e-5, method="tight", rtol=1e-7
    )
    assert z == pytest.approx(3.7306, abs=1e-4)
    assert accounting.gaussian_epsilon(1e-5, z) <= 1.0


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    z=st.floats(1e-3, 1e4), delta=st.floats(1e-15, 0.9), factor=st.floats(1.0001, 10)
)
def test_epsilon_is_conservative_close_and_monotone(z, delta, factor):
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
    assert (report.method, report.order) == ("exact-gaussian", None)
    want = accounting.gaussian_epsilon(1e-6, one)
    assert report.epsilon == pytest.approx(want, rel=1e-9)


def test_a_training_with_dome_is_its_epochs_gaussians():
    # Three epochs of multiplier sqrt(20) 0.3 / 2 within the event, twice the event.
    event = accounting.DomeDpEvent(20, 0.3, 2.0, 3)
    once = math.sqrt(20) * 0.3 / 2
    parts = gaussian.gaussian_parts(SELF(event, 2))
    assert sum(n / part.z**2 for part, n in parts.items()) == pytest.approx(6 / once**2)
    for tree, releases in ((event, 3), (SELF(event, 2), 6)):
        report, want = tight(tree), tight(SELF(GAUSSIAN(once), releases))
        assert report.method == "exact-gaussian"
        assert report.epsilon == pytest.approx(want.epsilon, rel=1e-9)


PROJECTED = accounting.SketchedDpEvent.project_and_perturb


@pytest.mark.parametrize(
    ("sketched", "plain", "method"),
    [
        (PROJECTED(3, 5, 1.5), GAUSSIAN(1.5), "exact-gaussian"),
        (PROJECTED(3, 5, 1.5, 0.2), POISSON(0.2, GAUSSIAN(1.5)), "pld"),
        (POISSON(0.2, PROJECTED(3, 5, 1.5)), POISSON(0.2, GAUSSIAN(1.5)), "pld"),
        (POISSON(0.4, PROJECTED(3, 5, 1.5, 0.5)), POISSON(0.2, GAUSSIAN(1.5)), "pld"),
    ],
)
def test_a_projected_gaussian_is_as_private_as_a_plain_one(sketched, plain, method):
    report = tight(SELF(sketched, 7))
    assert report == tight(SELF(plain, 7))
    assert report.method == method
    by_rdp = accounting.epsilon(SELF(sketched, 7), 1e-6, method="rdp")
    assert report.epsilon < by_rdp.epsilon
    assert report == accounting.epsilon(SELF(sketched, 7), 1e-6)


def test_sampled_gaussians_use_dp_accountings_losses():
    tree = COMPOSED([SELF(POISSON(0.1, GAUSSIAN(1.0)), 50)])
    report = tight(tree, 1e-5)
    theirs = pld.PLDAccountant().compose(tree).get_epsilon(1e-5)
    assert report.method == "pld"
    assert report.epsilon == pytest.approx(theirs, rel=1e-4)
    assert report.epsilon < accounting.epsilon(tree, 1e-5, method="rdp").epsilon


def test_sampled_and_plain_gaussians_together():
    both = COMPOSED([POISSON(0.1, GAUSSIAN(1.0)), GAUSSIAN(2.0)])
    plain = accounting.gaussian_epsilon(1e-5, 2.0)
    report = tight(both, 1e-5)
    assert report.method == "pld"
    by_rdp = accounting.epsilon(both, 1e-5, method="rdp")
    assert plain < report.epsilon < by_rdp.epsilon


def test_pld_is_never_below_the_exact_epsilon():
    # Sampling with probability almost 1 is almost no sampling.
    tree = SELF(POISSON(1 - 1e-9, GAUSSIAN(2.0)), 3)
    exact = accounting.gaussian_epsilon(1e-5, 2 / math.sqrt(3))
    value, method = gaussian.tight_epsilon(tree, 1e-5)
    # Losses are rounded up, so that the curve without sampling may be the smaller one.
    assert method in ("pld", "unsampled-gaussian")
    assert exact * (1 - 1e-6) <= value <= exact * (1 + 1e-12)
    interval = gaussian._interval(0.0, {gaussian.Part(0.9, 2.0): 3})
    composed = gaussian._pld_epsilon(0.0, {gaussian.Part(1 - 1e-9, 2.0): 3}, 1e-5)
    assert exact * (1 - 1e-6) <= composed <= exact + interval


def test_little_noise_does_not_exhaust_memory():
    value, _ = gaussian.tight_epsilon(POISSON(0.5, GAUSSIAN(0.01)), 1e-5)
    assert accounting.gaussian_epsilon(1e-5, 0.01) * 1.01 > value > 4000


STREAM = accounting.MatrixFactorizationDpEvent(2.0)
SKETCHED_INTEGERS = accounting.SketchedDpEvent(
    3, 5, accounting.DistributedDiscreteGaussianDpEvent(9, 2.0, 1.0, 4.0, 15)
)


@pytest.mark.parametrize(
    "event",
    [
        POISSON(0.5, STREAM),
        SKETCHED_INTEGERS,
        POISSON(0.5, SKETCHED_INTEGERS),
        dp_accounting.LaplaceDpEvent(1.0),
    ],
)
def test_nothing_else_is_tight(event):
    assert gaussian.tight_epsilon(event, 1e-5) is None
    tree = COMPOSED([GAUSSIAN(1.0), event])
    assert gaussian.tight_epsilon(tree, 1e-5) is None
    with pytest.raises(dp_accounting.UnsupportedEventError):
        tight(tree, 1e-5)
    relations = accounting.relations_of(tree)
    if relations:
        assert accounting.epsilon(tree, 1e-5).method == "rdp"
    assert bool(relations) == (event != POISSON(0.5, STREAM))


@pytest.mark.parametrize(
    "event",
    [GAUSSIAN(0.0), POISSON(0.5, GAUSSIAN(0.0)), dp_accounting.NonPrivateDpEvent()],
)
def test_no_noise_is_infinite(event):
    assert tight(event).epsilon == math.inf


def test_nothing_released_is_zero():
    assert tight(dp_accounting.NoOpDpEvent()).epsilon == 0


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan, True, "a"])
def test_bad_delta_is_refused(delta):
    with pytest.raises((TypeError, ValueError), match="^delta must"):
        accounting.gaussian_epsilon(delta, 1.0)
