# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from dpfl import factorization, mechanisms
from dpfl.mechanisms import matrix_factorization

NUMBERS = {"cohort_size": 4, "clip_norm": 1.0, "noise_multiplier": 1.0}


def configured(**fields):
    return matrix_factorization.MatrixFactorization(
        rounds_per_epoch=4, **NUMBERS, **fields
    )


def test_digest_follows_the_files_contents(tmp_path):
    path, digests = tmp_path / "matrix.npz", set()
    for method in ("honaker-full", "identity"):
        workload = factorization.prefix_sum(4)
        factorization.save(factorization.compute(workload, method), path)
        digests.add(configured(matrix_file=str(path)).file_digest)
    assert len(digests) == 2
    assert configured().file_digest is None


def test_momentum_twice_is_refused():
    twice = configured(matrix_momentum=0.9)
    with pytest.raises(ValueError, match="server_optimizer"):
        twice.check_server_optimizer("sgd", 0.9)
    with pytest.raises(ValueError, match="server_optimizer"):
        twice.check_server_optimizer("adam", None)
    twice.check_server_optimizer("sgd", 0.0)
    configured().check_server_optimizer("sgd", 0.9)
    mechanisms.Gaussian(**NUMBERS).check_server_optimizer("adam", 0.9)
