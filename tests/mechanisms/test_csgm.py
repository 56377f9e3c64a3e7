# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0


import pytest

from dpfl import accounting, mechanisms


def l2(**kwargs):
    return mechanisms.L2Csgm(1000, 0.5, 2.0, keep_fraction=0.01, **kwargs)


@pytest.mark.parametrize(
    ("dimension", "ratio"), [(1_018_174, 6.38e-3), (4_050_748, 3.30e-3)]
)
def test_default_linf_ratio_is_the_papers(dimension, ratio):
    found = mechanisms.default_linf_ratio(dimension, 1000)
    assert found == pytest.approx(ratio, abs=5e-6)
    assert l2().linf_clip(dimension) == pytest.approx(ratio / 2, abs=5e-6)


def test_default_linf_ratio_rises_with_clients_up_to_one():
    for dimension in (1, 2, 3):
        assert 0 < mechanisms.default_linf_ratio(dimension, 1) <= 1
    ratios = [mechanisms.default_linf_ratio(10_000, n) for n in (1, 10, 100, 10**6)]
    assert ratios == sorted(ratios)


@pytest.mark.parametrize(
    ("rotation", "dimension", "rotated"),
    [
        *[("hadamard", 1, 1), ("hadamard", 3, 4), ("hadamard", 1024, 1024)],
        *[("hadamard", 1_018_174, 2**20), ("hadamard", 2**20 + 1, 2**21)],
        *[("block_hadamard", 1, 1), ("block_hadamard", 2049, 4096)],
        *[("block_hadamard", 4097, 8192), ("block_hadamard", 8193, 12288)],
        *[("block_hadamard", 1_018_174, 1_019_904), ("block_hadamard", 2**20, 2**20)],
        ("block_hadamard", 1_100_000, 1_101_824),
        *[("dft", 1_018_174, 1_018_174), ("dft", 7, 8), ("dft", 1, 2)],
    ],
)
def test_rotated_dimension(rotation, dimension, rotated):
    assert l2(rotation=rotation).rotated_dimension(dimension) == rotated


@pytest.mark.parametrize(
    ("cls", "event_class"),
    [
        (mechanisms.L2Csgm, accounting.SparsifiedGaussianDpEvent),
        (mechanisms.LinfCsgm, accounting.LinfSparsifiedGaussianDpEvent),
    ],
)
def test_event_has_the_mechanisms_numbers(cls, event_class):
    config = cls(1000, 0.5, 2.0, 0.01)
    event = config.round_dp_event(1_018_174, 0.25)
    assert type(event) is event_class
    assert event.noise_multiplier == 2.0
    assert event.keep_fraction == 0.01
    assert event.linf_ratio == config.linf_clip(1_018_174) / config.clip_norm
    # The mask acts on the padded vector.
    assert event.dimension == 2**20
    assert event.sampling_probability == 0.25


def test_an_explicit_linf_ratio_is_used_and_accounted():
    config = l2(linf_ratio=0.02)
    assert config.linf_clip(10_000) == pytest.approx(0.01)
    assert config.round_dp_event(10_000, 1.0).linf_ratio == 0.02


def test_noise_and_bits_of_a_message():
    assert l2().stddev == pytest.approx(2.0 * 0.01 * 0.5)
    # 1% of 2**20 values of 32 bits, their number, the 128 bits of the seed.
    assert l2().uplink_bits(1_018_174) == pytest.approx(0.01 * 2**20 * 32 + 32 + 128)
    assert l2().downlink_bits(1_018_174) == 1_018_174 * 32 + 128
    assert l2().compression_rate == pytest.approx(100)


@pytest.mark.parametrize("gamma", [0.01, 0.5, 1.0])
def test_mean_squared_error_is_the_formula(gamma):
    """d sigma^2 / (n gamma)^2 + (1-gamma)/gamma 1/n^2 sum |g|^2, with d = D."""
    n, clip, z, d = 20, 0.5, 1.5, 4096
    config = mechanisms.L2Csgm(n, clip, z, gamma)
    sigma = z * gamma * clip
    expected = d * sigma**2 / (n * gamma) ** 2
    expected += (1 - gamma) / gamma / n**2 * n * clip**2
    assert config.mean_squared_error(d) == pytest.approx(expected)


def test_mean_squared_error_without_compression_is_the_gaussians():
    config = mechanisms.L2Csgm(20, 0.5, 1.5, 1.0)
    plain = mechanisms.Gaussian(20, 0.5, 1.5).mean_squared_error(3000)
    assert config.mean_squared_error(3000) == pytest.approx(plain)
