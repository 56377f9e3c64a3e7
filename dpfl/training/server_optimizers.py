# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The server's optimizers by name. TFF is imported when one is built."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any, Optional

import tensorflow as tf
import tensorflow_federated as tff

from dpfl import checks


def _sgd(learning_rate: float, momentum: Optional[float]) -> Any:
    import tensorflow_federated as tff

    return tff.learning.optimizers.build_sgdm(learning_rate, momentum=momentum or None)


def _adam(learning_rate: float, momentum: Optional[float]) -> Any:
    import tensorflow_federated as tff

    return tff.learning.optimizers.build_adam(learning_rate, beta_1=_beta(momentum))


def _adam_uncorrected(learning_rate: float, momentum: Optional[float]) -> Any:
    pass

    return Adam(learning_rate, beta_1=_beta(momentum), corrects_start=False)


def _adam_debiased(
    learning_rate: float, momentum: Optional[float], noise_variance: float
) -> Any:
    pass

    return Adam(learning_rate, beta_1=_beta(momentum), noise_variance=noise_variance)


def _beta(momentum: Optional[float]) -> float:
    """Returns Adam's beta_1."""
    return 0.9 if momentum is None else momentum


SERVER_OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": _sgd,
    "adam": _adam,
    "adam_uncorrected": _adam_uncorrected,
    "adam_debiased": _adam_debiased,
}


def build_server_optimizer(
    name: str,
    learning_rate: float,
    momentum: Optional[float] = None,
    noise_variance: Optional[float] = None,
) -> Any:
    """Returns the server's optimizer, a `tff.learning.optimizers.Optimizer`.

    Args:
      name: One of `SERVER_OPTIMIZERS`.
      learning_rate: Its step.
      momentum: For 'sgd' the momentum, None for none; else beta_1, None for 0.9.
      noise_variance: For 'adam_debiased' alone: what the noise adds to the expected
        square of a coordinate of the aggregate.

    Raises:
      ValueError: If there is no such optimizer.
    """
    checks.choice("server_optimizer", name, SERVER_OPTIMIZERS)
    more = {} if noise_variance is None else {"noise_variance": noise_variance}
    optimizer = SERVER_OPTIMIZERS[name](learning_rate, momentum, **more)
    return _traced_as_it_is(optimizer)


def _traced_as_it_is(optimizer: Any) -> Any:
    """Returns an optimizer of which TensorFlow does not rewrite the code.

    Optimizers have no control flow that depends on tensors, and to look for it
    (autograph) is a third of what it takes to build a process.
    """
    import tensorflow as tf

    optimizer.next = tf.autograph.experimental.do_not_convert(optimizer.next)
    return optimizer


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
