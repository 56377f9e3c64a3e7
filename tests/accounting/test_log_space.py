# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Sums and chords in log space."""

import math

import numpy as np

from dpfl.accounting import log_space

INF = math.inf


def test_log_sum_exp():
    found = log_space.log_sum_exp(np.log([[1.0, 2.0, 5.0], [0.25, 0.25, 0.5]]))
    np.testing.assert_allclose(found, [math.log(8), 0], atol=1e-15)
    assert log_space.log_sum_exp(np.array([1e4, 1e4])) == 1e4 + math.log(2)
    assert log_space.log_sum_exp(np.array([-INF, 3.0])) == 3
    assert log_space.log_sum_exp(np.array([-INF, -INF])) == -INF
    assert log_space.log_sum_exp(np.array([INF, 3.0])) == INF


def test_chord_by_hand():
    integers = np.array([1, 2, 3, 9])
    moments = np.array([[0.0, 1.0, 4.0, INF], [0.0, 2.0, 2.0, 6.0]])
    found = log_space.chord(np.array([1.0, 1.25, 2.5, 3.0, 9.0]), integers, moments)
    np.testing.assert_array_equal(
        found, [[0, 0.25, 2.5, 4, INF], [0, 0.5, 2.0, 2.0, 6.0]]
    )


def test_whole_orders_are_the_neighbours_for_the_chord():
    found = log_space.whole_orders(np.array([2.5, 7.0, 1.1]))
    assert found.tolist() == [1, 2, 3, 7]
