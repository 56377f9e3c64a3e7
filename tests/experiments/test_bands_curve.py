# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The curve of bands: its two ends, and what lies between and beside them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpfl import accounting, mechanisms, planning
from dpfl import factorization as mf
from experiments import bands_curve
from experiments.bands_curve import StreamRun
from tests.refusals import refuses

D = 1018174
SMALL = StreamRun(mf.prefix_sum(48), 240, 20, 4.0, 1e-5, accounting_method="rdp")


def sparse(noise_multiplier):
    ratio = mechanisms.default_linf_ratio(D, 100)
    return accounting.SparsifiedGaussianDpEvent(noise_multiplier, 0.01, ratio, 2**20)


def calibrated(mechanism, participation, run):
    budget = run.epsilon, run.delta, run.accounting_method
    return planning.calibrate(mechanism, participation, D, *budget).noise_multiplier


class TestEnds:
    def test_one_band_is_poisson_sampling(self):
        found = bands_curve.point(SMALL, 1)
        poisson = mechanisms.PoissonSampling(240, 20, 48)
        noise = calibrated(mechanisms.Gaussian(20, 1.0, 1.0), poisson, SMALL)
        assert found.noise_multiplier == pytest.approx(noise, rel=1e-12)
        # Sums of 1, ..., 48 independent terms.
        assert found.root_mean_error == pytest.approx(noise * math.sqrt(49 / 2))
        assert found.last_error == pytest.approx(noise * math.sqrt(48))
        assert (found.sampling_probability, found.participations) == (1 / 12, 48)

    def test_everybody_every_epoch_is_the_stream_without_sampling(self):
        found = bands_curve.point(SMALL, 12)
        stream = mechanisms.MatrixFactorization(12, 20, 1.0, 1.0)
        noise = calibrated(stream, mechanisms.OncePerEpoch(240, 20, 48), SMALL)
        assert found.noise_multiplier == pytest.approx(noise, rel=1e-12)
        assert (found.sampling_probability, found.participations) == (1, 4)
        alone = replace(SMALL, participation="once_per_epoch")
        assert bands_curve.point(alone, 12) == found


@pytest.mark.parametrize("rounds", [48, 46])
def test_noise_and_error_match_the_mechanism(rounds):
    """In 46 rounds the last of a client is where columns are cut off."""
    run = replace(SMALL, workload=mf.prefix_sum(rounds))
    found = bands_curve.point(run, 4)
    bands = {"matrix_method": "toeplitz", "matrix_bands": 4}
    stream = mechanisms.MatrixFactorization(
        *(None, 20, 1.0, 1.0), **bands, noise_stream="run", rounds=rounds
    )
    groups = mechanisms.CyclicPoisson(240, 20, rounds, min_separation=4)
    noise = calibrated(stream, groups, run)
    assert found.noise_multiplier == pytest.approx(noise, rel=1e-12)
    rows = stream.factorization.factors.row_norms_squared(run.workload)
    stddev = stream.with_noise_multiplier(noise).stddev
    assert found.last_error == pytest.approx(stddev * math.sqrt(rows[-1]))


def test_one_participation_uses_the_optimal_factorization():
    run = replace(SMALL, workload=mf.prefix_sum(8))
    found = bands_curve.point(run, 12)
    assert (found.bands, found.separation, found.encoder) == (8, 12, "optimal")
    assert found.participations == 1


def test_unsampled_participations_are_epochs_and_prefer_more_bands():
    run = replace(SMALL, participation="once_per_epoch")
    points = [bands_curve.point(run, bands) for bands in (1, 3, 12)]
    assert [one.participations for one in points] == [4, 4, 4]
    errors = [one.root_mean_error for one in points]
    assert errors == sorted(errors, reverse=True)
    assert bands_curve.best(points) == points[-1]


class TestRestarting:
    def test_errors_of_sums_over_epochs(self):
        """B of a run that restarts, written out: blocks of B, and last rows below."""
        run = replace(SMALL, workload=mf.prefix_sum(30))
        found = bands_curve.restarting(run)
        decoder = mf.compute(mf.prefix_sum(12), "optimal").decoder()
        whole = np.zeros((30, 36))
        for t in range(30):
            for epoch in range(t // 12):
                whole[t, 12 * epoch : 12 * epoch + 12] = decoder[-1]
            start = t // 12 * 12
            whole[t, start : start + 12] = decoder[t - start]
        errors = found.noise_multiplier * np.linalg.norm(whole, axis=1)
        assert found.last_error == pytest.approx(errors[-1], rel=1e-6)
        rms = math.sqrt(np.mean(errors**2))
        assert found.root_mean_error == pytest.approx(rms, rel=1e-6)

    def test_noise_matches_the_mechanism(self):
        run = replace(SMALL, workload=mf.prefix_sum(30))
        stream = mechanisms.MatrixFactorization(12, 20, 1.0, 1.0)
        noise = calibrated(stream, mechanisms.OncePerEpoch(240, 20, 30), run)
        assert bands_curve.restarting(run).noise_multiplier == pytest.approx(noise)

    def test_only_prefix_sum_workloads_are_supported(self):
        run = replace(SMALL, workload=mf.Workload(48, 0.9))
        with refuses(ValueError, "workload"):
            bands_curve.restarting(run)


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda: bands_curve.point(SMALL, 13), ("bands", 13)),
        (lambda: replace(SMALL, cohort_size=241), ("cohort_size", 241)),
        (lambda: replace(SMALL, encoder="blt"), ("encoder", "blt")),
    ],
)
def test_refusals(call, parts):
    with refuses(ValueError, *parts):
        call()


class TestHidden:
    RUN = StreamRun(mf.prefix_sum(6), 40, 10, 4.0, 1e-2)

    @pytest.mark.parametrize(
        "kind", [mechanisms.BallsInBins, mechanisms.BMinSeparation]
    )
    def test_noise_matches_the_mechanism(self, kind):
        run = replace(self.RUN, participation=kind.name)
        found = bands_curve.point(run, 2)
        stream = mechanisms.MatrixFactorization(
            *(None, 10, 1.0, found.noise_multiplier),
            **{"noise_stream": "run", "rounds": 6, "matrix_method": "toeplitz"},
            matrix_bands=2,
        )
        separation = 4 if kind is mechanisms.BallsInBins else 2
        chosen = kind(40, 10, 6, separation)
        cost = planning.epsilon(stream, chosen, D, run.delta)
        assert 0.999 * run.epsilon < cost <= run.epsilon
        assert (found.bands, found.separation) == (2, separation)
        open_to_all = bands_curve.point(self.RUN, 2)
        assert found.root_mean_error != open_to_all.root_mean_error

    def test_non_gaussian_releases_are_refused(self):
        with refuses(ValueError, "release", "GaussianDpEvent"):
            replace(self.RUN, release=sparse, participation="balls_in_bins")
