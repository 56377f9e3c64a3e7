# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The matrix factorization event, and the sensitivity that its noise multiplier means."""

import math

import dp_accounting
import numpy as np
import pytest

from dpfl import accounting

ORDERS = np.array([1.5, 2, 8, 64.5])


def test_is_one_gaussian_mechanism():
    event = accounting.MatrixFactorizationDpEvent(0.7)
    np.testing.assert_allclose(event.rdp(ORDERS), ORDERS / (2 * 0.49), rtol=1e-14)
    assert event.as_gaussian() == dp_accounting.GaussianDpEvent(0.7)


def test_equals_the_whole_streams_divergence():
    """Releasing C G + Z is a Gaussian with C[:, j] x as the difference of means."""
    rng = np.random.default_rng(1)
    c = np.tril(rng.normal(size=(5, 5)))
    stddev, clip = 1.3, 0.4
    sensitivity = clip * np.linalg.norm(c, axis=0).max()
    bound = accounting.MatrixFactorizationDpEvent(stddev / sensitivity).rdp([3.0])[0]
    divergences = []
    for j in range(5):
        x = rng.normal(size=7)
        x *= clip / np.linalg.norm(x)
        difference = np.outer(c[:, j], x)
        divergences.append(3.0 * np.sum(difference**2) / (2 * stddev**2))
    assert max(divergences) == pytest.approx(bound)


def test_epochs_compose():
    one = accounting.MatrixFactorizationDpEvent(4.0)
    sixteen = dp_accounting.SelfComposedDpEvent(one, 16)
    for method in ("rdp", "tight"):
        got, want = (
            accounting.epsilon(event, 1e-5, method=method).epsilon
            for event in (sixteen, dp_accounting.GaussianDpEvent(1.0))
        )
        assert got == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize("z", [0.0, 1e-200])
def test_no_noise_no_privacy(z):
    with np.errstate(all="raise"):
        assert np.all(accounting.MatrixFactorizationDpEvent(z).rdp(ORDERS) == np.inf)


@pytest.mark.parametrize("z", [-1.0, math.nan, math.inf, True, "1", None])
def test_bad_noise_is_refused(z):
    with pytest.raises((TypeError, ValueError), match="^noise_multiplier must"):
        accounting.MatrixFactorizationDpEvent(z)
