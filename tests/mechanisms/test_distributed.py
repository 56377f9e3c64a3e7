# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import math
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest

from dpfl import mechanisms, planning
from dpfl.accounting import log_space
from dpfl.mechanisms import integer_grid
from tests.refusals import refuses

D = 1000
DDG = mechanisms.DistributedDiscreteGaussian
CONFIGS = [
    DDG(100, 0.5, 1.0, 14),
    mechanisms.DistributedSkellam(100, 0.5, 1.0, 14),
    mechanisms.SketchedDdg(100, 0.5, 1.0, 14, compression_rate=4.0),
    mechanisms.SparseRecovery(100, 0.5, 1.0, 14, sparsity=5),
]
FIXED = mechanisms.FixedSize(1000, 100, 7)
POISSON = mechanisms.PoissonSampling(1000, 100, 7)


def named(value):
    return value.name


def integer_event(config, dimension=D):
    event = config.round_dp_event(dimension, 1.0)
    return getattr(event, "release", event)


@pytest.mark.parametrize("config", CONFIGS, ids=named)
class TestAll:
    def test_the_event_has_the_grids_numbers(self, config):
        event, found = integer_event(config), config.grid(D)
        assert event.noise_clients == 100
        assert event.noise_multiplier == pytest.approx(1.0)
        steps = event.local_stddev / event.granularity
        assert steps == pytest.approx(found.local_stddev_steps)
        largest = event.max_coordinate / event.clip_norm
        assert largest == pytest.approx(found.max_coordinate)
        assert event.dimension == config.rotated_dimension(D)

    def test_skellam_and_zero_noise(self, config):
        assert config.with_noise_multiplier(3.0).noise_multiplier == 3.0
        none = config.with_noise_multiplier(0.0)
        assert none.round_dp_event(D, 1.0).event == dp_accounting.NonPrivateDpEvent()
        assert none.mean_squared_error(D) < config.mean_squared_error(D)

    def test_clients_noise_is_refused_under_poisson_sampling(self, config):
        with refuses(ValueError, "noise_source", "clients"):
            config.round_dp_event(D, 0.1)
        for participation in (POISSON, mechanisms.RandomAllocation(1000, 100, 20)):
            with refuses(ValueError, "noise_source", "clients"):
                config.dp_event(participation, D)
        helped = replace(config, noise_source="helpers")
        sampled = planning.epsilon(helped, POISSON, D, 1e-5)
        assert sampled < planning.epsilon(config, FIXED, D, 1e-5) / 2

    def test_bits(self, config):
        bits = 14 * config.rotated_dimension(D)
        assert config.uplink_bits(D) == bits
        assert config.downlink_bits(D) == 32 * D + 128
        adaptive = replace(config, adaptive_clipping=True)
        assert adaptive.uplink_bits(D) == bits + 24
        assert adaptive.downlink_bits(D) == 32 * D + 32 + 128
        helped = replace(config, noise_source="helpers")
        assert helped.uplink_bits(D) == 2 * bits
        assert helped.downlink_bits(D) == 32 * D + 128

    def test_dropout_scales_every_share(self, config):
        """Ninety of a hundred give the noise that all give without drop-out."""
        lossy = replace(config, expected_dropout=0.1)
        assert lossy.noise_shares == 90
        event = integer_event(lossy)
        assert event.noise_clients == 90
        assert event.noise_multiplier == pytest.approx(1.0)
        assert lossy.grid(D).local_stddev == pytest.approx(1 / math.sqrt(90))


@dataclasses.dataclass(frozen=True)
class Coarser(DDG):
    """On a grid of another step, with the clips of the best one."""

    times: float = 1.0

    def grid(self, dimension):
        found = super().grid(dimension)
        return replace(found, granularity=found.granularity * self.times)


@pytest.mark.parametrize(
    ("cohort", "bits", "dimension"),
    [(100, 7, 2**20), (100, 9, 2**20), (1000, 13, 1024)],
)
def test_the_grid_of_the_least_error_at_equal_privacy(cohort, bits, dimension):
    """No other step is better by more than a thousandth."""

    def cost(config):
        # Error times what rounding adds to the RDP, at an order of epsilon 8.
        rate = config.round_dp_event(dimension, 1.0).rdp([8.0])[0]
        return config.mean_squared_error(dimension) * rate

    config = DDG(cohort, 1.0, 1.0, bits)
    own = cost(config)
    others = [
        cost(Coarser(cohort, 1.0, 1.0, bits, times=times))
        for times in (0.5, 0.7, 0.9, 1.1, 1.5, 2.0)
    ]
    assert own <= min(others) * 1.001
    assert own < max(others) * 0.99


def test_too_coarse_grids_name_the_bits_that_fit():
    config = DDG(100, 0.5, 0.05, 8)
    replace(config, bits=12).check_noise(D)
    for few in (8, 11):
        with refuses(ValueError, "bits", few, 12):
            replace(config, bits=few).check_noise(D)


@pytest.mark.parametrize("stddev", [0.05, 0.3, 1.0, 10.0])
def test_rounding_variance(stddev):
    x = np.random.default_rng(0).standard_normal(400_000) * stddev
    fraction = x - np.floor(x)
    expected = np.mean(fraction * (1 - fraction))
    assert integer_grid.rounding_variance(stddev) == pytest.approx(expected, rel=0.01)


class TestAdaptiveClipping:
    CONFIG = replace(CONFIGS[0], adaptive_clipping=True)

    def test_update_and_count_together_cost_the_noise_multiplier(self):
        count = 1 / (math.sqrt(100) * self.CONFIG.local_count_stddev)
        moved = math.hypot(1 / self.CONFIG.update_noise_multiplier, count)
        assert moved == pytest.approx(1.0)
        assert self.CONFIG.resolved_count_stddev == 5

    def test_event_samples_update_and_count_together(self):
        event = self.CONFIG.round_dp_event(D, 1.0)
        orders = [2.0, 5.0]
        both = event.update.rdp(orders) + event.count.rdp(orders)
        np.testing.assert_allclose(event.rdp(orders), both)
        assert event.count.max_steps == 1
        # The count alone: shifted by 1 under noise of variance (2 * 5)^2.
        assert event.count.rdp([2.0])[0] == pytest.approx(2 / (2 * 100), rel=1e-3)
        sampled = event.poisson_sampled(0.1)
        parts = (event.update, event.count)
        expected = log_space.poisson_sampled_rdp(
            orders, 0.1, lambda a: sum(part.rdp_before_sampling(a) for part in parts)
        )
        np.testing.assert_allclose(sampled.rdp(orders), expected)
        apart = sum(part.poisson_sampled(0.1).rdp(orders) for part in parts)
        assert np.all(sampled.rdp(orders) > apart)
        assert event.poisson_sampled(0.5).poisson_sampled(0.2) == sampled

    def test_the_integers_do_not_depend_on_the_clip(self):
        other = replace(self.CONFIG, clip_norm=7.0)
        assert other.grid(D) == self.CONFIG.grid(D)
        found, expected = (c.round_dp_event(D, 1.0) for c in (other, self.CONFIG))
        np.testing.assert_allclose(found.rdp([3.0]), expected.rdp([3.0]))


def test_share_variance_below_a_grid_step():
    """2 exp(-1/(2 s^2)) / (1 + 2 exp(-1/(2 s^2))) at small s, s^2 from 1 on."""
    ddg, skellam = CONFIGS[:2]
    rare = 2 * math.exp(-1 / (2 * 0.25**2))
    assert ddg.share_variance(0.25) == pytest.approx(rare / (1 + rare), rel=1e-6)
    assert ddg.share_variance(1.5) == pytest.approx(1.5**2, rel=1e-7)
    assert ddg.share_variance(0.0) == 0
    assert skellam.share_variance(0.25) == 0.0625


def test_noise_is_that_of_the_drawn_integers():
    """A third of a grid step of discrete Gaussian noise has less than its square."""
    config = DDG(100, 1.0, 1.0, bits=12)
    steps = config.grid(1).local_stddev_steps
    assert 0.3 < steps < 0.4
    k = np.arange(-20, 21)
    weights = np.exp(-np.square(k) / (2 * steps**2))
    variance = np.sum(weights * np.square(k)) / np.sum(weights)
    found = config.sum_noise_variance(1, 100)
    assert found == pytest.approx(100 * variance * config.grid(1).granularity ** 2)
    assert math.sqrt(found) / 100 == pytest.approx(0.0064, abs=5e-5)
    assert config.with_noise_multiplier(0.0).sum_noise_variance(1, 100) == 0
