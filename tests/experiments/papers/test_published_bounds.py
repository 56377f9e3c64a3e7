# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math

import numpy as np
import pytest

from dpfl import accounting, mechanisms
from experiments.papers import published_bounds
from experiments.papers.published_bounds import PublishedDdg

D = 10_000


def test_rounded_norm_by_hand():
    # min(1 + 1/4 * 4/4 + 1 * 1/2 * (1 + 1/2), (1 + 1)^2) at g = 1/2, m = 4
    assert published_bounds.rounded_l2_squared(1, 0.5, 4) == pytest.approx(2.0)
    # Integers of one coordinate that is at most a step, and its rounding.
    assert published_bounds.rounded_l2_squared(1.0, 1.0, 1) == 1


def test_tau_by_hand():
    by_hand = 10 * sum(math.exp(-(math.pi**2) / 2 * x) for x in (1 / 2, 2 / 3))
    assert published_bounds.tau(3, 0.5) == pytest.approx(by_hand)
    assert published_bounds.tau(1, 0.5) == 0


def test_known_values():
    epsilon = published_bounds.epsilon
    assert epsilon(1, 1, 100, 0.5, 1) ** 2 == pytest.approx(4.89, abs=5e-3)
    # One client and a fine grid: Delta^2 / sigma^2 = 100, and not the Delta^2 / sigma
    # of the theorem as it is printed, where the root spans n sigma.
    assert epsilon(1, 1, 1, 0.1, 0.02) ** 2 == pytest.approx(100)


def test_the_grid_of_kairouz_et_al():
    config = PublishedDdg(100, 1.0, 1.0, 14)
    assert 2**13 / config.grid(D).sum_stddev == pytest.approx(4, rel=1e-3)
    with pytest.raises(ValueError, match="^bits must be"):
        PublishedDdg(100, 0.5, 1.0, 5).grid(D)
    PublishedDdg(100, 0.5, 1.0, 6).grid(D)


def integer_event(config):
    event = config.round_dp_event(D, 1.0)
    return getattr(event, "event", event)


@pytest.mark.parametrize("bits", [10, 12])
def test_never_below_the_bound_of_dpfl(bits):
    orders = [2.0, 8.0, 32.0]
    kinds = mechanisms.DistributedDiscreteGaussian, PublishedDdg
    own, most = (integer_event(kind(100, 1.0, 1.0, bits)).rdp(orders) for kind in kinds)
    assert np.all(own <= most)


def test_out_of_its_range():
    """Kairouz et al. 2021, Proposition 14: shares of at least half a grid step."""
    with pytest.raises(accounting.NoiseTooSmallError, match="found 0.49 "):
        published_bounds.epsilon(1.0, 4, 3, 0.49, 1.0)
    assert published_bounds.epsilon(1.0, 4, 3, 0.5, 1.0) > 1 / (math.sqrt(3) * 0.5)
    with pytest.raises(accounting.NoiseTooSmallError):
        PublishedDdg(3, 1.0, 0.1, bits=4).round_dp_event(4, 1.0)
