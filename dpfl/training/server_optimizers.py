# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The server's optimizers by name, over the arrays of any library.

    optimizer = build_server_optimizer("adam", 0.01, momentum=0.9)
    state = optimizer.initialize(arrays.named("numpy"), [(3, 2), (2,)])
    state, weights = optimizer.next(state, weights, gradients)

Weights and gradients are lists of float arrays. The aggregate of a round is the
gradient.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Sequence
from typing import Any, Optional, Protocol

import numpy as np

from dpfl import arrays, checks
from dpfl.arrays import Array
from dpfl.training.config import SERVER_OPTIMIZERS

# Decay of the second moment.
_BETA_2 = 0.999
# Epsilon of Adam, which is added to the root of the second moment.
_LEAST_ROOT = 1e-7


# Arrays, and lists of them, by name.
State = dict[str, Any]
_Arrays = Sequence[Array]
_Shapes = Sequence[Sequence[int]]
_Stepped = tuple[State, list[Array]]


class ServerOptimizer(Protocol):
    """A step of the server as a function."""

    def initialize(self, nx: Any, shapes: _Shapes) -> State:
        """The state before the first step, of weights of some shapes."""

    def next(self, state: State, weights: _Arrays, gradients: _Arrays) -> _Stepped:
        """The state and the weights after a step.

        Args:
          state: The state before it.
          weights: The weights before it.
          gradients: The aggregate of the round, shaped as the weights.
        """


@dataclasses.dataclass(frozen=True)
class Sgd:
    """Gradient descent with momentum: v <- b v + g, w <- w - lr v.

    Attributes:
      learning_rate: lr.
      momentum: b.
    """

    learning_rate: float
    momentum: float = 0.0

    def initialize(self, nx: Any, shapes: _Shapes) -> State:
        """See base class."""
        return {"velocity": _zeros(nx, shapes)} if self.momentum else {}

    def next(self, state: State, weights: _Arrays, gradients: _Arrays) -> _Stepped:
        """See base class."""
        velocity = list(gradients)
        if self.momentum:
            pairs = zip(state["velocity"], gradients)
            velocity = [self.momentum * v + g for v, g in pairs]
            state = {"velocity": velocity}
        moved = [w - self.learning_rate * v for w, v in zip(weights, velocity)]
        return state, moved


class Adam:
    """Adam with optional bias correction, and debiased from noise if asked.

      m <- b1 m + (1 - b1) g                    m' = m / (1 - b1^t), or m
      v <- b2 v + (1 - b2) (g^2 - s^2)          v' = v / (1 - b2^t), or v
      w <- w - lr m' / sqrt(max(v', s^2, 1e-14))

    b2 is 0.999. With s^2 the variance of the noise on a coordinate of g, this is
    DP-AdamBC (Tang et al. 2024, Algorithm 1, whose floor is a parameter) with the floor
    that `mechanisms.Dome` has. Moments start at zero.

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

    def initialize(self, nx: Any, shapes: _Shapes) -> State:
        """See base class."""
        return {
            "step": nx.zeros([], np.int32),
            "first_moment": _zeros(nx, shapes),
            "second_moment": _zeros(nx, shapes),
        }

    def next(self, state: State, weights: _Arrays, gradients: _Arrays) -> _Stepped:
        """See base class."""
        nx, (beta_1, beta_2) = arrays.of(gradients[0]), self._betas
        step = state["step"] + 1
        first_part, second_part = (
            self._correction(nx, beta, step) for beta in self._betas
        )
        floor = max(self._variance, _LEAST_ROOT**2)
        first = [
            beta_1 * m + (1 - beta_1) * g
            for m, g in zip(state["first_moment"], gradients)
        ]
        second = [
            beta_2 * v + (1 - beta_2) * (nx.square(g) - self._variance)
            for v, g in zip(state["second_moment"], gradients)
        ]
        moved = [
            w
            - self._lr * (m / first_part) / nx.sqrt(nx.maximum(v / second_part, floor))
            for w, m, v in zip(weights, first, second)
        ]
        return {"step": step, "first_moment": first, "second_moment": second}, moved

    def _correction(self, nx: Any, beta: float, step: Array) -> Any:
        """The bias correction 1 - beta^t, float32; 1 if it is off."""
        if not self._corrects_start or not beta:
            return 1.0
        return -nx.expm1(nx.asarray(step, np.float32) * math.log(beta))


def stepped(
    optimizer: ServerOptimizer, state: State, weights: _Arrays, gradients: _Arrays
) -> _Stepped:
    """The state and the weights after a step, or as before an aggregate not finite.

    Args:
      optimizer: The optimizer.
      state: The state before the step.
      weights: The weights before it.
      gradients: The aggregate of the round, shaped as the weights.
    """
    nx = arrays.of(gradients[0])
    is_finite = functools.reduce(
        operator.and_, [nx.all(nx.isfinite(part)) for part in gradients]
    )

    def kept(new: Any, old: Any) -> Any:
        if isinstance(new, dict):
            return {name: kept(part, old[name]) for name, part in new.items()}
        if isinstance(new, list):
            return [kept(*parts) for parts in zip(new, old)]
        return nx.where(is_finite, new, old)

    after, moved = optimizer.next(dict(state), weights, gradients)
    return kept(after, state), kept(moved, weights)


def _zeros(nx: Any, shapes: _Shapes) -> list[Array]:
    return [nx.zeros(shape, np.float32) for shape in shapes]


def build_server_optimizer(
    name: str,
    learning_rate: float,
    momentum: Optional[float] = None,
    noise_variance: Optional[float] = None,
) -> ServerOptimizer:
    """Builds the server's optimizer.

    Args:
      name: One of `config.SERVER_OPTIMIZERS`.
      learning_rate: The server's learning rate.
      momentum: For 'sgd' the momentum, None for none; for Adam beta_1, None for 0.9.
      noise_variance: Variance of the noise on a coordinate of the aggregate, for
        'adam_debiased' only; None for others.
    """
    checks.choice("server_optimizer", name, SERVER_OPTIMIZERS)
    if name == "sgd":
        return Sgd(learning_rate, momentum or 0.0)
    return Adam(
        learning_rate,
        beta_1=0.9 if momentum is None else momentum,
        corrects_start=name != "adam_uncorrected",
        noise_variance=noise_variance if name == "adam_debiased" else 0.0,
    )
