# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Loss distributions for others: never below the truth, near it, both directions."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as theirs
from scipy import special

from dpfl import accounting
from dpfl.accounting import balls_in_bins, events, gaussian, privacy_loss
from tests.accounting import quadrature
from tests.accounting.event_names import (
    COMPOSED,
    GAUSSIAN,
    L2,
    LAPLACE,
    ONE,
    POISSON,
    SELF,
    SLOT,
    UNSUPPORTED,
)
from tests.refusals import refuses

EPSILONS = np.linspace(-5, 5, 21)

TREES = {
    "plain": SELF(GAUSSIAN(3.0), 60),
    "one sampled": POISSON(0.1, GAUSSIAN(1.0)),
    "sampled": SELF(POISSON(0.01, GAUSSIAN(1.0)), 1000),
    "both": COMPOSED([SELF(POISSON(0.01, GAUSSIAN(1.0)), 100), GAUSSIAN(3.0)]),
    "fixed size": SELF(gaussian.FixedSizeDpEvent(GAUSSIAN(1.0), 0.01), 100),
    "slots": SELF(SLOT(GAUSSIAN(1.0), 33, 33), 4),
    "stream": SELF(accounting.MatrixFactorizationDpEvent(2.0), 3),
    "masked": SELF(L2(4.0, 0.01, 0.006, 2**20), 60),
    "sampled masks": SELF(L2(2.3, 0.01, 0.006, 2**20, 0.5), 60),
    "integers": accounting.DistributedDiscreteGaussianDpEvent(100, 2.0, 1.0, 30.0, 999),
    "nothing": dp_accounting.NoOpDpEvent(),
}
# Of which the distribution would be a million numbers long.
OUT_OF_REACH = SLOT(GAUSSIAN(0.038), 2, 2)


def without_extreme(report):
    """The route and epsilon but for extreme vectors, which have losses of their own."""
    known = [
        (c.epsilon, c.route)
        for c in report.candidates
        if c.epsilon is not None and c.route not in ("extreme-pld", "rdp")
    ]
    epsilon, route = min(known)
    return route, epsilon


@pytest.mark.parametrize(
    ("event", "delta"),
    [
        *(pytest.param(event, 1e-5, id=name) for name, event in TREES.items()),
        pytest.param(TREES["sampled"], 1e-9, id="sampled, a smaller delta"),
        pytest.param(OUT_OF_REACH, 1e-5, id="slots out of reach"),
    ],
)
def test_epsilon_is_that_of_the_tight_method_and_masses_add_to_one(event, delta):
    interval = 2e-3 if event is OUT_OF_REACH else 1e-4
    losses = accounting.loss_distribution(event, delta, interval)
    found = losses.get_epsilon_for_delta(delta)
    report = accounting.epsilon(event, delta, accounting_method="tight")
    route, epsilon = without_extreme(report)
    exact = route.endswith(("exact-gaussian", "unsampled-gaussian"))
    # The other one's grid may be coarser.
    least = epsilon * (1 if exact else 1 - 1e-4)
    assert least <= found <= epsilon * (1 + 1e-6)
    for part in (losses._pmf_remove, losses._pmf_add):
        assert part._probs.min() >= 0
        assert np.sum(part._probs) + part._infinity_mass == pytest.approx(1, abs=1e-11)


def _parts(event, delta, interval=1e-4):
    found = accounting.loss_distribution(event, delta, interval)
    return found._pmf_remove, found._pmf_add


@pytest.mark.parametrize(("q", "delta"), [(1.0, 1e-9), (0.3, 1e-3)])
def test_both_directions_dominate_the_release_at_every_epsilon(q, delta):
    """Sampled with q, at z = 1: removal at 1 - q + q e^i = e^eps, and its mirror."""

    def removal(t):
        if t <= 1 - q:
            return 1 - t
        place = 0.5 + math.log((t - 1 + q) / q)
        return (
            1
            - q
            + q * special.ndtr(1 - place)
            - t * special.ndtr(-place)
            - ((1 - q) * special.ndtr(place))
        )

    event = POISSON(q, GAUSSIAN(1.0)) if q < 1 else GAUSSIAN(1.0)
    ts = np.exp(EPSILONS)
    exact = [removal(t) for t in ts], [1 - t + t * removal(1 / t) for t in ts]
    for part, want in zip(_parts(event, delta), exact):
        found = part.get_delta_for_epsilon(EPSILONS)
        # dp_accounting's sums are right to 1e-13.
        assert np.all(found >= np.array(want) - 1e-13)
        np.testing.assert_allclose(found, want, atol=1e-6)


@pytest.mark.parametrize("q", [1.0, 0.2])
@pytest.mark.parametrize("sizes", [[1.0], [0.7, 0.7]])
def test_masked_coordinates_are_dominated_at_every_epsilon(q, sizes):
    """The release itself, by quadrature, and what its clock has at infinity."""
    ratio = max(sizes) / math.hypot(*sizes)
    z = 1 / (0.3 * math.hypot(*sizes))
    remove, add = _parts(L2(z, 0.3, ratio, len(sizes), q), 1e-3)
    u, weights = quadrature.ratios(sizes, 0.3, q, reach=8.0)
    ts = np.exp(EPSILONS)[:, None]
    exact = (
        np.maximum(1 + u - ts, 0) @ weights,
        np.maximum(1 - ts * (1 + u), 0) @ weights,
    )
    for part, want in zip((remove, add), exact):
        assert np.all(part.get_delta_for_epsilon(EPSILONS) >= want - 1e-7)
    assert math.inf == remove.get_epsilon_for_delta(0.999e-5)
    assert remove.get_epsilon_for_delta(1.002e-5) < math.inf


def test_composes_with_laplace_losses():
    """Between the same with losses rounded down, and Renyi accounting."""
    sampled, laplace = POISSON(0.1, GAUSSIAN(1.0)), LAPLACE(4.0)
    ours = accounting.loss_distribution(SELF(sampled, 5), 1e-6)
    found = ours.compose(theirs.from_laplace_mechanism(4.0)).get_epsilon_for_delta(1e-6)
    down = {"pessimistic_estimate": False, "use_connect_dots": False}
    below = theirs.from_gaussian_mechanism(1.0, sampling_prob=0.1, **down)
    below = below.self_compose(5, tail_mass_truncation=0)
    below = below.compose(theirs.from_laplace_mechanism(4.0, **down))
    book = accounting.DpflAccountant().compose(SELF(sampled, 5)).compose(laplace)
    assert below.get_epsilon_for_delta(1e-6) <= found < book.get_epsilon(1e-6)
    assert found == pytest.approx(below.get_epsilon_for_delta(1e-6), rel=1e-3)


class _ByRenyiAlone(accounting.RdpDpEvent):
    def rdp(self, orders):
        return np.asarray(orders) * 0.1


@pytest.mark.parametrize(
    "event",
    [
        _ByRenyiAlone(),
        COMPOSED([GAUSSIAN(1.0), _ByRenyiAlone()]),
        balls_in_bins.BallsInBinsDpEvent(1.0, np.eye(3) + 0.1),
        LAPLACE(1.0),
        GAUSSIAN(0.0),
        L2(0.0, 0.1, 0.05, 4096),
        events.RunDpEvent(GAUSSIAN(1.0), [ONE]),
    ],
)
def test_events_without_a_loss_distribution_are_refused(event):
    with refuses(UNSUPPORTED, type(event).__name__):
        accounting.loss_distribution(event, 1e-5)


def test_wrong_arguments_are_refused():
    # The losses of a cohort of a fixed size are of a shift of two clips.
    cohort = gaussian.FixedSizeDpEvent(GAUSSIAN(0.05), 0.3)
    for event, interval in ((GAUSSIAN(0.01), 1e-6), (cohort, 1e-4)):
        with refuses(ValueError, "interval", interval):
            accounting.loss_distribution(event, 1e-5, interval)
    with refuses(ValueError, "interval", 0):
        accounting.loss_distribution(GAUSSIAN(1.0), 1e-5, 0)
    sampled = POISSON(0.1, GAUSSIAN(1.0))
    for interval in (1e3, 1e30):
        with refuses(ValueError, "interval", interval):
            accounting.loss_distribution(sampled, 1e-5, interval)
    with refuses(ValueError, "delta", 1.0):
        accounting.loss_distribution(GAUSSIAN(1.0), 1.0)


def test_losses_above_the_top_are_infinite():
    given = privacy_loss.LossDistribution(0.5, -1, np.array([0.2, 0.3, 0.4]), 0.05)
    found = given.worse(0.01, top=0.2)
    np.testing.assert_array_equal(found.masses, [0.2, 0.3, 0.0])
    assert found.infinite == pytest.approx(0.05 + 0.01 + 0.4)
