# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The law of an audit's scores, against quadrature and against draws of releases."""

import numpy as np
import pytest

from dpfl import accounting, mechanisms
from dpfl.accounting import lower_bounds
from experiments.audits import adversary, canaries, cases, cohorts, findings
from experiments.audits import score_distributions as laws
from tests.accounting import simulators

DELTA = 1e-2
NAMED = {"mechanism": "m", "setting": "s"}


def of_name(name, index):
    return cases.CASES[name][index]


class TestGaussian:
    """One coordinate, whose epsilon is known in closed form."""

    @pytest.mark.parametrize("block", [[1.0], [0.5] * 4, [0.25] * 16])
    def test_attains_the_exact_epsilon(self, block):
        law = laws.gaussian(block, 0.8)
        for delta in (1e-4, 1e-2):
            exact = accounting.gaussian_epsilon(delta, 0.8)
            assert law.attainable(delta) == pytest.approx(exact, abs=4e-3)

    def test_attains_the_exact_epsilon_of_a_sample(self):
        law = laws.gaussian([1.0], 0.5).sampled(0.25)
        config = mechanisms.Gaussian(16, 1.0, 0.5)
        population = mechanisms.PoissonSampling(64, 16, 1)
        exact = findings.tightest(config, population, 64, DELTA)
        assert exact.accounting_method == "exact-gaussian"
        assert law.attainable(DELTA) == pytest.approx(exact.epsilon, abs=4e-3)

    def test_expected_bound_matches_simulated_draws(self):
        law, rng = laws.gaussian([1.0], 1.0), np.random.default_rng(3)
        for direction, sign in (("present", 1), ("absent", -1)):
            threshold, expected = law.threshold(direction, 20_000, 1e-3, 0.99)
            assert 2 < expected < accounting.gaussian_epsilon(1e-3, 1.0)
            found = [self.bound(rng, 20_000, threshold, direction) for _ in range(20)]
            assert np.mean(found) == pytest.approx(expected, rel=0.05)
            # No other threshold promises more.
            for shift in (-2 * sign, 2 * sign):
                near = self.bound(rng, 400_000, threshold + shift, direction)
                assert near < accounting.gaussian_epsilon(1e-3, 1.0)

    @staticmethod
    def bound(rng, trials, threshold, direction):
        where = {"threshold": threshold, "direction": direction}
        scores = rng.normal([[0.5], [-0.5]], 1.0, (2, trials))
        return lower_bounds.epsilon_lower_bound_at(*scores, 1e-3, **where).epsilon


# Scores that come from something of their own: masks, rounding, counts, samples.
DRAWN = [
    *(("l2_csgm", 2), ("linf_csgm", 3), ("sgmf", 1), ("gaussian", 6)),
    *(("distributed_discrete_gaussian", 2), ("distributed_skellam", 8)),
]


def draws(case, present, trials, rng):
    """Scores of releases that are drawn from their definition with numpy."""
    config, block = case.mechanism, np.asarray(case.block)
    q = case.participation.sampling_probability
    joins = rng.random((trials, 1)) < q * present
    counts = getattr(config, "adaptive_clipping", False)
    if config.bits is None:
        stddev, length = adversary.noise_multiplier(config), 1.0
        if case.stream_rounds > 1:
            length, stddev = adversary.stream_column(config)
        keep = getattr(config, "keep_fraction", 1.0)
        kept = rng.random((trials, block.size)) < keep
        seen = rng.normal(0, stddev / length, kept.shape) + block * kept * joins
        score = adversary.gaussian_ratio(seen, block, stddev / length, keep)
        if counts:
            votes = rng.normal(0, config.resolved_count_stddev, trials)
            score += adversary.count_ratio(config, votes - joins[:, 0] / 2)
        return adversary.sampled_score(score, q)
    stddev, shares = config.grid(case.dimension).local_stddev_steps, config.noise_shares
    is_skellam = isinstance(config, mechanisms.DistributedSkellam)
    canary = block * adversary.steps_to_clip(config, case.dimension)
    up = rng.random((trials, block.size)) < canary % 1
    shape = trials, block.size
    seen = simulators.integer_noise(rng, shape, shares, stddev, is_skellam)
    seen = seen + joins * (np.floor(canary).astype(int) + up)
    score = adversary.log_ratio(config, case.dimension, seen % 2**config.bits, block)
    if counts:
        stddev = config.local_count_stddev
        votes = simulators.integer_noise(rng, trials, shares, stddev, is_skellam)
        votes = votes - joins[:, 0]
        score = score + adversary.count_ratio(config, votes % 2**24)
    return adversary.sampled_score(score, q)


@pytest.mark.parametrize("name, index", DRAWN)
def test_distribution_matches_the_draws(name, index):
    case, rng, trials = of_name(name, index), np.random.default_rng(4), 40_000
    law = case.expected()
    for there, chances in ((True, law.present), (False, law.absent)):
        assert np.sum(chances) == pytest.approx(1)
        scores = draws(case, there, trials, rng)
        edges = law._scores()
        for level in (0.02, 0.3, 0.7, 0.98):
            # Halfway to the next class, where there is no chance.
            place = int(np.searchsorted(np.cumsum(chances), level))
            seen = np.mean(scores <= edges[place] + laws._STEP / 2)
            expected = np.sum(chances[: place + 1])
            assert abs(seen - expected) < 4.5 * np.sqrt(0.25 / trials)


# The claims of integer noise are the slow part.
@pytest.mark.parametrize("name", ["gaussian", "linf_csgm", "sgmf", "dome_ddg"])
def test_every_case_can_show_more_than_half(name):
    """Of the claim, with as many trials as the whole audit spends; never above it."""
    for case in cases.CASES[name]:
        law, epsilon = case.expected(), case.claim().epsilon
        assert 0.6 * epsilon < law.attainable(case.delta) < epsilon * (1 + 2e-3)
        trials = findings.enough_trials(law, epsilon, case.delta, 10_000)
        assert trials in (10_000, 20_000, 40_000, 80_000)
        expected = [
            law.threshold(name, trials, case.delta, findings._BY_DISTRIBUTION)[1]
            for name in lower_bounds.DIRECTIONS
        ]
        assert max(expected) > 0.52 * epsilon


def test_cohorts_with_silent_others_are_samples():
    """Whoever joins by chance, alone in the sum, is a Gaussian's sample."""
    for chosen in cohorts.participations():
        if "others silent" in cohorts.others(chosen):
            law = cohorts._expected(chosen, "others silent", True).distribution()
            claim = findings.tightest(
                mechanisms.Gaussian(10, 1.0, 1.0), chosen, 1, DELTA
            )
            assert law.attainable(DELTA) == pytest.approx(claim.epsilon, abs=4e-3)


def test_slot_rounds_are_claimed_as_samples():
    slots = mechanisms.RandomAllocation(11, 10, 1)
    claim = findings.tightest(mechanisms.Gaussian(10, 1.0, 1.0), slots, 1, DELTA)
    assert claim.accounting_method == "exact-gaussian"
    two = mechanisms.RandomAllocation(22, 10, 2)
    claim = findings.tightest(mechanisms.Gaussian(10, 1.0, 1.0), two, 1, DELTA)
    assert claim.accounting_method == "pld"


def test_three_tests_share_one_confidence():
    """Of equal laws with a claim of nothing, at most one in a hundred is above it."""
    law, rng = laws.gaussian([1.0], 1.0), np.random.default_rng(5)
    config = mechanisms.Gaussian(10, 1.0, 1.0)
    claim = findings.tightest(config, mechanisms.FixedSize(10, 10, 1), 1, 0.1)
    exact = law.attainable(0.1)
    found = []
    for _ in range(60):
        scores = rng.normal([[0.5], [-0.5]], 1.0, (2, 2000))
        found.append(findings.epsilon_finding(claim, 0.1, law, scores, **NAMED))
    assert sum(one.found > exact for one in found) <= 3
    assert all(one.attainable == pytest.approx(1, abs=5e-3) for one in found)
    shares = 3 - 2 * findings._BY_DISTRIBUTION - findings._BY_HALVES
    assert shares == pytest.approx(0.01)


def test_claims_below_the_exact_epsilon_are_unsound():
    law, nothing = laws.gaussian([1.0], 1.0), np.zeros((2, 100))
    exact = accounting.gaussian_epsilon(DELTA, 1.0)
    for epsilon, is_sound in ((0.95 * exact, False), (exact, True)):
        claim = accounting.PrivacyReport(
            epsilon, DELTA, "rdp", relation="add_or_remove"
        )
        found = findings.epsilon_finding(claim, DELTA, law, nothing, **NAMED)
        assert found.found == 0 and found.is_sound is is_sound


def test_only_small_trial_counts_grow():
    law = laws.gaussian([1.0], 1.0)
    claimed = accounting.gaussian_epsilon(DELTA, 1.0)
    assert findings.enough_trials(law, claimed, DELTA, 20_000) == 20_000
    assert findings.enough_trials(law, claimed, DELTA, 500) > 500
    assert findings.enough_trials(law, 10 * claimed, DELTA, 500) == 4000


def test_only_the_whole_audit_runs_more_trials():
    made = canaries.Canaries(of_name("gaussian", 2), 1)
    assert made.enough(100) == 800
