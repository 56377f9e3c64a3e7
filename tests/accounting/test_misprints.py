# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What docs/privacy/misprints.md lists, by numbers: as printed, and corrected."""

import math

import numpy as np
import pytest
from scipy import special

from dpfl import accounting, mechanisms
from dpfl.accounting import csgm
from experiments.papers import published_bounds
from tests.accounting.quadrature import log_moment


def printed_sum(order, keep, start, exponent):
    """The closed term beside a sum from `start`, as equations (3), (4), (7) have it."""
    closed = (1 - keep) ** (order - 1) * (keep * (order - 1) + 1)
    return closed + sum(
        math.comb(order, l)
        * (1 - keep) ** (order - l)
        * keep**l
        * math.exp(exponent(l))
        for l in range(start, order + 1)
    )


def quadrature(order, keep, shift):
    """log E_Q[((1-g) + g w)^order] for one coordinate."""
    return log_moment([shift], keep, 1.0, order, step=0.02)


def test_sum_from_1_counts_a_term_twice():
    # With no signal the log-moment must be 0; as printed it is log(1 + 0.4116).
    printed = printed_sum(4, 0.3, 1, lambda l: 0.0)
    assert printed == pytest.approx(1.4116, abs=1e-4)
    assert printed_sum(4, 0.3, 2, lambda l: 0.0) == pytest.approx(1.0)
    corrected = printed_sum(4, 0.3, 2, lambda l: l * (l - 1) * 0.8**2 / 2)
    assert math.log(corrected) == pytest.approx(quadrature(4, 0.3, 0.8))


def test_exponent_of_equation_3():
    # K = 100 coordinates, stddev 1 and Delta2 = 1: printed with l (l-1) l Delta2^2.
    order, keep, k = 4, 0.3, 100
    f = csgm.l2_log_moment([order], keep, 1.0 / k, k)[0]
    worst = k * quadrature(order, keep, k**-0.5)
    assert f == pytest.approx(worst, rel=1e-9)
    printed = k * math.log(printed_sum(order, keep, 2, lambda l: l * l * (l - 1) / 2))
    assert worst == pytest.approx(0.5448, abs=1e-4)
    assert printed == pytest.approx(1919, abs=1)
    # Without the third l, still Delta2 where DeltaInf belongs.
    printed = k * math.log(printed_sum(order, keep, 2, lambda l: l * (l - 1) / 2))
    assert printed == pytest.approx(181.8, abs=0.1)


def test_exponent_of_equation_7():
    # Printed (l - 1) alpha instead of (l - 1) l.
    order, keep = 4, 0.3
    printed = math.log(printed_sum(order, keep, 2, lambda l: (l - 1) * order / 2))
    assert printed > 1.25 * quadrature(order, keep, 1.0)


def test_lemma_5_2_adds_the_factors_of_its_closed_term():
    # (1-g)^(a-1) + (g (a-1) + 1) where a product belongs: 0.343 + 1.9, not 0.343 * 1.9.
    order, keep = 4, 0.3
    added = (1 - keep) ** (order - 1) + (keep * (order - 1) + 1)
    product = (1 - keep) ** (order - 1) * (keep * (order - 1) + 1)
    assert added == pytest.approx(2.243, abs=1e-3)
    first_two = (1 - keep) ** order + order * keep * (1 - keep) ** (order - 1)
    assert product == pytest.approx(first_two)


def test_formula_is_no_bound_between_integers():
    # Fractional orders in the formula, the binomials continued, cut off at ceil: at
    # order 1.5 it is below the truth; Theorem 5.1 says 'for any order at least 1'.
    order, keep, shift = 1.5, 0.5, 1.5
    continued = sum(
        special.binom(order, l)
        * (1 - keep) ** (order - l)
        * keep**l
        * math.exp(l * (l - 1) * shift**2 / 2)
        for l in range(0, 2)
    )
    truth = quadrature(order, keep, shift)
    assert math.log(continued) < 0 < truth
    chord = 0.5 * csgm.coordinate_log_moment([2], keep, shift**2)[0]
    assert truth < chord


def test_noise_multiplier_of_fig_1_is_over_the_kept_fraction():
    # sigma / Delta2, as the caption has it, would be a hundredth of the Gaussian's.
    event = accounting.SparsifiedGaussianDpEvent(1.1952, 0.01, 1e-4, 2**40)
    report = accounting.epsilon(event, 1e-8, accounting_method="rdp")
    assert report.epsilon == pytest.approx(5.0, abs=1e-3)


def test_error_of_the_mean_scales_with_the_dimension():
    rng = np.random.default_rng(3)
    dim, n, keep, stddev, trials = 256, 4, 0.25, 0.1, 4000
    updates = rng.normal(size=(n, dim))
    updates /= np.linalg.norm(updates, axis=1, keepdims=True)
    masks = rng.random((trials, n, dim)) < keep
    sums = (masks * updates).sum(axis=1) + rng.normal(0, stddev, (trials, dim))
    errors = sums / (n * keep) - updates.mean(axis=0)
    measured = np.mean(np.sum(errors**2, axis=1))
    mechanism = mechanisms.L2Csgm(
        cohort_size=n, clip_norm=1.0, keep_fraction=keep, noise_multiplier=stddev / keep
    )
    exact = dim * stddev**2 / (n * keep) ** 2 + (1 - keep) / keep / n
    assert mechanism.mean_squared_error(dim) == pytest.approx(exact)
    assert measured == pytest.approx(exact, rel=0.02)
    corollary_4_2 = stddev**2 / (n * keep) ** 2 + 1 / (n * keep)
    assert measured > 3 * corollary_4_2


def test_lemma_4_3_is_twice_the_gaussians_divergence():
    # D_a(N(1, s^2) || N(0, s^2)) = a / (2 s^2), by quadrature.
    order, stddev = 3, 2.0
    assert quadrature(order, 1.0, 1 / stddev) / (order - 1) == pytest.approx(
        order / (2 * stddev**2)
    )


def test_lemma_4_3_at_equal_error():
    dim, n, keep, stddev, clip = 256, 10, 0.1, 0.05, 2.0
    sparse = mechanisms.L2Csgm(n, clip, stddev / (keep * clip), keep)
    sparse = sparse.mean_squared_error(dim)

    def gaussian(variance):
        config = mechanisms.Gaussian(n, clip, variance**0.5 / clip)
        return config.mean_squared_error(dim)

    corrected = stddev**2 / keep**2 + n * (1 - keep) * clip**2 / (keep * dim)
    assert gaussian(corrected) == pytest.approx(sparse)
    assert gaussian(stddev**2 / keep**2 + n * clip**2 / keep) > 100 * sparse


def test_theorem_e_1_must_not_depend_on_the_unit():
    n, dim, sigma, grid, l2 = 100, 64, 3.0, 1.0, 10.0

    def printed(unit):
        tau = published_bounds.tau(n, sigma / grid)
        first = math.sqrt((l2 / sigma) ** 2 / n + tau * dim / 2)
        return min(first, l2 * unit / math.sqrt(n * sigma * unit) + tau * dim**0.5)

    def corrected(unit):
        return published_bounds.epsilon(
            (l2 * unit) ** 2, dim, n, sigma * unit, grid * unit
        )

    assert corrected(0.01) == pytest.approx(corrected(1.0))
    assert corrected(1.0) == pytest.approx(l2 / (n**0.5 * sigma), rel=1e-6)
    assert printed(0.01) < 0.5 * printed(1.0)


def test_dome_subtracts_the_variance_of_a_mean():
    rng = np.random.default_rng(6)
    dim, k, clients, stddev, trials = 6, 3, 5, 0.7, 20000
    sketch, _ = np.linalg.qr(rng.normal(size=(dim, k)))
    later, _ = np.linalg.qr(rng.normal(size=(dim, k)))
    noise = rng.normal(0, stddev, (trials, clients, k)).mean(axis=1) @ sketch.T
    excess = np.mean(noise**2, axis=0)
    exact = stddev**2 / clients * np.diag(sketch @ sketch.T)
    np.testing.assert_allclose(excess, exact, rtol=0.05)
    assert not np.allclose(stddev**2 * np.diag(sketch @ sketch.T), exact, rtol=0.5)
    off_by_one = stddev**2 / clients * np.diag(later @ later.T)
    assert not np.allclose(off_by_one, exact, rtol=0.2)
