# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Loss distributions against the exact curve and those of dp_accounting."""

import math

import numpy as np
import pytest
from dp_accounting import pld

from dpfl.accounting import gaussian, losses


def step_of(z, count=1):
    return gaussian._interval(0.0, {(0.5, z): count})


@pytest.mark.parametrize("q", [1e-6, 0.03, 0.9, 1.0])
@pytest.mark.parametrize("z", [0.02, 0.5, 1.0, 5.0, 100.0])
def test_one_release_is_as_the_exact_curve_and_never_below(q, z):
    """Removal of a client, of which the curve is known for a sample."""
    step = step_of(z)
    remove, _ = losses.sampled_gaussian(q, z, step)
    for found in (remove, losses.composed([(remove, 1)])):
        for delta in (1e-2, 1e-5, 1e-9):
            if q == 1:
                exact = gaussian.gaussian_epsilon(delta, z)
            else:
                exact = gaussian._once_sampled_epsilon(q, z, delta)
            assert 0 <= found.epsilon(delta) - exact <= step


@pytest.mark.parametrize("q", [1e-3, 0.3, 1.0])
def test_both_directions_have_all_their_mass(q):
    """Each also under the other law, of which a loss l has the share exp(-l)."""
    for found in losses.sampled_gaussian(q, 0.8, 1e-3):
        grid = found.step * (found.low + np.arange(found.masses.size))
        assert np.sum(found.masses) + found.infinite == pytest.approx(1, abs=1e-12)
        other = np.sum(found.masses * np.exp(-grid))
        assert other == pytest.approx(1, abs=1e-9) and np.all(found.masses >= 0)


@pytest.mark.parametrize(
    ("q", "z", "count"), [(0.5, 2.0, 60), (0.03, 1.08, 1500), (1.0, 3.0, 20)]
)
def test_compositions_are_those_of_dp_accounting(q, z, count):
    step = step_of(z, count)
    theirs = pld.privacy_loss_distribution.from_gaussian_mechanism(
        z, value_discretization_interval=step, sampling_prob=q
    )
    theirs = theirs.self_compose(count)
    pair = losses.sampled_gaussian(q, z, step)
    ours = [losses.composed([(part, count)]) for part in pair]
    for delta in (1e-3, 1e-6):
        found = max(part.epsilon(delta) for part in ours)
        assert found == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-7)


def test_different_parts_compose_in_any_order():
    step = step_of(1.0)
    parts = [(losses.sampled_gaussian(0.1, z, step)[1], n) for z, n in [(1, 9), (2, 5)]]
    both = [losses.composed(order).epsilon(1e-5) for order in (parts, parts[::-1])]
    assert both[0] == pytest.approx(both[1], rel=1e-9)
    alone = [losses.composed([part]).epsilon(1e-5) for part in parts]
    assert max(alone) < both[0] < sum(alone)


def test_deltas_at_the_ends():
    remove, _ = losses.sampled_gaussian(0.5, 1.0, 1e-3)
    assert remove.epsilon(0.999) == 0
    assert remove.epsilon(remove.infinite / 2) == math.inf
