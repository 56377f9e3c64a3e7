# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Integers of clients under a secure sum: their law, their rounding, and their shares."""

import math

import numpy as np
import pytest
import scipy.stats

import dpfl
from dpfl import mechanisms
from dpfl.accounting.integer import summed_noise
from dpfl.codecs import distributed
from dpfl.vectors import integers, rounding
from tests.codecs import rounds
from tests.refusals import refuses

D, N = 500, 5
KINDS = {
    "ddg": mechanisms.DistributedDiscreteGaussian,
    "skellam": mechanisms.DistributedSkellam,
}


def make(kind="ddg", noise_multiplier=0.0, bits=20, cohort_size=N, **changes):
    return KINDS[kind](cohort_size, 2.0, noise_multiplier, bits, **changes)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_of_few_bits_has_the_events_law(kind):
    """In grid steps, of which it has hardly more than one."""
    d = 16_000
    config = make(kind, 1.3, 7)
    total = rounds.run(config, np.zeros([N, d])).total["update"]
    noise, event = integers.center(total, 7), config.round_dp_event(d, 1.0)
    steps = event.local_stddev / event.granularity
    assert steps > 1
    x = np.arange(-64, 64)
    if kind == "skellam":
        law = summed_noise.SkellamNoise(event.total_variance_steps)
    else:
        law = summed_noise.DiscreteGaussianNoise(N, steps)
    expected = np.exp(law.log_pmf_at(x)) * noise.size
    observed = np.bincount(noise + 64, minlength=128)
    common = expected > 10
    off = np.square(observed - expected)[common] / expected[common]
    assert scipy.stats.chi2.sf(off.sum(), common.sum()) > 1e-3


@pytest.mark.parametrize("bits", [5, 12])
def test_message_rounds_the_clipped_rotated_update(bits):
    config = make(bits=bits, cohort_size=4)
    codec, grid = dpfl.make_codec(config, D), config.grid(D)
    shared = codec.decode_broadcast({"round_seed": np.array([1, 2])})
    x = np.zeros(D, np.float32)
    x[:3] = [3.0, -1.0, 0.5]
    rotated = codec._rotation.rotate(x, shared["rotation"])
    target = rounding.norm_target(1 / grid.granularity, D)
    limit = grid.max_coordinate / grid.granularity
    steps = np.clip(rotated * (target / np.linalg.norm(rotated)), -limit, limit)
    message = codec.encode(x, shared, np.array([1, 3])).message["update"]
    assert np.all((message >= 0) & (message < 1 << bits))
    off = integers.center(message, bits) - steps
    # That it is up or down at random, without bias, is in vectors/test_rounding.py.
    assert 0.5 < np.abs(off).max() < 1.001
    assert abs(off.mean()) < 4.5 * 0.5 / math.sqrt(D)


@pytest.mark.parametrize("norm", [0.5, 1.9999, 2.0, 2.5, 1e20])
def test_rounded_vector_is_closely_within_the_clip(monkeypatch, norm):
    """And its bounds are those of the event."""
    config = make("ddg", 1.0, 8, cohort_size=4)
    codec, grid = dpfl.make_codec(config, D), config.grid(D)
    shared = codec.decode_broadcast({"round_seed": np.array([1, 2])})
    seen = {}

    def within(vector, seed, max_norm, max_coordinate):
        seen.update(vector=vector, max_norm=max_norm, largest=max_coordinate)
        return np.zeros(vector.shape, np.int32)

    monkeypatch.setattr(distributed.rounding, "randomized_round", within)
    codec.encode(rounds.updates([norm])[0], shared, np.array([5, 3]))
    event = config.round_dp_event(D, 1.0)
    steps = event.clip_norm / event.granularity
    assert seen["max_norm"] == pytest.approx(steps, rel=1e-12)
    assert seen["largest"] == pytest.approx(event.max_steps, rel=1e-12)
    length = np.linalg.norm(seen["vector"].astype(np.float64))
    wanted = min(norm / 2.0, 1.0) / grid.granularity
    assert wanted * (1 - 1e-4) < length < wanted * (1 + 2e-6)


def test_sums_with_too_few_shares_are_refused():
    config = make("ddg", 1.0, cohort_size=10, expected_dropout=0.2)
    given = rounds.updates([1.0] * 8)
    rounds.run(config, given)
    with refuses(ValueError, "8 clients", 7.0):
        rounds.run(config, given[:7])
    # A client that is not finite still sends its share.
    given[2, 3] = math.nan
    rounds.run(config, given)


def test_wrap_around_is_measured():
    """Against the part of Gaussian coordinates that leave the modulus."""
    config = make("ddg", 1.0, 5)
    decoded = rounds.run(config, np.zeros([N, D])).decoded
    stddev = config.grid(D).local_stddev_steps * math.sqrt(N)
    expected = math.erfc(2**4 / (math.sqrt(2) * stddev))
    measured = decoded.measurements["wrap_probability"]
    assert measured == pytest.approx(expected, rel=0.5)
    assert expected < config.grid(D).wrap_probability(config.modulus_bits)


def test_too_coarse_a_grid_is_refused_at_the_start():
    for config, bits in (
        (make("ddg", 0.05, 6, cohort_size=100), 6),
        (mechanisms.DomeDdg(N, 2.0, 0.02, 6, bits=5), 5),
    ):
        with refuses(ValueError, "bits", bits):
            dpfl.make_codec(config, D)
