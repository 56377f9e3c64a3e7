# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The noise of a round's mean has the variance that is reported, in each library."""

import dataclasses

import numpy as np
import pytest
import scipy.stats

import dpfl
from dpfl import arrays
from tests.arrays import libraries

# Five deviations of the estimated variance are 5.5% of it.
DIMENSION = 1 << 14
# Others decode to noise that is not white, or to none; theirs is drawn as one of these.
CHANGES = {
    "gaussian": {},
    "l2_csgm": {},
    "linf_csgm": {},
    "distributed_discrete_gaussian": {},
    "distributed_skellam": {},
    # An orthogonal matrix.
    "sketched_ddg": {"compression_rate": 1.0},
    "project_and_perturb": {"compression_rate": 1.0},
    "matrix_factorization": {},
    "sgmf": {},
}
# JAX compiles each for seconds, and the digests of all are numpy's: a mean's noise of
# each kind.
IN_JAX = ("gaussian", "distributed_skellam", "matrix_factorization")
CASES = [("numpy", name) for name in CHANGES]
if not libraries.HAS_TENSORFLOW:
    CASES += [("jax", name) for name in IN_JAX]


@pytest.mark.parametrize(("library", "name"), CASES)
def test_noise_is_normal_and_as_large_as_reported(library, name):
    config = dataclasses.replace(dpfl.TEST_CONFIGS[name], **CHANGES[name])
    zeros = np.zeros([config.cohort_size, DIMENSION], np.float32)
    with libraries.wide(library):
        rounds = libraries.Rounds(config, zeros, arrays.named(library))
        decoded = rounds.run("eager").decoded
    noise = decoded.mean / decoded.measurements["noise_stddev"]
    assert noise.shape == (DIMENSION,)
    assert noise.var() == pytest.approx(1, rel=0.05)
    assert abs(noise.mean()) < 4.5 / np.sqrt(DIMENSION)
    assert abs(np.mean(noise[1:] * noise[:-1])) < 4.5 / np.sqrt(DIMENSION)
    assert scipy.stats.kstest(noise, "norm").pvalue > 1e-3
