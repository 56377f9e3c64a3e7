# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What an audit computes from what it saw; the rounds are in tests/experiments."""

import math

import numpy as np
import pytest
from scipy import stats

from dpfl import accounting, mechanisms
from dpfl.accounting.integer import summed_noise
from dpfl.codecs import round_functions
from experiments.audits import adversary, cases, findings, noise, suite, sums


def test_chance_of_a_count():
    law = stats.binom(1000, 0.01)
    for count in (0, 3, 10, 17, 30):
        tail = min(law.cdf(count), law.sf(count - 1))
        chance = findings.count_chance(count, 1000, 0.01)
        assert chance == pytest.approx(min(1, 2 * tail))
    # Twelve draws beyond 5.7 are expected of a billion; none at all is no chance.
    assert findings.count_chance(0, 10**9, 1.2e-8) < 2e-5
    assert findings.count_chance(12, 10**9, 1.2e-8) > 0.9


def test_correlation_is_in_standard_deviations():
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(200, 100))
    found = [findings.correlation(one, noise[0]) for one in noise[1:]]
    assert 0.8 < np.std(found) < 1.2
    assert findings.correlation(noise[0], 3 * noise[0] + 1) == pytest.approx(10)
    assert findings.correlation(noise[0], np.zeros(100)) == 0


def test_verdicts_and_rows():
    below = findings.Finding("epsilon", "m", "s", True, claimed=2.0, found=1.0)
    assert (below.verdict, below.ratio) == ("below", 0.5)
    above = findings.Finding("epsilon", "m", "s", False, claimed=1.0, found=2.0)
    assert above.verdict == "ABOVE"
    failed = findings.Finding("masks", "m", "s", False, claimed=0.0, found=2.0)
    assert failed.verdict == "FAILED" and failed.ratio is None
    assert failed.row()["verdict"] == "FAILED" and "is_sound" not in failed.row()


def test_residues_of_least_size():
    found = adversary.centered(np.array([0, 7, 8, 15, 16, 33]), 4)
    np.testing.assert_array_equal(found, [0, 7, -8, -1, 0, 1])


@pytest.mark.parametrize("size", [0.3, 1.0, 2.75])
@pytest.mark.parametrize(
    "kind", [mechanisms.DistributedDiscreteGaussian, mechanisms.DistributedSkellam]
)
def test_ratio_of_a_rounded_canary_has_mean_one(kind, size):
    """Where the canary is not there: the sum of Q P/Q is that of P."""
    mechanism = kind(4, 1.0, 1.0, 5)
    step = mechanism.grid(4).granularity
    opened = np.arange(-15, 16)
    block = [size * step]
    ratio = adversary.log_ratio(mechanism, 4, opened[:, np.newaxis] % 32, block)
    shares, stddev = mechanism.noise_shares, mechanism.grid(4).local_stddev_steps
    if kind is mechanisms.DistributedDiscreteGaussian:
        law = summed_noise.DiscreteGaussianNoise(shares, stddev).log_pmf_at(opened)
    else:
        half = shares * stddev**2 / 2
        law = stats.skellam.logpmf(opened, half, half)
    with_canary = np.exp(law + ratio)
    assert np.sum(with_canary) == pytest.approx(1, abs=1e-6)
    assert np.sum(with_canary * opened) == pytest.approx(size, abs=1e-4)


def test_tails_of_a_law():
    normal = noise.Source("m", None, 1.0, 1000.0)
    for size in (3, 5, 6.5):
        expected = 2 * stats.norm.sf((1000 * size - 0.5) / 1000)
        assert normal.tail(round(1000 * size)) == pytest.approx(expected)
    coarse = noise.Source(
        "m", None, 1.0, 2.0, summed_noise.DiscreteGaussianNoise(1, 2).log_pmf_at
    )
    weights = np.exp(-(np.arange(-60, 61) ** 2) / 8.0)
    beyond = weights[np.abs(np.arange(-60, 61)) >= 7].sum() / weights.sum()
    assert coarse.tail(7) == pytest.approx(beyond)
    assert not math.isclose(normal.tail(7), beyond)


class TestClaims:
    """The least epsilon that is proven, and its accounting method."""

    POPULATION = mechanisms.PoissonSampling(8, 4, 1)

    def test_is_the_least_of_all_methods(self):
        masked = mechanisms.L2Csgm(4, 1.0, 0.6, keep_fraction=0.5, linf_ratio=0.25)
        claim = findings.tightest(masked, mechanisms.FixedSize(4, 4, 1), 64, 1e-2)
        event = masked.dp_event(mechanisms.FixedSize(4, 4, 1), 64)
        by_rdp = accounting.epsilon(event, 1e-2, accounting_method="rdp")
        assert (
            claim.accounting_method == "stopped-exact-gaussian"
            and by_rdp.accounting_method == "rdp"
        )
        assert claim.epsilon < by_rdp.epsilon
        assert claim.relation == by_rdp.relation == "replaced_by_zeros"
        shares = mechanisms.DistributedSkellam(4, 1.0, 1.0, 16)
        claim = findings.tightest(shares, mechanisms.FixedSize(4, 4, 1), 8, 1e-2)
        assert claim.accounting_method == "stopped-exact-gaussian"

    def test_one_coordinate_is_a_sampled_gaussian(self):
        """By integration: kept and joined with 0.35 / 2, at 0.9 / (0.35 0.8)."""
        masked = mechanisms.LinfCsgm(4, 1.0, 0.8, keep_fraction=0.35, linf_ratio=0.9)
        claim = findings.tightest(masked, self.POPULATION, 1, 1e-2)
        assert claim.accounting_method == "one-coordinate exact-gaussian"
        assert claim.relation == "add_or_remove"
        shift, joins = 0.9 / (0.35 * 0.8), 0.35 / 2
        x = np.linspace(-12, 12 + shift, 2_000_001)
        absent = stats.norm.pdf(x)
        present = (1 - joins) * absent + joins * stats.norm.pdf(x - shift)
        for one, other in ((present, absent), (absent, present)):
            over = np.maximum(one - np.exp(claim.epsilon) * other, 0)
            delta = np.sum(over) * (x[1] - x[0])
            assert delta <= 1e-2 * (1 + 1e-6)
        over = np.maximum(present - np.exp(claim.epsilon) * absent, 0)
        assert np.sum(over) * (x[1] - x[0]) == pytest.approx(1e-2, rel=1e-3)

    def test_two_coordinates_are_not(self):
        masked = mechanisms.LinfCsgm(4, 1.0, 0.8, keep_fraction=0.35, linf_ratio=0.9)
        claim = findings.tightest(masked, self.POPULATION, 2, 1e-2)
        assert not claim.accounting_method.startswith(findings.ONE_COORDINATE)


class TestMeasured:
    @pytest.mark.parametrize("name", sorted(cases.CASES))
    def test_measurements_follow_from_the_release_or_are_marked(self, name):
        found = list(sums.measured(suite._wide(name)))
        assert [one.setting for one in found if not one.is_sound] == []
        settings = {one.setting for one in found}
        is_secure = mechanisms.MECHANISMS[name].sums_securely
        assert "downlink_bits" in settings
        assert ("exact_mean_update_norm" in settings) == (not is_secure)
        assert ("TFF's check" in settings) == is_secure

    def test_client_influence_is_detected(self, monkeypatch):
        mechanism = suite._wide("distributed_discrete_gaussian")
        # As if nobody had asked for less, which is None.
        monkeypatch.setattr(round_functions, "EXACT_FOR_SIMULATION", None)
        found = {one.setting: one for one in sums.measured(mechanism)}
        for name in ("exact_mean_update_norm", "exact_l2_clipped_fraction"):
            assert not found[name].is_sound and found[name].found > 0
        assert not found["TFF's check"].is_sound
        assert found["noise_stddev"].is_sound
