# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import collections

import numpy as np
import tensorflow as tf

from dpfl.training.grouped import ScalarRows


def rows_of(values):
    made = ScalarRows()
    rows = [
        made.row(
            tf.constant(place, tf.int64),
            collections.OrderedDict(
                a=tf.constant(a, tf.float32), b=tf.constant([n, 2 * n], tf.int64)
            ),
        )
        for place, (a, n) in enumerate(values)
    ]
    return made, tf.stack(rows)


def test_sums_have_their_dtypes_and_the_order_of_the_cohort():
    """Of 301 numbers whose sum in float32 depends on the order."""
    numbers = np.random.default_rng(0).lognormal(0, 4, 301).astype(np.float32)
    made, rows = rows_of([(a, i) for i, a in enumerate(numbers)])
    expected = np.float32(0)
    for a in numbers:
        expected += a
    assert expected != np.sum(numbers[::-1].astype(np.float64)).astype(np.float32)
    for order in (np.arange(301), np.random.default_rng(1).permutation(301)):
        total = made.total(tf.gather(rows, order))
        assert total["a"].dtype == tf.float32 and total["b"].dtype == tf.int64
        assert total["a"].numpy() == expected
        np.testing.assert_array_equal(total["b"], [45150, 90300])


def test_no_rows_add_up_to_zeros():
    made, rows = rows_of([(1.0, 2)])
    assert made.width == 4
    assert made.total(rows[:0])["a"] == 0
