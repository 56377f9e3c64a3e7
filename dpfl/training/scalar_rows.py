# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What clients measure, a row of numbers each, and the sum in the cohort's order."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class ScalarRows:
    """Scalars of clients as rows of float64, to be added up in the cohort's order."""

    def __init__(self) -> None:
        self._structure: Any = None

    @property
    def width(self) -> int:
        """Returns how many numbers a row has, its place included; `row` sets it."""
        leaves = tf.nest.flatten(self._structure)
        return 1 + sum(leaf.shape.num_elements() for leaf in leaves)

    def row(self, place: tf.Tensor, structure: Any) -> tf.Tensor:
        """Returns a client's row, float64[width].

        Args:
          place: int64 scalar, the client's in the cohort.
          structure: Of tensors of known shapes; float64 holds each of their numbers.
        """
        self._structure = tf.nest.map_structure(
            lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype), structure
        )
        leaves = [place, *tf.nest.flatten(structure)]
        return tf.concat(
            [tf.reshape(tf.cast(leaf, tf.float64), [-1]) for leaf in leaves], 0
        )

    def total(self, rows: tf.Tensor) -> Any:
        """Returns the sums, each in its own dtype and in the order of the places.

        Args:
          rows: float64[n, width], in any order.
        """
        ordered = tf.gather(rows, tf.argsort(rows[:, 0]))
        sums: dict[tf.DType, tf.Tensor] = {}
        found, begin = [], 1
        for leaf in tf.nest.flatten(self._structure):
            if leaf.dtype not in sums:
                # All columns at once: of a single one TensorFlow would make several
                # partial sums, and here it adds row to row.
                sums[leaf.dtype] = tf.reduce_sum(tf.cast(ordered, leaf.dtype), 0)
            end = begin + leaf.shape.num_elements()
            found.append(tf.reshape(sums[leaf.dtype][begin:end], leaf.shape))
            begin = end
        return tf.nest.pack_sequence_as(self._structure, found)
