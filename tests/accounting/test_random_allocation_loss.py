# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Losses of random allocation against integration, Monte Carlo and their limits."""

import math

import numpy as np
import pytest
from scipy import special

from dpfl import accounting
from dpfl.accounting import privacy_loss, random_allocation_loss
from tests.accounting import quadrature
from tests.accounting.event_names import COMPOSED, GAUSSIAN, L2, POISSON, SELF, SLOT
from tests.refusals import refuses


def epochs(z, rounds, slots, count=1):
    return SELF(SLOT(GAUSSIAN(z), rounds, slots), count)


def epsilon(event, delta=1e-5, accounting_method="tight"):
    return accounting.epsilon(event, delta, accounting_method=accounting_method).epsilon


def claim(found, at):
    """The hockey-stick of a distribution of losses at an epsilon."""
    grid = found.step * (found.low + np.arange(found.masses.size))
    shares = np.maximum(-np.expm1(np.minimum(at - grid, 0)), 0)
    return found.infinite + found.masses @ shares


def hockey_sticks(known, weights, m, slots, at):
    """E(R - e^at)+ and E(1 - e^at R)+, R = known + exp(m X - m^2/2) / slots."""
    strikes = np.array([slots * (math.exp(s * at) - known) for s in (1, -1)])
    cuts = np.log(np.maximum(strikes, 1e-300)) / m + m / 2
    call = special.ndtr(m - cuts[0]) - strikes[0] * special.ndtr(-cuts[0])
    put = strikes[1] * special.ndtr(cuts[1]) - special.ndtr(cuts[1] - m)
    call = np.where(strikes[0] > 0, call, 1 - strikes[0])
    put = np.where(strikes[1] > 0, put, 0)
    return weights @ call / slots, math.exp(at) * (weights @ put) / slots


@pytest.mark.parametrize("z", [0.4, 1.0, 3.0, 50.0])
@pytest.mark.parametrize(("rounds", "slots"), [(2, 2), (2, 5.5), (3, 3)])
def test_two_and_three_slots_match_integration(z, rounds, slots):
    """Never below, and close, at epsilons on both sides of 0."""
    step = 0.02 * (rounds - 1)
    u, weights = quadrature.ratios([1 / z], 1.0, step=step, reach=9.0)
    known = slots - rounds + 1 + u
    if rounds == 3:
        known = (known[:, None] + 1 + u).ravel()
        weights = np.multiply.outer(weights, weights).ravel()
    pair = random_allocation_loss.slot_gaussian(1 / slots, z, rounds, 4e-4 / z)
    for at in (0.0, *np.array([-2, -1, -0.3, 0.1, 0.3, 1, 2, 4, 6]) / (z * rounds)):
        truth = hockey_sticks(known / slots, weights, 1 / z, slots, at)
        for found, true in zip(pair, truth):
            assert true - 1e-12 <= claim(found, at) <= 1.004 * true + 1e-12


@pytest.mark.parametrize(("q", "z"), [(0.5, 1.0), (0.03, 0.5), (0.2, 10.0)])
def test_one_slot_is_poisson_sampling(q, z):
    step = 4e-4 / z
    pairs = (
        random_allocation_loss.slot_gaussian(q, z, 1, step),
        privacy_loss.sampled_gaussian(q, z, step),
    )
    for ours, theirs in zip(*pairs):
        for at in np.array([0, 0.1, 0.5, 1, 2]) * q / z:
            want = claim(theirs, at)
            assert 0.999 * want <= claim(ours, at) <= 1.005 * want + 1e-12
    run = COMPOSED([epochs(z, 1, 1 / q, 3), epochs(z, 1, 1, 2)])
    want = COMPOSED([SELF(POISSON(q, GAUSSIAN(z)), 3), SELF(GAUSSIAN(z), 2)])
    assert epsilon(run) == pytest.approx(epsilon(want), rel=1e-9)
    assert epsilon(epochs(z, 1, 1)) == epsilon(GAUSSIAN(z))


@pytest.mark.parametrize(
    ("z", "rounds", "slots"), [(1.0, 10, 10), (0.7, 33, 33.5), (2.0, 9, 20)]
)
def test_ten_epochs_match_simulation(z, rounds, slots):
    """Delta at the epsilon of 1e-3: at most that, and at most 2% below, up to chance."""
    rng, m, runs = np.random.default_rng(7), 1 / z, 150_000
    delta = 1e-3
    found = epsilon(epochs(z, rounds, slots, 10), delta)
    total = np.zeros(runs)
    for _ in range(10):
        logs = m * rng.standard_normal((rounds, runs)) - m * m / 2
        logs[0] += m * m * (rng.random(runs) < rounds / slots)
        total += np.log(np.exp(logs).sum(axis=0) / slots + 1 - rounds / slots)
    values = np.maximum(-np.expm1(np.minimum(found - total, 0)), 0)
    spread = 4 * values.std() / math.sqrt(runs)
    assert spread < 0.3 * delta
    assert values.mean() - spread <= delta <= 1.02 * (values.mean() + spread)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_moments_and_masses(direction):
    """Both laws have their mass and mean, and a little more of the second moment."""
    for z, rounds, slots in ((0.3, 50, 60.0), (1.0, 1000, 1000.0), (100.0, 7, 7.0)):
        pair = random_allocation_loss.slot_gaussian(1 / slots, z, rounds, 1e-4)
        found = pair[direction == "add"]
        grid = found.step * (found.low + np.arange(found.masses.size))
        assert np.sum(found.masses) == pytest.approx(1, abs=3e-10)
        assert np.sum(found.masses * np.exp(-grid)) == pytest.approx(1, abs=3e-10)
        assert found.infinite < 1e-16
        if direction == "remove":
            second = rounds * math.expm1(1 / z**2) / slots**2
            excess = found.masses @ np.expm1(grid)
            assert second < excess < 1.01 * second + 1e-9


class TestMonotone:
    @pytest.mark.parametrize(("z", "slots"), [(0.5, 40), (1.0, 130.5), (20.0, 70)])
    def test_a_prefix_costs_no_more(self, z, slots):
        rounds = [*range(1, 12), *range(62, 67), int(slots) - 1, int(slots)]
        rounds = sorted(r for r in {*rounds} if r <= slots)
        for count in (1, 9):
            spent = [epsilon(epochs(z, r, slots, count)) for r in rounds]
            assert np.all(np.diff(spent) > 0)
        assert epsilon(epochs(z, rounds[-1], slots)) < spent[-1]

    def test_one_more_round_never_costs_less(self):
        """The grid's moves are fewer for 1536 rounds than for 1535."""
        spent = [epsilon(epochs(1.0, rounds, 2000, 1)) for rounds in (1535, 1536)]
        assert spent[0] <= spent[1]


def merged(u, weights):
    """Values that are close become their mean: no hockey-stick grows by that."""
    groups = np.floor(np.log1p(u) / 0.02)
    groups = (groups - groups.min()).astype(int)
    mass, total = (np.bincount(groups, of) for of in (weights, weights * u))
    return total[mass > 0] / mass[mass > 0], mass[mass > 0]


@pytest.mark.parametrize("keep", [1.0, 0.3, 0.05])
def test_adaptive_clients_are_within_the_bound(keep):
    """Slot 2 of two: what is sent depends on what slot 1 showed.

    Its coordinates are one at the bound, two that are smaller, or less; whichever is
    the worst for the direction at hand is sent, and so is the first.
    """
    sizes = ([1.0], [math.sqrt(0.5)] * 2, [0.6], [0.3, 0.2])
    ways = [merged(*quadrature.ratios(size, keep, step=0.05)) for size in sizes]
    # DeltaInf = sigma = 1 and Delta2 = 1, so that K = 1.
    event = L2(1 / keep, keep, 1.0, 2)
    for delta in (0.05, 1e-3):
        bound = epsilon(SLOT(event, 2, 2.5), delta)
        growth = math.exp(bound)
        for scale, strike in ((1, growth), (-growth, -1)):
            worst = 0.0
            for u, weights in ways:
                follow = [
                    np.maximum(scale * (2.5 + u[:, None] + y) / 2.5 - strike, 0) @ w
                    for y, w in ways
                ]
                worst = max(worst, weights @ np.max(follow, axis=0))
            assert worst <= delta * (1 + 1e-6)


class TestDominatingGaussians:
    def test_rounds_have_clocks_and_share_the_delta(self, monkeypatch):
        """Twenty releases an epoch: what is left of delta is for each of 5 * 20."""
        asked = []
        monkeypatch.setattr(
            "dpfl.accounting.gaussian_domination.clock_bound",
            lambda *given: asked.append(given) or 1.0,
        )
        masked = L2(1.0, 0.1, 0.5, 4)
        assert epsilon(SELF(SLOT(masked, 20, 20), 5)) > 0
        [(_, _, full, delta)] = asked
        assert full == masked.full_coordinates
        assert delta <= 0.01 * 1e-5 / 100

    @pytest.mark.parametrize(
        "kind",
        [
            accounting.DistributedDiscreteGaussianDpEvent,
            accounting.DistributedSkellamDpEvent,
        ],
    )
    def test_helpers_integer_noise_costs_as_gaussian(self, kind):
        event = kind(100, 0.1, 0.01, 1.0, 64, noise_of_helpers=True)
        plain = epsilon(epochs(1.0, 20, 20, 5))
        report = accounting.epsilon(SELF(SLOT(event, 20, 20), 5), 1e-5)
        assert report.accounting_method == "stopped-pld"
        assert plain < report.epsilon < 1.01 * plain

    def test_tight_is_refused_for_unproven_rounds(self):
        masked = L2(1.0, 0.1, 0.5, 4, 0.5)
        for one in (masked, SLOT(GAUSSIAN(1.0), 2, 3)):
            run = SLOT(one, 2, 2)
            with refuses(ValueError, "accounting_method", "tight"):
                accounting.epsilon(run, 1e-5, accounting_method="tight")
            assert accounting.epsilon(run, 1e-5).accounting_method == "rdp"

    def test_without_noise(self):
        silent = L2(0.0, 0.1, 0.5, 4)
        for one in (silent, GAUSSIAN(0.0)):
            assert epsilon(SLOT(one, 2, 2)) == math.inf


@pytest.mark.parametrize(
    ("z", "rounds"), [(0.03, 5), (1.0, 2**21), (1e8, 5), (1e-4, 5)]
)
def test_large_runs_fall_back_to_the_unsampled_curve(z, rounds):
    run = epochs(z, rounds, rounds, 3)
    report = accounting.epsilon(run, 1e-5, accounting_method="tight")
    assert report.accounting_method == "unsampled-gaussian"
    assert report.epsilon == epsilon(SELF(GAUSSIAN(z), 3))
    assert epsilon(run, accounting_method="auto") <= report.epsilon
