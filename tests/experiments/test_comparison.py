# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math
import re
from dataclasses import replace

import pytest

from dpfl import accounting, mechanisms, planning
from experiments import comparison
from tests.refusals import names, refuses

D = 1000
GAUSSIAN = mechanisms.Gaussian(10, 1.0, 1.0)
SPARSE = mechanisms.L2Csgm(10, 1.0, 1.0, keep_fraction=0.1)
PLAN = mechanisms.PoissonSampling(population=100, cohort_size=10, rounds=5)


def test_unreachable_budget_names_the_mechanism():
    with refuses(accounting.BudgetNotBindingError, "gaussian"):
        planning.calibrate(GAUSSIAN, None, D, 1e30, 1e-4)
    integers = mechanisms.DistributedDiscreteGaussian(100, 1.0, 1.0, 16)
    for mechanism in (GAUSSIAN, integers):
        with refuses(accounting.UnreachableBudgetError, mechanism.name):
            planning.calibrate(mechanism, None, D, 1e-12, 1e-30)


@pytest.mark.parametrize("target", [1e-4, 0.01, 100.0])
def test_with_error_respects_the_limit_of_count_noise(target):
    """Updates of noise y need z with 1/z^2 = 1/y^2 + 1/(2 count_stddev)^2."""
    own = mechanisms.Gaussian(100, 1.0, 0.0, adaptive_clipping=True, count_stddev=0.3)
    found = comparison.with_error(own, 100, target).noise_multiplier
    assert found == pytest.approx((1 / (100 * target) + 1 / 0.6**2) ** -0.5)


def test_target_below_compression_error_is_unreachable():
    bare = SPARSE.with_noise_multiplier(0.0).mean_squared_error(D)
    assert comparison.with_error(SPARSE, D, bare / 2) is None
    found = comparison.cost_at_error(SPARSE, PLAN, D, 1e-4, bare / 2)
    assert found.accounting_method == "unreachable" and math.isinf(found.epsilon)
    assert found.noise_multiplier is None and found.mean_squared_error == bare
    reached = comparison.cost_at_error(SPARSE, PLAN, D, 1e-4, 2 * bare)
    assert reached.accounting_method == "stopped-pld" and reached.epsilon < math.inf


DDG = mechanisms.DistributedDiscreteGaussian
FIXED = mechanisms.FixedSize(100, 50, 60)


@pytest.mark.parametrize(
    "config", [mechanisms.Gaussian(50, 1.0, 0.5), DDG(50, 1.0, 0.5, 12)]
)
def test_too_little_count_noise_is_refused_with_the_least_needed(config):
    """More noise than twice the count's cannot be had, whatever the epsilon."""
    little = replace(config, adaptive_clipping=True, count_stddev=0.5)
    with refuses(accounting.UnreachableBudgetError, "count_stddev", 0.5) as refusal:
        planning.calibrate(little, FIXED, 100, 2.0, 1e-3, "rdp")
    enough = float(re.search(r"\d+\.\d+", str(refusal.value))[0])
    for value in (enough, None):
        config = replace(little, count_stddev=value)
        found = planning.calibrate(config, FIXED, 100, 2.0, 1e-3, "rdp")
        assert 1.9 < planning.epsilon(found, FIXED, 100, 1e-3, "rdp") <= 2.0


def test_too_few_bits_are_refused_with_the_least_needed():
    """Three bits cost so much that the noise for a budget would be of no use."""
    few = DDG(100, 1.0, 1.0, 3)
    wanted = "bits", 3, "cohort_size", 100
    with refuses(accounting.CalibrationError, *wanted) as refused:
        planning.calibrate(few, None, 2**20, 8.0, 1e-5)
    assert "\n" not in str(refused.value)
    enough = int(re.search(r"\d+", str(refused.value))[0])
    wider = replace(few, bits=enough)
    found = planning.calibrate(wider, None, 2**20, 8.0, 1e-5)
    found.check_noise(2**20)
    # The noise that is named is what a grid without an end would take.
    fine = replace(few, bits=30)
    plain = planning.calibrate(fine, None, 2**20, 8.0, 1e-5).noise_multiplier
    assert names(str(refused.value), "noise_multiplier", f"{plain:g}")
    assert plain < found.noise_multiplier < 2 * plain
