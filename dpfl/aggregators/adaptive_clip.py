# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A clip that follows the updates' norms (Andrew et al. 2021), or stays where it is."""

from __future__ import annotations

import collections
from typing import Union

import tensorflow as tf

from dpfl import mechanisms
from dpfl.aggregators.codec import Fields
from dpfl.mechanisms.mechanism import CLIP_RANGE
from dpfl.vectors import clipping


class AdaptiveClip:
    """The clip in force, clients' votes on it, and the next.

    Attributes:
      adapts: Whether it changes; if not, there is neither state nor vote.
    """

    def __init__(self, config: Union[mechanisms.Gaussian, mechanisms.IntegerMechanism]):
        self._config = config
        self.adapts = config.adaptive_clipping

    def initial_state(self) -> Fields:
        """`clip_norm`, float32, if it adapts; this is also broadcast."""
        if not self.adapts:
            return collections.OrderedDict()
        return collections.OrderedDict(clip_norm=self._initial())

    def in_force(self, state: Fields) -> tf.Tensor:
        """The clip, float32, from a state or from what was broadcast."""
        return state["clip_norm"] if self.adapts else self._initial()

    def vote(self, normed: clipping.NormedVector, is_clipped: tf.Tensor) -> tf.Tensor:
        """A client's vote, int32: 1 within the clip, -1 if clipped.

        An update of no length has no vote: replaced by zeros it must not count.
        """
        return tf.where(is_clipped, -1, tf.cast(normed.norm > 0, tf.int32))

    def next_state(self, clip: tf.Tensor, votes: tf.Tensor) -> Fields:
        """C exp(-rate (noised fraction within - target)) as `clip_norm`.

        The `votes`, float32, are half the sum of the votes, with its noise.
        """
        config = self._config
        fraction = votes / config.cohort_size + 0.5
        step = config.clip_learning_rate * (fraction - config.target_quantile)
        return collections.OrderedDict(
            clip_norm=tf.clip_by_value(clip * tf.exp(-step), *CLIP_RANGE)
        )

    def _initial(self) -> tf.Tensor:
        return tf.constant(self._config.clip_norm, tf.float32)
