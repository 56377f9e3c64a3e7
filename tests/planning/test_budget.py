# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import re
from dataclasses import replace

import pytest

from dpfl import accounting, mechanisms, planning
from dpfl.planning import ledger

D = 10_000
DDG = mechanisms.DistributedDiscreteGaussian
HELPED = DDG(50, 1.0, 0.5, 16, noise_source="helpers")
POISSON = mechanisms.PoissonSampling(100, 50, 60)


@pytest.mark.parametrize("method", ["rdp", "auto"])
def test_calibrated_noise_meets_the_budget_and_no_more(method):
    sparse = mechanisms.L2Csgm(50, 1.0, 1.0, 0.01)
    found = planning.calibrate(sparse, POISSON, D, 8.0, 1e-3, method)
    book = ledger.RunCost(found, POISSON, D, 1e-3, target_epsilon=8.0, method=method)
    assert 7.9 < book.planned.epsilon <= 8.0
    assert book.rounds_allowed == 60
    assert book.stop_message is None


@pytest.mark.parametrize("config", [mechanisms.Gaussian(50, 1.0, 0.5), HELPED])
def test_too_little_noise_of_the_count_is_refused_with_what_would_do(config):
    """More noise than twice the count's cannot be had, whatever the epsilon."""
    little = replace(config, adaptive_clipping=True, count_stddev=0.5)
    wanted = "count_stddev must be unset, or at least ([0-9.]+), .* 2, found 0.5"
    with pytest.raises(accounting.UnreachableBudgetError, match=wanted) as refusal:
        planning.calibrate(little, POISSON, D, 2.0, 1e-3, "rdp")
    enough = float(re.match(wanted, str(refusal.value))[1])
    for value in (enough, None):
        config = replace(little, count_stddev=value)
        found = planning.calibrate(config, POISSON, D, 2.0, 1e-3, "rdp")
        assert 1.9 < planning.epsilon(found, POISSON, D, 1e-3, "rdp") <= 2.0


def test_too_few_bits_are_refused_with_those_that_would_do():
    """Three bits cost so much that the noise for a budget would be of no use."""
    few = DDG(100, 1.0, 1.0, 3)
    with pytest.raises(accounting.CalibrationError) as refused:
        planning.calibrate(few, None, 2**20, 8.0, 1e-5)
    sentence = str(refused.value)
    assert re.match(r"bits must be at least (\d+) for cohort_size 100 and", sentence)
    assert "found 3 bits" in sentence and "\n" not in sentence
    enough = int(re.match(r"bits must be at least (\d+)", sentence)[1])
    wider = replace(few, bits=enough)
    found = planning.calibrate(wider, None, 2**20, 8.0, 1e-5)
    found.check_noise(2**20)
    # The noise that is named is what a grid without an end would take.
    fine = replace(few, bits=30)
    plain = planning.calibrate(fine, None, 2**20, 8.0, 1e-5).noise_multiplier
    assert f"noise_multiplier {plain:g}, found" in sentence
    assert plain < found.noise_multiplier < 2 * plain


def test_noise_that_the_published_grid_suits_is_an_interval():
    """Where a grid widens with the noise, more of that need not suit it."""
    config = DDG(100, 1.0, 1.0, 16, integer_bound="published")
    run = mechanisms.FixedSize(1000, 100, 100)
    found = planning.calibrate(config, run, 10_000, 1.0, 1e-5, "rdp")
    assert 0.99 < planning.epsilon(found, run, 10_000, 1e-5, "rdp") <= 1.0
    found.check_noise(10_000)
    with pytest.raises(ValueError, match="bits must be at least"):
        config.with_noise_multiplier(1000.0).check_noise(10_000)
    assert not config.with_noise_multiplier(1000.0).needs_more_noise(10_000)
