# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from dpfl import mechanisms, planning
from experiments.papers import mean_estimation, sweep
from experiments.papers.chen2022 import bits as bits_lib
from experiments.papers.chen2022 import mean

DELTA = mean_estimation.DELTA


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_every_series_can_be_calibrated(scale):
    n, dimension, *_ = mean.SIZES[scale]
    for bits in mean.BITS[scale]:
        config = mechanisms.DistributedDiscreteGaussian(n, 1.0, 1.0, bits)
        noised = planning.calibrate(config, None, dimension, mean.EPSILON, DELTA)
        noised.check_noise(dimension)
    n, dimension, _, sparsities = mean.SPARSE_SIZES[scale]
    for sparsity in sparsities:
        recovery, sketched = (
            mean.sparse_config(name, n, dimension, sparsity)
            for name in ("sparse_recovery", "sketched_ddg")
        )
        length = recovery.vector_dimension(dimension)
        assert 0 <= sketched.vector_dimension(dimension) - length < 16


def test_curves_are_found_in_the_table():
    rows = [
        {**{k: str(v) for k, v in work.labels.items()}, "error_ratio": "2.0"}
        for work in bits_lib.grid(sweep.Setting("small"))
    ]
    for epsilon in bits_lib.EPSILONS:
        found = bits_lib.ratios_of(rows, bits_lib.SIZE, epsilon, "published")
        assert list(found) == list(bits_lib.RANGE["small"])
