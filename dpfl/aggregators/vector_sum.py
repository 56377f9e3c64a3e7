# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The mean of clipped vectors, one from each client, at a trusted server."""

from __future__ import annotations

import collections
from typing import Optional

import tensorflow as tf

from dpfl.aggregators.codec import Codec, Decoded, Encoded, Fields
from dpfl.aggregators.integer_sums import IntegerSum
from dpfl.vectors import clipping


class ClippedSumCodec(Codec):
    """The mean of clipped updates, with no noise: for a codec that adds its own.

    Clients send integers, whose norm is within the clip, exactly; see `IntegerSum`.

    Measurements: `clip_norm`. Exact: `l2_clipped_fraction` (of the clients).
    """

    def __init__(
        self,
        dimension: int,
        cohort_size: int,
        clip_norm: float,
        noise_multiplier: float = 0.0,
    ):
        """Initializes the codec.

        Args:
          dimension: d.
          cohort_size: n.
          clip_norm: C.
          noise_multiplier: Of the noise that will be added, over C; says how fine the
            grid is.
        """
        super().__init__(dimension, cohort_size)
        self._clip_norm = clip_norm
        self._sum = IntegerSum(dimension, noise_multiplier, cohort_size)

    def broadcast(self, state: Fields, round_seed: tf.Tensor) -> Fields:
        """Returns nothing."""
        del state, round_seed
        return collections.OrderedDict()

    def encode(
        self,
        update: tf.Tensor,
        shared: Fields,
        client_seed: Optional[tf.Tensor],
    ) -> Encoded:
        """Returns the clipped update, int32[d]."""
        del shared, client_seed
        normed = clipping.safe_norm(update)
        sums = collections.OrderedDict(l2_clipped=normed.norm > self._clip_norm)
        return Encoded(self._sum.round(normed, self._clip_norm), normed, sums)

    def zero(self) -> tf.Tensor:
        """Returns zeros, of the integers that a sum needs."""
        return self._sum.zero()

    def accumulate(self, total: tf.Tensor, message: tf.Tensor) -> tf.Tensor:
        """Returns the sum with the update."""
        return self._sum.accumulate(total, message)

    def decode(
        self,
        state: Fields,
        total: tf.Tensor,
        sums: Fields,
        shared: Fields,
        noise_seed: tf.Tensor,
    ) -> Decoded:
        """Returns the sum over n."""
        del shared, noise_seed
        measured = collections.OrderedDict(
            clip_norm=tf.constant(self._clip_norm, tf.float32),
        )
        mean = self._sum.to_float(total, self._clip_norm) / self.cohort_size
        return Decoded(mean, state, measured)
