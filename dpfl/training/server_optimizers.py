# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The server's optimizers by name. TFF is imported when one is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

from dpfl import checks


def _sgd(learning_rate: float, momentum: Optional[float]) -> Any:
    import tensorflow_federated as tff

    return tff.learning.optimizers.build_sgdm(learning_rate, momentum=momentum or None)


def _adam(learning_rate: float, momentum: Optional[float]) -> Any:
    import tensorflow_federated as tff

    return tff.learning.optimizers.build_adam(learning_rate, beta_1=_beta(momentum))


def _adam_uncorrected(learning_rate: float, momentum: Optional[float]) -> Any:
    from dpfl.training import adam

    return adam.Adam(learning_rate, beta_1=_beta(momentum), corrects_start=False)


def _adam_debiased(
    learning_rate: float, momentum: Optional[float], noise_variance: float
) -> Any:
    from dpfl.training import adam

    return adam.Adam(
        learning_rate, beta_1=_beta(momentum), noise_variance=noise_variance
    )


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
