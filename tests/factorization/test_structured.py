# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from dpfl.factorization import methods, optimal, structured
from dpfl.factorization.workloads import Workload


@pytest.fixture(scope="module")
def best():
    return optimal.factorize(Workload(64), rtol=1e-9)


def test_band_is_kept_and_the_rest_has_the_rank(best):
    found = structured.band_low_rank(best, 3, 2)
    decoder = found.decoder()
    inside = np.tri(64) - np.tri(64, k=-3)
    np.testing.assert_array_equal(decoder * inside, best.decoder() * inside)
    # Rows from 40 on, columns to 37 lie below the band.
    assert np.linalg.matrix_rank(decoder[40:, :38], tol=1e-10) == 2


def test_little_is_lost_at_logarithmic_width(best):
    assert structured.band_low_rank(best, 3, 3).loss < 1.005 * best.loss
    assert structured.band_low_rank(best, 4, 4).loss < 1.0005 * best.loss


def test_more_rank_or_band_fits_no_worse(best):
    below = np.tril(best.decoder(), -2)

    def residual(rank):
        u, v = structured.fit_low_rank(below, 2, rank)
        return np.sum((np.tril(u @ v.T, -2) - below) ** 2)

    values = [residual(rank) for rank in (1, 2, 3, 4)]
    assert all(b < 0.6 * a for a, b in zip(values, values[1:]))
    losses = [structured.band_low_rank(best, h, 2).loss for h in (1, 2, 4, 8, 64)]
    assert all(b <= a * (1 + 1e-9) for a, b in zip(losses, losses[1:]))
    assert losses[-1] == pytest.approx(best.loss)


def test_exact_low_rank_is_recovered():
    rng = np.random.default_rng(1)
    u, v = rng.normal(size=(30, 2)), rng.normal(size=(30, 2))
    below = np.tril(u @ v.T, -1)
    found = structured.fit_low_rank(below, 1, 2, penalty=1e-12, max_iterations=5000)
    fitted = np.tril(found[0] @ found[1].T, -1)
    assert np.linalg.norm(fitted - below) < 1e-3 * np.linalg.norm(below)


def test_rank_zero_is_the_band_alone(best):
    decoder = structured.band_low_rank(best, 2, 0).decoder()
    np.testing.assert_array_equal(decoder, np.triu(best.decoder(), -1))


def test_tree_cannot_be_structured():
    found = methods.compute(Workload(8), "honaker-full")
    with pytest.raises(ValueError, match="square lower-triangular decoder"):
        structured.band_low_rank(found, 1, 1)
