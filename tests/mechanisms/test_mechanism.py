# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import math

import dp_accounting
import pytest

from dpfl import accounting, mechanisms
from dpfl.accounting import events, trees
from dpfl.mechanisms import build, participation
from tests.refusals import refuses

CONFIGS = [
    mechanisms.NoMechanism(10),
    mechanisms.Gaussian(10, 1.0, 0.5),
    mechanisms.L2Csgm(10, 1.0, 0.5, 0.1),
    mechanisms.LinfCsgm(10, 1.0, 0.5, 0.1),
]


def named(value):
    return value.name


@pytest.mark.parametrize("config", CONFIGS, ids=named)
def test_cohort_size_must_match_the_participation(config):
    with refuses(ValueError, "cohort_size", 10):
        config.dp_event(mechanisms.FixedSize(100, 11, 5), 50)


class Narrow(mechanisms.Gaussian):
    """Its release is private for fewer relations than it says of all of them."""

    def round_dp_event(self, dimension, sampling_probability):
        del dimension, sampling_probability
        return events.RunDpEvent(
            dp_accounting.GaussianDpEvent(self.noise_multiplier), events.ZERO_OUT_ONLY
        )


@pytest.mark.parametrize("name", mechanisms.PARTICIPATIONS)
def test_no_participation_widens_the_relations_of_an_event(name):
    options = {
        "min_separation": 5 if name in participation.WITH_SEPARATION else None,
        "rounds_per_epoch": 10 if name in participation.WITH_EPOCHS else None,
    }
    whole = build.participation(name, 100, 10, 20, **options)
    event = Narrow(10, 1.0, 1.0).dp_event(whole, 5)
    assert set(event.neighboring_relations) <= set(events.ZERO_OUT_ONLY)


@pytest.mark.parametrize("config", CONFIGS[1:], ids=named)
def test_with_noise_multiplier_changes_only_that(config):
    changed = config.with_noise_multiplier(3.0)
    assert changed == dataclasses.replace(config, noise_multiplier=3.0)
    event = trees.bare(changed.round_dp_event(50, 1.0))
    assert event.noise_multiplier == 3.0


@pytest.mark.parametrize("name", mechanisms.TEST_CONFIGS)
def test_repeated_rounds_of_an_epoch_cost_another_epoch(name):
    """Whatever the noise; but where masks are those of earlier rows it is refused."""
    config = mechanisms.TEST_CONFIGS[name]
    plan = mechanisms.OncePerEpoch(12, 3, 8)
    whole = plan.most_rounds_in(5, 7)
    if name == "sgmf":
        with refuses(ValueError, "rounds", config.name):
            config.history_event(plan, 64, 8, whole=whole)
        return
    event = config.history_event(plan, 64, 8, whole=whole)
    more = config.dp_event(dataclasses.replace(plan, rounds=12), 64)
    assert event.neighboring_relations == more.neighboring_relations
    found, expected = (
        accounting.epsilon(e, 1e-3, accounting_method="rdp") for e in (event, more)
    )
    assert found.epsilon == pytest.approx(expected.epsilon, rel=1e-12)


def test_no_mechanism_is_not_private():
    config = mechanisms.NoMechanism(10)
    assert not config.is_private
    event = config.round_dp_event(5, 1.0).event
    assert isinstance(event, dp_accounting.NonPrivateDpEvent)
    assert (config.mean_squared_error(100), config.uplink_bits(100)) == (0, 3200)


@pytest.mark.parametrize("config", CONFIGS[1:], ids=named)
def test_noise_above_the_maximum_is_refused(config):
    with refuses(accounting.NoiseTooLargeError, "noise_multiplier", 1e30):
        config.with_noise_multiplier(1e30)
    config.with_noise_multiplier(1e9)


class Laplacian(mechanisms.Gaussian):
    """Its noise is none of those of which losses are known."""

    def round_dp_event(self, dimension, sampling_probability):
        return dp_accounting.LaplaceDpEvent(self.noise_multiplier)


def test_tight_accounting_is_for_gaussians_and_dominated_noise():
    poisson = mechanisms.PoissonSampling(population=1000, cohort_size=100, rounds=3)
    values = {"cohort_size": 100, "clip_norm": 1.0, "noise_multiplier": 1.0}
    for name in ("gaussian", "l2_csgm"):
        build.build(name, values).check_accounting_method("tight", poisson, 1000)
    ddg = mechanisms.DistributedDiscreteGaussian(100, 1.0, 1.0, bits=16)
    fixed = mechanisms.FixedSize(population=1000, cohort_size=100, rounds=3)
    ddg.check_accounting_method("tight", fixed, 1000)
    slots = mechanisms.RandomAllocation(population=1000, cohort_size=100, rounds=10)
    build.build("l2_csgm", values).check_accounting_method("tight", slots, 1000)
    other = Laplacian(**values)
    other.check_accounting_method("rdp", poisson, 1000)
    with refuses(ValueError, "accounting_method", "tight"):
        other.check_accounting_method("tight", poisson, 1000)
    with refuses(ValueError, "accounting_method", "guess"):
        ddg.check_accounting_method("guess", fixed, 1000)


def adaptive(noise_multiplier=1.0, **kwargs):
    more = {"adaptive_clipping": True, **kwargs}
    return mechanisms.Gaussian(100, 0.5, noise_multiplier, **more)


def test_event_is_gaussian_or_poisson_sampled():
    config = mechanisms.Gaussian(100, 0.5, 1.3)
    event = dp_accounting.GaussianDpEvent(1.3)
    assert config.round_dp_event(10, 1.0).event == event
    sampled = dp_accounting.PoissonSampledDpEvent(0.1, event)
    assert config.round_dp_event(10, 0.1).event == sampled


def test_mean_squared_error_and_bits():
    config = mechanisms.Gaussian(100, 0.5, 1.3)
    error = 1000 * (1.3 * 0.5) ** 2 / 100**2
    assert config.mean_squared_error(1000) == pytest.approx(error)
    assert config.uplink_bits(1000) == config.downlink_bits(1000) == 32_000
    assert adaptive().uplink_bits(1000) == 32_002
    assert adaptive().downlink_bits(1000) == 32_032


@pytest.mark.parametrize("count_stddev", [None, 1.0, 30.0])
def test_update_and_count_together_cost_the_noise_multiplier(count_stddev):
    """In units of its noise a client moves the update by 1/z_u, the count by 1/(2s)."""
    config = adaptive(1.2, count_stddev=count_stddev)
    moved = 1 / config.update_noise_multiplier, 0.5 / config.resolved_count_stddev
    assert math.hypot(*moved) == pytest.approx(1 / 1.2)
    assert config.resolved_count_stddev == (count_stddev or 5.0)
    assert config.round_dp_event(10, 1.0).event.noise_multiplier == 1.2


def test_count_noise_below_half_the_multiplier_is_refused():
    with refuses(ValueError, "count_stddev", 0.5):
        adaptive(1.0, count_stddev=0.5)


@pytest.mark.parametrize("noise_multiplier", [9.0, 1000.0])
def test_without_a_count_stddev_any_noise_multiplier_is_possible(noise_multiplier):
    """Calibration tries large ones first; n / 20 = 5 would be refused from 10 on."""
    config = adaptive(noise_multiplier)
    assert config.resolved_count_stddev == noise_multiplier
    none = adaptive(0.0)
    assert none.resolved_count_stddev == none.update_noise_multiplier == 0
    of_update = noise_multiplier / math.sqrt(0.75)
    assert config.update_noise_multiplier == pytest.approx(of_update)


def test_calibration_respects_the_counts_noise():
    """The count of +-1/2 with a standard deviation of 5 forbids 10 and above."""
    who = mechanisms.PoissonSampling(population=1000, cohort_size=100, rounds=100)

    def make_event(z, count_stddev=5.0):
        return adaptive(z, count_stddev=count_stddev).dp_event(who, 10)

    calibrate = accounting.calibrate_noise_multiplier
    rdp = calibrate(make_event, 0.5, 1e-5, accounting_method="rdp", rtol=1e-3)
    auto = calibrate(make_event, 0.5, 1e-5, accounting_method="auto", rtol=1e-3)
    assert rdp == pytest.approx(7.87, rel=2e-3) and auto <= rdp
    with refuses(accounting.UnreachableBudgetError, "count_stddev", 2.0):
        calibrate(lambda z: make_event(z, 2.0), 0.5, 1e-5)
