# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math

import pytest

from dpfl import mechanisms
from experiments.papers import chen2022, secure_sums


def test_expected_error_of_equal_vectors_matches_the_configuration():
    config = mechanisms.SketchedDdg(10, 1.0, 0.5, 12, compression_rate=5.0)
    whole = config.mean_squared_error(512)
    assert secure_sums.expected_error(config, 512, 1.0) == whole
    other = whole - secure_sums.expected_error(config, 512, 0.0)
    assert other == pytest.approx(0.9 * config.shape(512).error)


def test_exact_accounting_saves_bits_at_noise_near_one_step():
    exact, published = (
        secure_sums.error_ratio(1000, 1000, 8.0, 1e-5, 12, bound)
        for bound in ("exact", "published")
    )
    assert 1 < exact < published / 2
    # Nothing is left to save where the error is that of the Gaussian.
    many = [
        secure_sums.error_ratio(100, 1000, 8.0, 1e-5, 16, bound)
        for bound in ("exact", "published")
    ]
    assert many[0] == pytest.approx(many[1], rel=2e-3)
    assert many[0] == pytest.approx(1, abs=0.01)
    few = secure_sums.error_ratio(1000, 1000, 8.0, 1e-5, 4, "exact")
    assert few == math.inf


def test_rate_of_equal_time():
    # 1000 log(1000) / (100 log(100)), with 3 / 2 from the logarithms.
    assert chen2022.rate_of_equal_time(100, 1000) == pytest.approx(15)
    needed = 50 * math.log(50) / (10 * math.log(10))
    assert chen2022.rate_of_equal_time(10, 50) == pytest.approx(needed)
