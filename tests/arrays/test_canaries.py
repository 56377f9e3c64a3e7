# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A canary's update is a function of its key, the same in each library."""

import numpy as np
import pytest

from dpfl import arrays
from dpfl.training import selection
from dpfl.vectors import canaries
from tests.arrays import libraries

KEYS = np.array([selection.client_key(9, client) for client in range(64)])


@pytest.mark.parametrize("dimension", [1, 32, 75])
def test_updates_are_the_same_in_each_library(dimension):
    for key in KEYS[:6]:
        expected = canaries.update(key, dimension, 3.0)
        assert expected.dtype == np.float32 and expected.shape == (dimension,)
        assert np.linalg.norm(expected) == pytest.approx(3.0 * canaries.is_in(key))
        for name in libraries.NAMES:
            with libraries.wide(name):
                nx = arrays.named(name)
                update = libraries.traced(
                    nx, lambda key: canaries.update(key, dimension, 3.0)
                )
                found = np.asarray(update(nx.asarray(key, np.int64)))
            np.testing.assert_array_equal(found, expected)


def test_coins_and_signs_are_fair_and_independent():
    signs = np.stack([canaries.signs(key, 1000) for key in KEYS])
    assert set(np.unique(signs)) == {-1, 1}
    assert abs(np.mean(signs)) < 5 / np.sqrt(signs.size)
    coins = np.array([canaries.is_in(key) for key in KEYS])
    assert 16 < coins.sum() < 48
    products = signs @ signs.T / np.sqrt(1000)
    assert np.abs(products - np.diag(np.diag(products))).max() < 5.5
    # No sign repeats the coin.
    assert np.abs((2 * coins - 1) @ signs).max() < 6 * np.sqrt(len(KEYS))
