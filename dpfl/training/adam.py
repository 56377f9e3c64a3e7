# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Adam as a server optimizer, with a choice of what its moments are rid of."""

from __future__ import annotations

import collections
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from dpfl import checks

# What TFF's Adam adds to the root of the second moment.
_LEAST_ROOT = 1e-7


class Adam(tff.learning.optimizers.Optimizer):
    """Adam; TFF's own always corrects for the moments' start, and never for noise.

      m <- b1 m + (1 - b1) g                    m' = m / (1 - b1^t), or m
      v <- b2 v + (1 - b2) (g^2 - s^2)          v' = v / (1 - b2^t), or v
      w <- w - lr m' / sqrt(max(v', s^2, 1e-14))

    With s^2 the variance of the noise on a coordinate of g, this is DP-AdamBC (Tang et
    al. 2024, Algorithm 1, whose floor is a parameter) with the floor that
    `mechanisms.Dome` has. Moments start at zero.

    State: `step` (int32, t), `first_moment` and `second_moment`, shaped as the weights.
    """

    def __init__(
        self,
        learning_rate: float,
        *,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        corrects_start: bool = True,
        noise_variance: float = 0.0,
    ):
        """Initializes the optimizer.

        Args:
          learning_rate: lr.
          beta_1: Decay of the first moment, in [0, 1).
          beta_2: Decay of the second moment, in [0, 1).
          corrects_start: Whether moments are divided by 1 - beta^t.
          noise_variance: s^2; zero for Adam itself.

        Raises:
          ValueError: If an argument is out of its range.
        """
        self._lr = checks.positive("learning_rate", learning_rate)
        for name, beta in (("beta_1", beta_1), ("beta_2", beta_2)):
            if checks.nonnegative(name, beta) >= 1:
                raise ValueError(f"{name} must be less than 1, found {beta}")
        self._betas = (beta_1, beta_2)
        self._corrects_start = corrects_start
        self._variance = checks.nonnegative("noise_variance", noise_variance)

    def initialize(self, specs: Any) -> collections.OrderedDict[str, Any]:
        """See base class."""

        def zeros() -> Any:
            return tf.nest.map_structure(lambda s: tf.zeros(s.shape, s.dtype), specs)

        return collections.OrderedDict(
            step=tf.zeros([], tf.int32), first_moment=zeros(), second_moment=zeros()
        )

    def next(
        self, state: collections.OrderedDict[str, Any], weights: Any, gradients: Any
    ) -> tuple[collections.OrderedDict[str, Any], Any]:
        """See base class."""
        beta_1, beta_2 = self._betas
        step = state["step"] + 1
        first = tf.nest.map_structure(
            lambda m, g: beta_1 * m + (1 - beta_1) * g,
            state["first_moment"],
            gradients,
        )
        second = tf.nest.map_structure(
            lambda v, g: beta_2 * v + (1 - beta_2) * (tf.square(g) - self._variance),
            state["second_moment"],
            gradients,
        )
        parts = (self._correction(beta, step) for beta in self._betas)
        first_part, second_part = parts
        floor = max(self._variance, _LEAST_ROOT**2)
        new_weights = tf.nest.map_structure(
            lambda w, m, v: (
                w
                - self._lr
                * (m / first_part)
                / tf.sqrt(tf.maximum(v / second_part, floor))
            ),
            weights,
            first,
            second,
        )
        new_state = collections.OrderedDict(
            step=step, first_moment=first, second_moment=second
        )
        return new_state, new_weights

    def _correction(self, beta: float, step: tf.Tensor) -> tf.Tensor:
        """Returns 1 - beta^t, float32; 1 without correction."""
        if not self._corrects_start:
            return tf.ones([])
        power = tf.pow(tf.constant(beta, tf.float64), tf.cast(step, tf.float64))
        return tf.cast(1 - power, tf.float32)
