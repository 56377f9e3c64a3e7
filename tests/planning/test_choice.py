# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import re
from dataclasses import replace

import pytest

import dpfl
from dpfl import mechanisms, planning
from dpfl.planning import choice
from experiments import comparison
from tests.refusals import names, refuses

D = 2**20
DDG = mechanisms.DistributedDiscreteGaussian(100, 1.0, 1.0, "auto")
SKETCHED = mechanisms.SketchedDdg(100, 1.0, 1.0, 16, compression_rate="auto")
ONE_ROUND = mechanisms.FixedSize(1000, 100, 1)


class TestBits:
    def test_the_fewest_within_the_tolerance(self):
        found = planning.resolve(DDG, None, D)
        bits = found.mechanism.bits
        assert found.mechanism == replace(DDG, bits=bits)
        setting = choice.Setting(D)
        enough = choice.error_ratio(found.mechanism, setting)
        fewer = choice.error_ratio(replace(DDG, bits=bits - 1), setting)
        assert enough <= 1.02 < fewer
        (sentence,) = found.sentences
        assert sentence.startswith(f"bits {bits}: {enough:.3f} times the error of")

    def test_seven_bits_replace_sixteen(self):
        """n = 100, d = 2^20 at epsilon 8; more rounds take more noise."""
        assert planning.resolve(DDG, None, D, epsilon=8.0).mechanism.bits == 7

    def test_error_ratio_compares_two_calibrated_mechanisms(self):
        """By hand: epsilon of the integers, the Gaussian's noise for it, the errors."""
        config = replace(DDG, bits=6)
        gaussian, found = mechanisms.Gaussian(100, 1.0, 1.0), {}
        for accounting_method in ("rdp", "auto"):
            epsilon = planning.epsilon(config, None, D, 1e-5, accounting_method)
            plain = planning.calibrate(
                gaussian, None, D, epsilon, 1e-5, accounting_method
            )
            expected = config.mean_squared_error(D) / plain.mean_squared_error(D)
            setting = choice.Setting(D, accounting_method=accounting_method)
            found[accounting_method] = choice.error_ratio(config, setting)
            assert found[accounting_method] == pytest.approx(expected, rel=2e-3)
        assert found["rdp"] != pytest.approx(found["auto"], rel=2e-3)

    def test_choice_uses_the_accounting_method_of_the_report(self):
        """100 rounds, d = 650: losses take less noise, so that coarse grids show."""
        run = mechanisms.FixedSize(1000, 100, 100)
        bits = {
            accounting_method: planning.resolve(
                DDG, run, 650, epsilon=2.0, accounting_method=accounting_method
            )
            for accounting_method in ("rdp", "auto")
        }
        assert (bits["rdp"].mechanism.bits, bits["auto"].mechanism.bits) == (7, 8)

    def test_cells_with_a_loose_bound_are_avoided(self):
        """Sampled clients whose shares of noise are small against long coordinates.

        With 8 bits and 160 numbers nothing is proved of the rounding but what any
        integer vector costs, at the noise that is needed: more noise is asked for.
        """
        sampled = mechanisms.PoissonSampling(1000, 50, 60)
        helped = {"noise_source": "helpers", "compression_rate": 100.0}
        config = mechanisms.SketchedDdg(50, 1.0, 1.0, 8, **helped)
        noise = {}
        for bits in (8, 16):
            own = replace(config, bits=bits)
            found = planning.calibrate(own, sampled, 16_000, 8.0, 1e-3, "rdp")
            noise[bits] = found.noise_multiplier
        assert noise[8] > 1.5 * noise[16]
        left_open = replace(config, bits="auto")
        budget = {"epsilon": 8.0, "delta": 1e-3}
        chosen = planning.resolve(left_open, sampled, 16_000, **budget).mechanism
        assert chosen.bits > 8
        found = planning.calibrate(chosen, sampled, 16_000, 8.0, 1e-3, "rdp")
        assert found.noise_multiplier < 1.01 * noise[16]
        event = found.round_dp_event(16_000, 0.05)
        assert event.route(sampled=True) == "rounding"

    def test_dome(self):
        config = mechanisms.DomeDdg(20, 0.5, 2.0, 64, bits="auto")
        found = planning.resolve(config, None, 1000)
        assert 5 <= found.mechanism.bits <= 9
        assert found.mechanism.release.bits == found.mechanism.bits

    @pytest.mark.parametrize("config", [DDG, SKETCHED])
    def test_auto_bits_error_names_the_resolving_call(self, config):
        """The expression in its sentence, with the arguments of the call."""
        run = mechanisms.FixedSize(1000, 100, 10)
        with refuses(ValueError, "auto") as refused:
            dpfl.epsilon(config, run, D, 1e-5)
        way = re.search(r"dpfl\.resolve\(.*\)\.mechanism", str(refused.value)).group()
        for argument, value in (("epsilon", "8.0"), ("delta", "1e-5")):
            way = way.replace(f"{argument}=...", f"{argument}={value}")
        known = {"mechanism": config, "participation": run, "dimension": D}
        found = eval(way, {"dpfl": dpfl, **known})
        noised = dpfl.calibrate(found, run, D, 8.0, 1e-5)
        assert dpfl.epsilon(noised, run, D, 1e-5) == pytest.approx(8.0, rel=1e-3)
        # In one call.
        assert dpfl.calibrate(config, run, D, 8.0, 1e-5) == noised

    def test_unresolved_auto_bits_are_refused(self):
        with refuses(ValueError, "bits", "auto"):
            DDG.grid(D)
        with refuses(ValueError, "noise_multiplier", 0):
            planning.resolve(DDG.with_noise_multiplier(0.0), None, D)
        dome = replace(dpfl.TEST_CONFIGS["dome_ddg"], cohort_size=100, bits="auto")
        with refuses(ValueError, "participation", "poisson"):
            dpfl.calibrate(dome, dpfl.PoissonSampling(1000, 100, 5), D, 8.0, 1e-5)
        settled = replace(DDG, bits=9)
        assert planning.resolve(settled, None, D) == planning.ResolvedMechanism(settled)


class TestRate:
    def test_the_largest_within_the_tolerance(self):
        found = planning.resolve(SKETCHED, None, D).mechanism

        def ratio(rate):
            sketched = replace(SKETCHED, compression_rate=rate)
            plain = mechanisms.Gaussian(100, 1.0, 1.0).mean_squared_error(D)
            return 1.1**2 + sketched.compression_error(D) / plain

        rate = found.compression_rate
        assert ratio(rate) <= 1.5 < ratio(rate * 1.02)

    @pytest.mark.parametrize("dimension", [15_994, 50_001])
    def test_sketch_length_matches_the_rounded_rate(self, dimension):
        """The length is that of the rate with its three digits."""
        found = planning.resolve(SKETCHED.with_noise_multiplier(2.0), None, dimension)
        length = found.mechanism.shape(dimension).length
        assert names(found.sentences[0], length)

    @pytest.mark.parametrize("dimension", [500, 501, 1000, 3000, 10_000])
    def test_chosen_rate_is_reachable_by_the_sketch_rows(self, dimension):
        """Digits that were cut off asked for one more number a row, and a refusal."""
        plan = mechanisms.FixedSize(1200, 12, 3)
        for epsilon in (0.5, 2.0, 20.0):
            few = replace(SKETCHED, cohort_size=12)
            found = planning.resolve(few, plan, dimension, epsilon=epsilon).mechanism
            found.check(plan, dimension)

    def test_sketch_length_grows_with_squared_cohort_over_noise(self):
        """m of the order (n / z)^2: n^2 epsilon^2 (Chen et al. 2022)."""
        few = planning.resolve(SKETCHED, None, D).mechanism
        more = planning.resolve(SKETCHED.with_noise_multiplier(0.5), None, D).mechanism
        lengths = few.shape(D).length, more.shape(D).length
        assert lengths[1] / lengths[0] == pytest.approx(4, rel=0.15)
        # With so many clients there is none but one.
        many = replace(SKETCHED, cohort_size=10**5)
        assert planning.resolve(many, None, D).mechanism.compression_rate == 1

    def test_under_central_noise_and_with_bits(self):
        central = mechanisms.ProjectAndPerturb(100, 1.0, 1.0, compression_rate="auto")
        rate = planning.resolve(central, None, D).mechanism.compression_rate
        both = replace(SKETCHED, bits="auto")
        found = planning.resolve(both, None, D)
        assert found.mechanism.compression_rate == rate
        assert found.mechanism.bits == 8
        assert [s.split()[0] for s in found.sentences] == ["compression_rate", "bits"]

    @pytest.mark.parametrize(
        ("config", "other"),
        [
            (
                replace(SKETCHED, cohort_size=10**5, bits=20),
                "DistributedDiscreteGaussian",
            ),
            (dpfl.ProjectAndPerturb(10**5, 1, 1, compression_rate="auto"), "Gaussian"),
        ],
    )
    def test_a_calibration_says_if_no_sketch_is_worth_taking(
        self, config, other, caplog
    ):
        assert dpfl.calibrate(config, None, D, 8.0, 1e-5).compression_rate == 1
        assert names(caplog.text, "compression_rate", 1, f"dpfl.{other}")

    def test_auto_rate_has_no_shape(self):
        with refuses(ValueError, "compression_rate", "auto"):
            SKETCHED.shape(D)


class TestCurve:
    def test_points(self):
        config = replace(DDG, bits=16)
        csgm = mechanisms.L2Csgm(100, 1.0, 1.0, keep_fraction=0.1)
        assert comparison.widened(csgm, [7, 8]) == [csgm]
        found = [*comparison.widened(config, [3, 16, 7]), csgm]
        points = list(comparison.points(found, ONE_ROUND, D, 8.0, 1e-5))
        assert [mechanism for mechanism, _, _ in points] == found
        refused, seven, sixteen, sparse = points
        assert refused[1] is None and "bits must be at least" in refused[2]
        assert seven[1].bits_per_parameter == 7 and sparse[1].bits is None
        assert 1 < sixteen[1].error_over_gaussian < seven[1].error_over_gaussian < 1.02
        assert seven[1].epsilon <= 8


class TestIssue:
    """What few bits cost at n = 100, d = 2^20, z = 1."""

    def test_large_cohorts_are_accepted(self):
        config = mechanisms.DistributedDiscreteGaussian(10**5, 1.0, 1.0, 18)
        config.check_noise(10**6)
        event = config.round_dp_event(10**6, 1.0)
        # Shares of half a step, which cost in privacy what they lack in variance.
        assert 0.5 < event.local_stddev / event.granularity < 0.55
        assert event.rdp([2.0])[0] < 1.2
        error = config.mean_squared_error(10**6) / (10**6 * 1e-10)
        assert error * event.rdp([2.0])[0] < 1.5

    @pytest.mark.parametrize(
        ("cohort", "dimension", "bits"), [(100, D, 7), (10**6, 10**7, 22)]
    )
    def test_large_cohorts_are_calibrated_and_refused(self, cohort, dimension, bits):
        config = mechanisms.DistributedDiscreteGaussian(cohort, 1.0, 1.0, bits)
        z = choice.Setting(dimension).calibrated(config, 8.0).noise_multiplier
        few = replace(config, bits=4, noise_multiplier=z)
        with refuses(ValueError, "bits", 4):
            few.check_noise(dimension)

    def test_sampled_clients_need_no_more_noise_with_more_bits(self):
        """Between a grid of one step and one whose noise is all but Gaussian."""
        run = mechanisms.PoissonSampling(1000, 100, 48)
        noise = []
        helped = {"noise_source": "helpers", "compression_rate": 10}
        for bits in (7, 8, 9, 16):
            config = mechanisms.SketchedDdg(100, 1.0, 1.0, bits, **helped)
            found = choice.Setting(15_994, run, accounting_method="rdp").calibrated(
                config, 8.0
            )
            noise.append(found.noise_multiplier)
            grid = found.grid(15_994)
            assert grid.max_coordinate <= grid.granularity or bits > 8
        # Eight bits took 1.21 where seven took 0.98.
        assert noise == sorted(noise, reverse=True)
        assert noise[1] < 1.01 * noise[-1]

    def test_client_noise_uses_the_granularity_of_least_error(self):
        own = mechanisms.SketchedDdg(100, 1.0, 0.857, 8, compression_rate=10)
        helped = replace(own, noise_source="helpers")
        assert own.grid(15_994).granularity < helped.grid(15_994).granularity
        assert own.grid(15_994).max_coordinate > own.grid(15_994).granularity
