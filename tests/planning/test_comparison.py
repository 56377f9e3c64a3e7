# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math

import pytest

from dpfl import accounting, mechanisms, planning
from dpfl.planning import comparison

D = 1000
GAUSSIAN = mechanisms.Gaussian(10, 1.0, 1.0)
SPARSE = mechanisms.L2Csgm(10, 1.0, 1.0, keep_fraction=0.1)
PLAN = mechanisms.PoissonSampling(population=100, cohort_size=10, rounds=5)


@pytest.mark.parametrize("config", [GAUSSIAN, SPARSE], ids=lambda c: c.name)
def test_calibrated_meets_the_budget_closely(config):
    noised = planning.calibrate(config, PLAN, D, 2.0, 1e-4)
    spent = comparison.cost(noised, PLAN, D, 1e-4)
    assert 1.99 < spent.epsilon <= 2
    assert spent.accountant == ("pld" if config is GAUSSIAN else "rdp")
    assert spent.relation == "add_or_remove"
    once = planning.calibrate(config, None, D, 2.0, 1e-4)
    assert 1.99 < planning.epsilon(once, None, D, 1e-4) <= 2


def test_tight_needs_less_noise():
    noises = [
        planning.calibrate(GAUSSIAN, PLAN, D, 2.0, 1e-4, method).noise_multiplier
        for method in ("rdp", "tight")
    ]
    assert noises[1] < noises[0]


def test_a_budget_that_no_noise_meets_names_the_mechanism():
    with pytest.raises(accounting.BudgetNotBindingError, match="smaller for gaussian"):
        planning.calibrate(GAUSSIAN, None, D, 1e30, 1e-4)
    integers = mechanisms.DistributedDiscreteGaussian(100, 1.0, 1.0, 16)
    for mechanism in (GAUSSIAN, integers):
        with pytest.raises(accounting.UnreachableBudgetError) as refused:
            planning.calibrate(mechanism, None, D, 1e-12, 1e-30)
        assert f"larger for {mechanism.name}" in str(refused.value)


def test_bits_that_suit_no_noise_are_named_in_place_of_the_budget():
    few_bits = mechanisms.DistributedDiscreteGaussian(100, 1.0, 1.0, 2)
    with pytest.raises(accounting.CalibrationError, match="bits must be at least 8"):
        planning.calibrate(few_bits, None, D, 8.0, 1e-5)


def test_cost_says_what_the_configuration_says():
    found = comparison.cost(SPARSE, PLAN, D, 1e-4)
    assert found.compression_rate == pytest.approx(10)
    assert found.mean_squared_error == SPARSE.mean_squared_error(D)
    assert found.uplink_bits == SPARSE.uplink_bits(D)
    assert (found.cohort_size, found.population, found.rounds) == (10, 100, 5)
    assert found.participation == "poisson" and found.dimension == D
    # The Gaussian has no rate of its own: its messages are not compressed.
    assert comparison.compression_rate(GAUSSIAN, D) == 1


def test_with_error_inverts_the_error():
    target = 0.03
    for config in (GAUSSIAN, SPARSE):
        noised = comparison.with_error(config, D, target)
        if noised is not None:
            assert noised.mean_squared_error(D) == pytest.approx(target)
    # Of n vectors (clip/n)^2 d z^2: z = sqrt(target n^2 / d).
    found = comparison.with_error(GAUSSIAN, D, target).noise_multiplier
    assert found == pytest.approx(math.sqrt(target * 100 / D))


@pytest.mark.parametrize("target", [1e-4, 0.01, 100.0])
def test_with_error_stays_below_what_the_noise_of_a_count_allows(target):
    """Updates of noise y need z with 1/z^2 = 1/y^2 + 1/(2 count_stddev)^2."""
    own = mechanisms.Gaussian(100, 1.0, 0.0, adaptive_clipping=True, count_stddev=0.3)
    found = comparison.with_error(own, 100, target).noise_multiplier
    assert found == pytest.approx((1 / (100 * target) + 1 / 0.6**2) ** -0.5)


def test_what_compression_alone_exceeds_is_unreachable():
    bare = SPARSE.with_noise_multiplier(0.0).mean_squared_error(D)
    assert comparison.with_error(SPARSE, D, bare / 2) is None
    found = comparison.cost_at_error(SPARSE, PLAN, D, 1e-4, bare / 2)
    assert found.accountant == "unreachable" and math.isinf(found.epsilon)
    assert found.noise_multiplier is None and found.mean_squared_error == bare
    reached = comparison.cost_at_error(SPARSE, PLAN, D, 1e-4, 2 * bare)
    assert reached.accountant == "stopped-pld" and reached.epsilon < math.inf
