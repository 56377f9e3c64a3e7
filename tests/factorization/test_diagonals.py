# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from dpfl import factorization as fact
from dpfl.factorization import factorization


@pytest.mark.parametrize("kind", ["toeplitz", "banded"])
def test_columns_as_far_as_they_are_released(kind):
    rng = np.random.default_rng(3)
    factors = fact.ToeplitzFactors(np.array([*(1, 0.5, 0.7), *(0,) * 6]))
    if kind == "banded":
        factors = fact.BandedFactors(rng.uniform(0.1, 1, (9, 3)))
    found = fact.Factorization(
        workload=fact.prefix_sum(9), method=kind, params={}, factors=factors
    )
    encoder = found.encoder()
    for rounds in range(1, 10):
        for first in range(rounds):
            norms = np.linalg.norm(encoder[:rounds, first:rounds], axis=0)
            longest = factorization.longest_column(found, rounds, first)
            assert longest == pytest.approx(max(norms), rel=1e-12)
        released = found.sensitivity(rounds=rounds).value
        longest = factorization.longest_column(found, rounds)
        assert longest == pytest.approx(released, rel=1e-12)


def test_many_diagonals_of_few_rounds_are_a_dense_matrix():
    few, many = np.zeros(1100), np.zeros(2048)
    few[:200], many[:200] = 1, 1
    for column, kept in ((few, None), (many, 199)):
        found = fact.Factorization(
            workload=fact.prefix_sum(len(column)),
            method="toeplitz",
            params={},
            factors=fact.ToeplitzFactors(column),
        )
        assert factorization.kept_rows(found) == kept
