# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""The base class of dpfl's `DpEvent`s, and the checks they share.

An event is a frozen value that says everything an accountant must know about one
use of a mechanism. dpfl's own events also know their Renyi differential privacy:
`RdpDpEvent.rdp` returns it, so that `accountant.DpflAccountant` handles every one
of them without naming it.

Privacy in this package is for the adjacency 'one client is added, removed, or
replaced by a client that sends zeros', and always covers both directions.
"""

from __future__ import annotations

import abc
import math
import numbers
from collections.abc import Sequence
from typing import Any, Optional, Union

import attr
import dp_accounting
import numpy as np

Orders = Union[Sequence[float], np.ndarray]
"""Renyi orders: any sequence of numbers greater than 1."""

# Stock dp_accounting mixes tenths below 11 with integers above; the tenths matter
# when Gaussians are composed at a large epsilon. The integers up to 1024 are what
# the sparsified mechanisms need.
DEFAULT_ORDERS: tuple[float, ...] = tuple(
    [1.0 + x / 10.0 for x in range(1, 100)]
    + [float(x) for x in range(11, 64)]
    + [float(x) for x in range(64, 128, 4)]
    + [float(x) for x in range(128, 256, 16)]
    + [float(x) for x in range(256, 512, 32)]
    + [float(x) for x in range(512, 1025, 128)]
)
"""The Renyi orders used when none are given."""


def _found(value: Any) -> str:
    return f"found {value!r}"


def check_real(name: str, value: Any) -> float:
    """Returns `value` as a float, or refuses what is not a finite real number.

    Args:
      name: The argument's name, for the message.
      value: The value to check. Python and numpy reals are accepted; bool is not.

    Returns:
      `value` as a Python float.

    Raises:
      TypeError: `value` is not a real number.
      ValueError: `value` is NaN or infinite.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, {_found(value)}.")
    result = float(value)
    if not math.isfinite(result):
        raise ValueError(f"{name} must be a finite number, {_found(value)}.")
    return result


def check_positive(name: str, value: Any) -> float:
    """Returns `value` as a float, or raises unless it is finite and above 0."""
    result = check_real(name, value)
    if result <= 0:
        raise ValueError(f"{name} must be greater than 0, {_found(value)}.")
    return result


def check_nonnegative(name: str, value: Any) -> float:
    """Returns `value` as a float, or raises unless it is finite and at least 0."""
    result = check_real(name, value)
    if result < 0:
        raise ValueError(f"{name} must be at least 0, {_found(value)}.")
    return result


def check_fraction(name: str, value: Any) -> float:
    """Returns `value` as a float, or raises unless it is in (0, 1]."""
    result = check_real(name, value)
    if not 0 < result <= 1:
        raise ValueError(
            f"{name} must be greater than 0 and at most 1, {_found(value)}."
        )
    return result


def check_probability(name: str, value: Any) -> float:
    """Returns `value` as a float, or raises unless it is in [0, 1]."""
    result = check_real(name, value)
    if not 0 <= result <= 1:
        raise ValueError(f"{name} must be from 0 to 1, {_found(value)}.")
    return result


def check_delta(name: str, value: Any) -> float:
    """Returns `value` as a float, or raises unless it is in (0, 1)."""
    result = check_real(name, value)
    if not 0 < result < 1:
        raise ValueError(
            f"{name} must be greater than 0 and less than 1, {_found(value)}."
        )
    return result


def check_integer(name: str, value: Any, minimum: int = 1) -> int:
    """Returns `value` as an int, or raises unless it is an integer >= `minimum`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, {_found(value)}.")
    result = int(value)
    if result < minimum:
        raise ValueError(f"{name} must be at least {minimum}, {_found(value)}.")
    return result


def check_orders(orders: Any) -> np.ndarray:
    """Returns Renyi orders as a float64 vector.

    Args:
      orders: A non-empty sequence of finite numbers greater than 1.

    Returns:
      A float64 array of shape [len(orders)].

    Raises:
      TypeError: `orders` is not a sequence of real numbers.
      ValueError: `orders` is empty or has an element that is not in (1, inf).
    """
    try:
        result = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"orders must be a sequence of numbers, {_found(orders)}."
        ) from error
    if result.ndim != 1 or result.size == 0:
        raise ValueError(f"orders must be a non-empty sequence, {_found(orders)}.")
    bad = result[~((result > 1) & np.isfinite(result))]
    if bad.size:
        raise ValueError(
            f"orders must be finite and greater than 1, found {float(bad[0])!r}."
        )
    return result


def validator(check: Any, **kwargs: Any) -> Any:
    """Makes an attrs validator of one of the checks above."""

    def validate(instance: Any, attribute: attr.Attribute, value: Any) -> None:
        del instance
        check(attribute.name, value, **kwargs)

    return validate


@attr.s(frozen=True)
class RdpDpEvent(dp_accounting.DpEvent, metaclass=abc.ABCMeta):
    """An event that knows its own Renyi differential privacy.

    Subclasses are frozen attrs classes whose docstring states every assumption of
    the mechanism. `DpflAccountant` composes them by adding their `rdp`.
    """

    @abc.abstractmethod
    def rdp(self, orders: Orders) -> np.ndarray:
        """Returns the Renyi differential privacy of one use of the mechanism.

        Args:
          orders: Renyi orders, each greater than 1; shape [m].

        Returns:
          float64 array of shape [m]: at each order a bound on both directions'
          Renyi divergence, in nats. Infinite where there is no guarantee.

        Raises:
          ValueError: an order is not a finite number greater than 1.
        """

    def poisson_sampled(self, sampling_probability: float) -> Optional[RdpDpEvent]:
        """Returns this event on a Poisson sample of clients.

        This is what `dp_accounting.PoissonSampledDpEvent` around this event means.

        Args:
          sampling_probability: Each client joins independently with it; in [0, 1].

        Returns:
          The event of the sampled mechanism, or None (the default) if no proven
          bound for it is known.
        """
        del sampling_probability
        return None
