# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The server's optimizers by name, and Adam variants that correct for noise.

optimizer = build_server_optimizer("adam", 0.01, momentum=0.9)
"""

from __future__ import annotations

import collections
from typing import Any, Optional

import tensorflow as tf
import tensorflow_federated as tff

from dpfl import checks
from dpfl.training.config import SERVER_OPTIMIZERS

# Decay of the second moment.
_BETA_2 = 0.999
# TFF's epsilon of Adam, which is added to the root of the second moment.
_LEAST_ROOT = 1e-7


class Adam(tff.learning.optimizers.Optimizer):
    """Adam with optional bias correction, and debiased from noise if asked.

      m <- b1 m + (1 - b1) g                    m' = m / (1 - b1^t), or m
      v <- b2 v + (1 - b2) (g^2 - s^2)          v' = v / (1 - b2^t), or v
      w <- w - lr m' / sqrt(max(v', s^2, 1e-14))

    TFF's own Adam always corrects the bias of the moments, and never that of noise.
    b2 is 0.999, as TFF's by default. With s^2 the variance of the noise on a coordinate
    of g, this is DP-AdamBC (Tang et al. 2024, Algorithm 1, whose floor is a parameter)
    with the floor that `mechanisms.Dome` has. Moments start at zero.

    State: `step` (int32, t), `first_moment` and `second_moment`, shaped as the weights.
    """

    def __init__(
        self,
        learning_rate: float,
        *,
        beta_1: float = 0.9,
        corrects_start: bool = True,
        noise_variance: Optional[float] = 0.0,
    ):
        """Initializes the optimizer.

        Args:
          learning_rate: lr.
          beta_1: b1.
          corrects_start: Whether the moments are divided by 1 - beta^t.
          noise_variance: s^2; zero for Adam itself.
        """
        self._lr = checks.positive("learning_rate", learning_rate)
        beta_1 = checks.real("beta_1", beta_1, at_least=0, below=1)
        self._betas = (beta_1, _BETA_2)
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
        first_part, second_part = (self._correction(beta, step) for beta in self._betas)
        floor = max(self._variance, _LEAST_ROOT**2)

        def first_moment(m: tf.Tensor, g: tf.Tensor) -> tf.Tensor:
            return beta_1 * m + (1 - beta_1) * g

        def second_moment(v: tf.Tensor, g: tf.Tensor) -> tf.Tensor:
            return beta_2 * v + (1 - beta_2) * (tf.square(g) - self._variance)

        def moved(w: tf.Tensor, m: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
            root = tf.sqrt(tf.maximum(v / second_part, floor))
            return w - self._lr * (m / first_part) / root

        each = tf.nest.map_structure
        first = each(first_moment, state["first_moment"], gradients)
        second = each(second_moment, state["second_moment"], gradients)
        new_weights = each(moved, weights, first, second)
        new_state = collections.OrderedDict(
            step=step, first_moment=first, second_moment=second
        )
        return new_state, new_weights

    def _correction(self, beta: float, step: tf.Tensor) -> tf.Tensor:
        """The bias correction 1 - beta^t, float32; 1 if it is off."""
        if not self._corrects_start:
            return tf.ones([])
        power = tf.pow(tf.constant(beta, tf.float64), tf.cast(step, tf.float64))
        return tf.cast(1 - power, tf.float32)


def build_server_optimizer(
    name: str,
    learning_rate: float,
    momentum: Optional[float] = None,
    noise_variance: Optional[float] = None,
) -> tff.learning.optimizers.Optimizer:
    """Builds the server's optimizer.

    Args:
      name: One of `config.SERVER_OPTIMIZERS`.
      learning_rate: The server's learning rate.
      momentum: For 'sgd' the momentum, None for none; for Adam beta_1, None for 0.9.
      noise_variance: Variance of the noise on a coordinate of the aggregate, for
        'adam_debiased' only; None for others.
    """
    checks.choice("server_optimizer", name, SERVER_OPTIMIZERS)
    optimizers = tff.learning.optimizers
    beta_1 = 0.9 if momentum is None else momentum
    if name == "sgd":
        optimizer = optimizers.build_sgdm(learning_rate, momentum=momentum or None)
    elif name == "adam":
        optimizer = optimizers.build_adam(learning_rate, beta_1=beta_1)
    elif name == "adam_uncorrected":
        optimizer = Adam(learning_rate, beta_1=beta_1, corrects_start=False)
    else:
        optimizer = Adam(learning_rate, beta_1=beta_1, noise_variance=noise_variance)
    # Optimizers have no control flow that depends on tensors, and searching for it
    # (autograph) is a third of what it takes to build a process.
    optimizer.next = tf.autograph.experimental.do_not_convert(optimizer.next)
    return optimizer
