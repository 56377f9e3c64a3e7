# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math
import subprocess
import sys
from pathlib import Path

import pytest

from dpfl import mechanisms
from experiments import figures, figures_mean
from experiments import figures_secagg_exact as exact

ROOT = Path(__file__).resolve().parents[2]


def run(code):
    """Standard output of a process of its own: TensorFlow stays out of this one."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_errors_are_the_theory_s_and_no_two_seeds_are_one():
    """Within 10% over 50 draws, with enough compression for its part to count."""
    lines = run("""
import numpy as np
import tensorflow as tf
from dpfl import mechanisms
from experiments import figures_mean, figures_secagg_exact as exact
d, n = 512, 10
for config, kind in (
    (mechanisms.SketchedDdg(n, 1.0, 0.05, 12, compression_rate=5.0), "similar"),
    (
        mechanisms.SketchedDdg(n, 1.0, 0.3, 10, compression_rate=5.0, sketch="hashes"),
        "independent",
    ),
    (mechanisms.ProjectAndPerturb(n, 1.0, 0.1, 5.0), "similar"),
    (mechanisms.DistributedDiscreteGaussian(n, 1.0, 0.5, 10), "independent"),
):
    vectors, product = exact.VECTORS[kind]
    errors = figures_mean.measured_errors(config, d, 50, vectors)
    print(errors.mean() / exact.mean_theory(config, d, product))

seeds = []
def recorded(seed):
    seeds.append(tuple(seed))
    return np.ones(4, np.float32)
def vectors(dimension):
    return lambda seed: tf.ensure_shape(
        tf.numpy_function(recorded, [seed], tf.float32), [dimension]
    )
figures_mean.measured_errors(mechanisms.Gaussian(n, 1.0, 1.0), 4, 20, vectors)
print(len(seeds))
print(len(set(seeds)))
""")
    *ratios, clients, distinct = map(float, lines)
    assert len(ratios) == 4
    for ratio in ratios:
        assert ratio == pytest.approx(1, abs=0.1)
    assert clients == distinct == 200


def test_theory_of_equal_vectors_is_the_configuration_s():
    config = mechanisms.SketchedDdg(10, 1.0, 0.5, 12, compression_rate=5.0)
    assert exact.mean_theory(config, 512, 1.0) == config.mean_squared_error(512)
    other = config.mean_squared_error(512) - exact.mean_theory(config, 512, 0.0)
    assert other == pytest.approx(0.9 * config.shape(512).error)


@pytest.mark.parametrize("scale", figures.SCALES)
def test_every_series_can_be_calibrated(scale):
    n, dimension, *_ = exact.MEAN_SIZES[scale]
    for bits in exact.MEAN_BITS[scale]:
        config = mechanisms.DistributedDiscreteGaussian(n, 1.0, 1.0, bits)
        noised = figures_mean.calibrated(
            config, dimension, exact.MEAN_EPSILON, exact.DELTA
        )
        noised.check_noise(dimension)
    n, dimension, _, sparsities = exact.SPARSE_SIZES[scale]
    for sparsity in sparsities:
        recovery, sketched = (
            exact.sparse_config(name, n, dimension, sparsity)
            for name in ("sparse_recovery", "sketched_ddg")
        )
        length = recovery.vector_dimension(dimension)
        assert 0 <= sketched.vector_dimension(dimension) - length < 16


def test_the_exact_accountant_saves_bits_where_noise_is_about_a_step():
    exact_error, published = (
        exact.error_ratio(1000, 1000, 8.0, 12, bound)
        for bound in ("exact", "published")
    )
    assert 1 < exact_error < published / 2
    # Nothing is left to save where the error is that of the Gaussian.
    many = [exact.error_ratio(100, 1000, 8.0, 16, b) for b in ("exact", "published")]
    assert many[0] == pytest.approx(many[1], rel=1e-6)
    assert many[0] == pytest.approx(1, abs=0.01)
    assert exact.error_ratio(1000, 1000, 8.0, 6, "exact") == math.inf


def test_least_bits_are_between_those_that_are_too_few_and_enough():
    ratios = {8: math.inf, 9: 16.0, 10: 4.0, 11: 1.0}
    assert exact.least_bits(ratios, 8.0) == pytest.approx(9.5)
    assert exact.least_bits(ratios, 4.0) == 10
    assert exact.least_bits(ratios, 20.0) == 9
    assert math.isnan(exact.least_bits(ratios, 0.5))


def test_curves_are_found_in_the_table():
    setting = figures.Setting("small")
    bits = next(f for f in exact.FIGURES if f.name == "secagg_bits").grid(setting)
    rows = [
        {**{k: str(v) for k, v in work.labels.items()}, "error_ratio": "2.0"}
        for work in bits
    ]
    for epsilon in exact.BITS_EPSILONS:
        found = exact.ratios_of(rows, exact.BITS_SIZE, epsilon, "published")
        assert list(found) == list(exact.BITS_RANGE["small"])
    assert len({work.key for work in bits}) == len(bits)
