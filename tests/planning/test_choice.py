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
