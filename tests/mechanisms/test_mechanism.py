# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses

import dp_accounting
import pytest

from dpfl import accounting, mechanisms
from dpfl.mechanisms import build

CONFIGS = [
    mechanisms.NoMechanism(10),
    mechanisms.Gaussian(10, 1.0, 0.5),
    mechanisms.L2Csgm(10, 1.0, 0.5, 0.1),
    mechanisms.LinfCsgm(10, 1.0, 0.5, 0.1),
]
PARTICIPATIONS = [
    mechanisms.PoissonSampling(100, 10, 35),
    mechanisms.FixedSize(100, 10, 35),
    mechanisms.OncePerEpoch(100, 10, 35),
]


def named(value):
    return value.name


@pytest.mark.parametrize("config", CONFIGS, ids=named)
@pytest.mark.parametrize("participation", PARTICIPATIONS, ids=named)
def test_every_mechanism_has_event_bits_and_error(config, participation):
    event = config.dp_event(participation, 50).event
    assert isinstance(event, dp_accounting.SelfComposedDpEvent)
    assert event.count == participation.max_participations
    assert config.uplink_bits(50) > 0
    assert config.downlink_bits(50) >= 50 * 32
    assert config.mean_squared_error(50) >= 0


@pytest.mark.parametrize("config", CONFIGS, ids=named)
def test_a_cohort_other_than_the_participations_is_refused(config):
    with pytest.raises(ValueError, match="cohort_size must be .* 11, found 10"):
        config.dp_event(mechanisms.FixedSize(100, 11, 5), 50)


@pytest.mark.parametrize("config", CONFIGS[1:], ids=named)
def test_with_noise_multiplier_changes_only_that(config):
    changed = config.with_noise_multiplier(3.0)
    assert changed == dataclasses.replace(config, noise_multiplier=3.0)
    assert changed.round_dp_event(50, 1.0).noise_multiplier == 3.0


def test_the_table_has_each_under_its_name_and_frozen():
    for name, example in mechanisms.EXAMPLES.items():
        assert mechanisms.MECHANISMS[name] is type(example)
        with pytest.raises(dataclasses.FrozenInstanceError):
            example.cohort_size = 2


def test_no_mechanism_is_not_private():
    config = mechanisms.NoMechanism(10)
    assert not config.is_private
    assert isinstance(config.round_dp_event(5, 1.0), dp_accounting.NonPrivateDpEvent)
    assert (config.mean_squared_error(100), config.uplink_bits(100)) == (0, 3200)


@pytest.mark.parametrize("config", CONFIGS[1:], ids=named)
def test_more_noise_than_there_can_be_is_refused(config):
    wanted = r"^noise_multiplier must be at most 1e\+09, found 1e\+30$"
    with pytest.raises(accounting.NoiseTooLargeError, match=wanted):
        config.with_noise_multiplier(1e30)
    config.with_noise_multiplier(1e9)


def test_a_budget_below_all_noise_that_there_can_be():
    def make_event(z):
        return CONFIGS[1].with_noise_multiplier(z).round_dp_event(5, 1.0)

    with pytest.raises(accounting.UnreachableBudgetError, match="at most 1e\\+09"):
        accounting.calibrate_noise_multiplier(make_event, 1e-12, 1e-13, rtol=0.1)


def test_tight_is_for_gaussians_and_what_they_stand_for():
    poisson = mechanisms.PoissonSampling(population=1000, cohort_size=100, rounds=3)
    values = {"cohort_size": 100, "clip_norm": 1.0, "noise_multiplier": 1.0}
    for name in ("gaussian", "l2_csgm"):
        build.build(name, values).check_accountant("tight", poisson, 1000)
    ddg = mechanisms.DistributedDiscreteGaussian(100, 1.0, 1.0, bits=16)
    fixed = mechanisms.FixedSize(population=1000, cohort_size=100, rounds=3)
    ddg.check_accountant("tight", fixed, 1000)
    slots = mechanisms.RandomSlot(population=1000, cohort_size=100, rounds=10)
    plain = build.build("gaussian", values)
    plain.check_accountant("rdp", slots, 1000)
    with pytest.raises(
        ValueError, match="accountant must be auto or rdp for gaussian with"
    ):
        plain.check_accountant("tight", slots, 1000)
    with pytest.raises(ValueError, match="accountant must be one of"):
        ddg.check_accountant("guess", fixed, 1000)
