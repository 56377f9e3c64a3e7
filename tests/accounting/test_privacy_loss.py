# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Loss distributions against the exact curve and those of dp_accounting."""

import math

import numpy as np
import pytest
from dp_accounting import pld
from scipy import stats

import dpfl
from dpfl import accounting
from dpfl.accounting import gaussian, privacy_loss
from tests.accounting.event_names import GAUSSIAN, L2, LAPLACE, POISSON, SELF


def step_of(z, count=1):
    return gaussian._interval(0.0, {gaussian.Part(0.5, z): count})


def test_profile_is_the_hockey_stick():
    masses = np.array([0.1, 0.2, 0.3, 0.25, 0.1])
    found = privacy_loss.LossDistribution(0.5, -2, masses, 0.05)
    losses = 0.5 * np.arange(-2, 3)
    epsilons = np.array([0.0, 0.2, 0.5, 0.7, 1.0, 3.0, 800.0])
    with np.errstate(over="ignore"):
        shares = np.maximum(1 - np.exp(epsilons[:, None] - losses), 0)
    deltas = found.profile()(epsilons)
    np.testing.assert_allclose(deltas, 0.05 + shares @ masses, rtol=1e-9)
    assert found.epsilon(deltas[3]) == pytest.approx(0.7, rel=1e-9)


@pytest.mark.parametrize("q", [1e-6, 0.03, 0.9, 1.0])
@pytest.mark.parametrize("z", [0.02, 0.5, 1.0, 5.0, 100.0])
def test_one_release_is_closely_above_the_exact_curve(q, z):
    """Removal of a client, of which the curve is known for a sample."""
    step = step_of(z)
    remove, _ = privacy_loss.sampled_gaussian(q, z, step)
    for delta in (1e-2, 1e-5, 1e-9):
        for found in (remove, privacy_loss.composed([(remove, 1)], delta)):
            if q == 1:
                exact = gaussian.gaussian_epsilon(delta, z)
            else:
                exact = gaussian._once_sampled_epsilon(q, z, delta)
            assert 0 <= found.epsilon(delta) - exact <= step


@pytest.mark.parametrize("q", [1e-3, 0.3, 1.0])
def test_losses_of_both_directions_add_to_one(q):
    """Each also under the other law, of which a loss l has the share exp(-l)."""
    for found in privacy_loss.sampled_gaussian(q, 0.8, 1e-3):
        grid = found.step * (found.low + np.arange(found.masses.size))
        assert np.sum(found.masses) + found.infinite == pytest.approx(1, abs=1e-12)
        other = np.sum(found.masses * np.exp(-grid))
        assert other == pytest.approx(1, abs=1e-9) and np.all(found.masses >= 0)


@pytest.mark.parametrize(
    ("q", "z", "count"),
    [(0.5, 2.0, 60), (0.03, 1.08, 1500), (1.0, 3.0, 20), (1 / 34, 1.0, 84)],
)
def test_compositions_are_those_of_dp_accounting(q, z, count):
    step = step_of(z, count)
    theirs = pld.privacy_loss_distribution.from_gaussian_mechanism(
        z, value_discretization_interval=step, sampling_prob=q
    )
    theirs = theirs.self_compose(count)
    pair = privacy_loss.sampled_gaussian(q, z, step)
    for delta in (1e-3, 1e-6):
        ours = [privacy_loss.composed([(part, count)], delta) for part in pair]
        found = max(part.epsilon(delta) for part in ours)
        assert found == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-7)


@pytest.mark.parametrize(
    ("z", "count", "delta"), [(1.0, 1000, 1e-12), (3.0, 100_000, 1e-10), (30.0, 9, 0.1)]
)
def test_composition_covers_fft_rounding(z, count, delta):
    """Many releases in which everybody joins are one Gaussian."""
    remove, _ = privacy_loss.sampled_gaussian(1.0, z, 4 * step_of(z, count))
    exact = gaussian.gaussian_epsilon(delta, z / math.sqrt(count))
    found = privacy_loss.composed([(remove, count)], delta).epsilon(delta)
    assert 0 <= found - exact <= 1e-4 * exact + remove.step


def test_a_million_releases_take_a_coarser_grid():
    many = SELF(POISSON(0.5, GAUSSIAN(0.1)), 10**6)
    found = accounting.epsilon(many, 1e-5, accounting_method="tight")
    assert 1e6 < found.epsilon < accounting.gaussian_epsilon(1e-5, 1e-4)


def test_different_parts_compose_in_any_order():
    step = step_of(1.0)
    parts = [
        (privacy_loss.sampled_gaussian(0.1, z, step)[1], n) for z, n in [(1, 9), (2, 5)]
    ]
    both = [
        privacy_loss.composed(order, 1e-5).epsilon(1e-5)
        for order in (parts, parts[::-1])
    ]
    assert both[0] == pytest.approx(both[1], rel=1e-9)
    alone = [privacy_loss.composed([part], 1e-5).epsilon(1e-5) for part in parts]
    assert max(alone) < both[0] < sum(alone)


def test_deltas_at_the_ends():
    remove, _ = privacy_loss.sampled_gaussian(0.5, 1.0, 1e-3)
    assert remove.epsilon(0.999) == 0
    assert remove.epsilon(remove.infinite / 2) == math.inf


def hockey_stick(first, second, epsilon, rounds=1):
    """Of two mixtures on the line, {mean: weight}, with noise of deviation 1.

    Or of two independent draws of each.
    """
    x, step = np.linspace(-12, 16, 200_001 if rounds == 1 else 2001, retstep=True)
    p, q = (
        sum(w * stats.norm.pdf(x, mean) for mean, w in law.items()) * step
        for law in (first, second)
    )
    if rounds == 2:
        p, q = np.outer(p, p), np.outer(q, q)
    return np.sum(np.maximum(p - math.exp(epsilon) * q, 0))


def fixed_size_claims(share, z, rounds, epsilons):
    """Hockey-sticks of removing and of adding by the composed losses; [2, m]."""
    found = privacy_loss.fixed_size_gaussian(share, z, 1e-4)
    claims = []
    for side in (privacy_loss.composed([(part, rounds)], 1e-3) for part in found):
        grid = side.step * (side.low + np.arange(side.masses.size))
        sticks = np.maximum(-np.expm1(np.subtract.outer(epsilons, grid)), 0)
        claims.append(side.infinite + sticks @ side.masses)
    return np.array(claims)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.95])
def test_fixed_size_losses_are_attained_by_two_pairs_of_neighbours(share):
    """At z = 1 all others send the opposite of the client's vector, or the same."""
    epsilons = np.array([-1.0, -0.2, 0.0, 0.2, 1.0, 3.0])
    sticks = []
    for sent in (-1.0, 1.0):
        own = {sent: 1 - share}
        own[1.0] = own.get(1.0, 0.0) + share
        zeros = {sent: 1 - share, 0.0: share}
        sticks.append(
            [
                [hockey_stick(*pair, epsilon) for epsilon in epsilons]
                for pair in ((own, zeros), (zeros, own))
            ]
        )
    opposite, same = np.array(sticks)
    claims = fixed_size_claims(share, 1.0, 1, epsilons)
    assert claims == pytest.approx(np.maximum(opposite, same), rel=1e-4, abs=1e-8)
    # Removing is worst among opposite vectors above 0, and adding below it.
    for side, worst in enumerate(((same, opposite), (opposite, same))):
        for place, above in enumerate(epsilons > 0):
            assert claims[side, place] <= worst[int(above)][side, place] * 1.0001 + 1e-8
    # One clip apart would be too little where the client's contributions go.
    too_little = privacy_loss.sampled_gaussian(share, 1.0, 1e-4)[0]
    assert too_little.epsilon(opposite[0, 3]) < 0.199


@pytest.mark.parametrize("keep", [0.05, 0.3, 0.9])
@pytest.mark.parametrize("size", [0.7, 2.0])
@pytest.mark.parametrize("rounds", [1, 2])
def test_masked_cohorts_are_within_their_claim(keep, size, rounds):
    """One client in 30% of cohorts has `size` or zero, others -`size` or all `size`."""
    share, delta = 0.3, 1e-3
    event = L2(1 / (size * keep), keep, 1.0, 1)
    run = SELF(gaussian.FixedSizeDpEvent(event, share), rounds)
    found = accounting.epsilon(run, delta, accounting_method="tight").epsilon
    others = (1 - share) * keep
    own = {0.0: 1 - keep, -size: others, size: share * keep}
    none = {0.0: 1 - others, -size: others}
    same, less = ({0.0: 1 - chance, size: chance} for chance in (keep, others))
    for pair in ((own, none), (none, own), (same, less), (less, same)):
        assert hockey_stick(*pair, found, rounds) <= delta


def test_cohorts_seen_by_the_server_are_not_amplified():
    """Where clients bring the noise, the server is not trusted and sees who they are."""
    choice = dpfl.WithoutReplacement(10_000, 100, 20)
    found = []
    for source in ("clients", "helpers"):
        integers = dpfl.DistributedDiscreteGaussian(
            100, 1.0, 2.0, bits=16, noise_source=source
        )
        found.append(dpfl.epsilon(integers, choice, 1000, 1e-5))
    plain = dpfl.Gaussian(100, 1.0, 2.0)
    every = dpfl.FixedSize(10_000, 100, 20)
    assert found[0] == pytest.approx(dpfl.epsilon(plain, every, 1000, 1e-5), rel=3e-3)
    assert found[1] == pytest.approx(dpfl.epsilon(plain, choice, 1000, 1e-5), rel=3e-3)
    assert found[1] < found[0] / 5


class _Others(dpfl.Gaussian):
    """A mechanism with an event of its own."""

    made = LAPLACE(3.0)

    def round_dp_event(self, dimension, sampling_probability):
        return self.made


def test_plugin_events_are_charged_in_full_under_fixed_cohorts():
    own, run = _Others(100, 1.0, 1.0), dpfl.WithoutReplacement(10_000, 100, 20)
    every = SELF(own.made, 20)
    assert own.dp_event(run, 5).event == every
    gaussian_one = GAUSSIAN(2.0)
    _Others.made = POISSON(1.0, gaussian_one)
    assert own.dp_event(run, 5).event.event.round_event == gaussian_one
