# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The count-mean sketch as Chen et al. 2022 publish it, to compare with dpfl's.

    sketch = HashSketch(dimension=20_000, rows=3, width=100)
    expanded = sketch.expand(seed)
    decoded = sketch.decode(sketch.encode(vector, expanded), expanded)

Over the seeds, decoded vectors have the vector as their mean.
"""

from __future__ import annotations

import collections

import tensorflow as tf

from dpfl import arrays
from dpfl.vectors import randomness

Expanded = collections.OrderedDict
# Purposes of the seed of a row.
_BUCKETS, _SIGNS = range(2)


class HashSketch:
    """The count-mean sketch as published: hashes and signs for every coordinate.

    In each row every coordinate has a bucket and a sign of its own, both uniform, all
    independent. (Drawing both from one seed, as published code does, makes the sign a
    function of the bucket: colliding coordinates then add up instead of cancelling.) So
    two coordinates share a bucket of a row with probability 1/w, and E ||S^T S g -
    g||^2 = (d - 1)/m ||g||^2 exactly. Encoding scatters l d numbers.
    """

    def __init__(self, dimension: int, rows: int, width: int):
        """Makes the sketch of length l w."""
        self.dimension = self.input_length = dimension
        self.rows, self.width, self.length = rows, width, rows * width
        self._factor = rows**-0.5

    def expand(self, seed: tf.Tensor) -> Expanded:
        """Hashes int32[l, d]: the bucket, plus w if the sign is negative."""
        rows = []
        for row in range(self.rows):
            own = randomness.fold_in(seed, row, _BUCKETS)
            bucket = arrays.of(own).below(own, self.dimension, self.width)
            own = randomness.fold_in(seed, row, _SIGNS)
            sign = randomness.rademacher(own, self.dimension)
            bucket = tf.cast(bucket, tf.int32)
            rows.append(tf.where(sign < 0, bucket + self.width, bucket))
        return collections.OrderedDict(buckets=tf.stack(rows))

    def encode(self, vector: tf.Tensor, expanded: Expanded) -> tf.Tensor:
        """The sketch S g, float32[l w], row after row."""
        sums = [
            tf.math.unsorted_segment_sum(vector, buckets, 2 * self.width)
            for buckets in tf.unstack(expanded["buckets"], self.rows)
        ]
        signed = tf.reshape(tf.stack(sums), [self.rows, 2, self.width])
        return self._factor * tf.reshape(signed[:, 0] - signed[:, 1], [-1])

    def decode(self, sketch: tf.Tensor, expanded: Expanded) -> tf.Tensor:
        """The decoded S^T y, float32[d]."""
        table = tf.reshape(sketch, [self.rows, self.width])
        table = tf.concat([table, -table], 1)
        total = tf.zeros([self.dimension])
        for row, buckets in enumerate(tf.unstack(expanded["buckets"], self.rows)):
            total += tf.gather(table[row], buckets)
        return self._factor * total
