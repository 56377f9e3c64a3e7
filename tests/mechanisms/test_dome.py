# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math
from dataclasses import replace

import dp_accounting
import pytest

from dpfl import accounting, mechanisms, planning
from tests.refusals import refuses

EPOCHS = mechanisms.OncePerEpoch(1000, 20, 150)


NUMBERS = {"cohort_size": 20, "clip_norm": 0.5, "noise_multiplier": 2.0}


def make(**kwargs):
    return mechanisms.Dome(**{**NUMBERS, "sketch_size": 8, **kwargs})


def rho(config, participation=EPOCHS):
    """The zero-concentrated privacy of a run, which each charge adds to."""
    run = config.dp_event(participation, 100).event
    return run.count / (2 * run.event.noise_multiplier**2)


def test_noise_and_event_come_from_the_same_numbers():
    config = make()
    # A client's share is a; the sum's variance is B a^2, and that of the mean a^2 / B.
    local = 2.0 * 0.5 / math.sqrt(20)
    assert config.stddev == pytest.approx(local / math.sqrt(20))
    # E C^2 / (2 B a^2)
    assert EPOCHS.max_participations == 3
    assert rho(config) == pytest.approx(3 * 0.5**2 / (2 * 20 * local**2))
    event = config.dp_event(EPOCHS, 100)
    assert accounting.relations_of(event) == (accounting.Relation.REPLACE_SPECIAL,)
    # Three Gaussians are one of a multiplier that is smaller by the root of 3.
    got = accounting.epsilon(event, 1e-5, accounting_method="tight")
    one = accounting.gaussian_epsilon(1e-5, 2.0 / math.sqrt(3))
    assert got.epsilon == pytest.approx(one, rel=1e-9)
    assert got.accounting_method == "exact-gaussian"


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 50.0])
@pytest.mark.parametrize("delta", [1e-5, 0.1])
def test_the_papers_accounting_meets_its_theorem(epsilon, delta):
    """Nicolas et al. 2025, Theorem 3.3: 1/(2 s^2)-zCDP is (epsilon, delta)-DP."""
    root = math.sqrt(math.log(1 / delta))
    s = max(1 / math.sqrt(epsilon), 2 * math.sqrt(2) * root / epsilon)
    # a = sqrt(N E / B) s C, and z = sqrt(B) a / C.
    z = math.sqrt(1000 * 3) * s
    # The paper charges N times what is needed: sqrt(N) times less noise does.
    assert 1000 * rho(make(noise_multiplier=z)) == pytest.approx(1 / (2 * s**2))
    enough = make(noise_multiplier=z / math.sqrt(1000))
    assert rho(enough) == pytest.approx(1 / (2 * s**2))
    assert planning.epsilon(enough, EPOCHS, 100, delta, "rdp") <= epsilon


def test_clients_of_every_round_are_charged_for_all():
    everyone = mechanisms.FixedSize(1000, 20, 150)
    assert rho(make(), everyone) == pytest.approx(150 / (2 * 2.0**2))


def test_server_adam_or_momentum_is_refused():
    for name, momentum in (("adam", None), ("sgd", 0.9)):
        with refuses(ValueError, "server_optimizer", momentum or name):
            make().check_server_optimizer(name, momentum)
        make(direction="gradient").check_server_optimizer(name, momentum)
    make().check_server_optimizer("sgd", 0.0)


def test_no_noise_is_no_privacy():
    assert make(noise_multiplier=0.0).mean_squared_error(100) == 0


def test_bits_and_error():
    config = make(sketch_size=16, max_rank=5)
    assert config.uplink_bits(1000) == 16 * 32
    # The model, five directions of 16 bits, their number, S m, a seed.
    down = 32_000 + 5 * 16_000 + 32 + 16 * 32 + 128
    assert config.downlink_bits(1000) == down
    without = replace(config, mean_removal=False)
    assert without.downlink_bits(1000) == down - 16 * 32
    assert config.mean_squared_error(1000) == pytest.approx(16 * (2 * 0.5 / 20) ** 2)
    assert not config.has_whole_error and mechanisms.Gaussian.has_whole_error


def test_resolved_numbers():
    assert make(sketch_size=9).resolved_max_rank == 3
    assert make(probes=False).resolved_max_rank == 8
    assert make(max_rank=7).resolved_max_rank == 7
    floor = make().resolved_second_moment_floor(100)
    assert floor == pytest.approx((2 * 0.5 / 20) ** 2 * 8 / 100)
    assert make(noise_multiplier=0.0).resolved_second_moment_floor(100) > 0
    assert make(second_moment_floor=0.3).resolved_second_moment_floor(100) == 0.3


@pytest.mark.parametrize(
    ("rank", "probes", "names"),
    [(9, True, ("sketch_size",)), (3, False, ("sketch_size", "probes"))],
)
def test_max_rank_must_fit_the_sketch(rank, probes, names):
    with refuses(ValueError, "max_rank", rank, *names):
        make(max_rank=rank, probes=probes)


def test_a_sketch_longer_than_the_model_is_refused():
    with refuses(ValueError, "sketch_size", 8, 5):
        make().dp_event(EPOCHS, 5)


def make_ddg(**kwargs):
    return mechanisms.DomeDdg(**{**NUMBERS, "sketch_size": 8, **kwargs})


def epsilon(config):
    return planning.epsilon(config, EPOCHS, 100, 1e-5, "rdp")


@pytest.mark.parametrize("maker", [make, make_ddg])
def test_sampling_and_bad_noise_are_refused(maker):
    with refuses(ValueError, "participation", "poisson"):
        maker().dp_event(mechanisms.PoissonSampling(1000, 20, 150), 100)
    with refuses(ValueError, "sampling_probability", 0.5):
        maker().round_dp_event(100, 0.5)
    assert epsilon(maker(noise_multiplier=0.0)) == math.inf
    with refuses(ValueError, "bits", 4):
        make_ddg(bits=4).check_noise(100)


@pytest.mark.parametrize("bits", [8, 16])
def test_integer_event_has_the_sketch_dimension(bits):
    config = make_ddg(bits=bits)
    alone = mechanisms.DistributedDiscreteGaussian(20, 0.5, 2.0, bits)
    want = dp_accounting.SelfComposedDpEvent(alone.round_dp_event(8, 1.0), 3)
    assert config.dp_event(EPOCHS, 100).event == want
    assert config.round_dp_event(100, 1.0) == alone.round_dp_event(8, 1.0)
    assert config.uplink_bits(100) == bits * 8
    assert config.downlink_bits(100) == make().downlink_bits(100)


def test_integer_noise_costs_a_little_more_than_normal_noise():
    plain = epsilon(make())
    few, many = epsilon(make_ddg(bits=8)), epsilon(make_ddg(bits=20))
    assert plain <= many < few
    assert many == pytest.approx(plain, rel=2e-3)
    assert few > 1.002 * plain
    # With rounding the noise is larger than that of normal shares.
    assert make().stddev < make_ddg(bits=20).stddev < make_ddg(bits=8).stddev
    assert make_ddg(bits=20).stddev == pytest.approx(make().stddev, rel=1e-3)
    error = make_ddg(bits=8).release.mean_squared_error(8)
    assert make_ddg(bits=8).mean_squared_error(100) == pytest.approx(error)
