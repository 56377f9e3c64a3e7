# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Every check of an argument, and the one form of what it says.

    clip_norm must be greater than 0, found -1.0

The message is one sentence: the argument's name, what would be right, and what was
found. A value of a wrong type raises TypeError, a value out of range ValueError.
"""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Optional

import attr
import numpy as np


def message(name: str, wanted: str, value: Any) -> str:
    """The sentence for a refused argument, with `wanted` behind "must be"."""
    return f"{name} must be {wanted}, found {value!r}"


def real(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    below: float = math.inf,
    at_most: float = math.inf,
) -> float:
    """`value` as a finite float within the bounds.

    Raises:
      TypeError: `value` is not a real number.
      ValueError: `value` is NaN, infinite or out of range.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(message(name, "a number", value))
    try:
        result = float(value)
    except OverflowError:
        # An integer that is longer than any float.
        result = math.inf
    if not math.isfinite(result):
        raise ValueError(message(name, "a finite number", value))
    ends = [
        words
        for words, is_set in (
            (f"greater than {above:.15g}", above > -math.inf),
            (f"at least {at_least:.15g}", at_least > -math.inf),
            (f"less than {below:.15g}", below < math.inf),
            (f"at most {at_most:.15g}", at_most < math.inf),
        )
        if is_set
    ]
    if not (above < result < below and at_least <= result <= at_most):
        raise ValueError(message(name, " and ".join(ends), value))
    return result


def integer(
    name: str, value: Any, at_least: int = 1, at_most: Optional[int] = None
) -> int:
    """`value` as an int from `at_least` to `at_most`.

    Raises:
      TypeError: `value` is not an integer (a bool is not one).
      ValueError: `value` is out of range.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise TypeError(message(name, "an integer", value))
    result = int(value)
    if result < at_least:
        raise ValueError(message(name, f"at least {at_least}", result))
    if at_most is not None and result > at_most:
        raise ValueError(message(name, f"at most {at_most}", result))
    return result


def optional_integer(
    name: str, value: Any, at_least: int = 1, at_most: Optional[int] = None
) -> Optional[int]:
    """As `integer`, with None allowed."""
    return None if value is None else integer(name, value, at_least, at_most)


def positive(name: str, value: Any) -> float:
    """`value` as a float, if it is finite and above 0."""
    return real(name, value, above=0)


def nonnegative(name: str, value: Any) -> float:
    """`value` as a float, if it is finite and at least 0."""
    return real(name, value, at_least=0)


def fraction(name: str, value: Any) -> float:
    """`value` as a float, if it is in (0, 1]."""
    return real(name, value, above=0, at_most=1)


def probability(name: str, value: Any) -> float:
    """`value` as a float, if it is in [0, 1]."""
    return real(name, value, at_least=0, at_most=1)


def delta(name: str, value: Any) -> float:
    """`value` as a float, if it is in (0, 1)."""
    return real(name, value, above=0, below=1)


def choice(name: str, value: Any, choices: Collection[str]) -> str:
    """`value`, if it is one of `choices`; else ValueError."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(message(name, f"one of {', '.join(sorted(choices))}", value))
    return value


def boolean(name: str, value: Any) -> bool:
    """`value`, if it is True or False; else TypeError."""
    if not isinstance(value, bool):
        raise TypeError(message(name, "True or False", value))
    return value


def orders(values: Any, *, closed: bool = False) -> np.ndarray:
    """Renyi orders as a float64 vector.

    Args:
      closed: Whether 1 and infinity are orders too.
    """
    try:
        result = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise TypeError(message("orders", "a sequence of numbers", values)) from error
    if result.ndim != 1 or result.size == 0:
        raise ValueError(message("orders", "a non-empty sequence", values))
    good = result >= 1 if closed else (result > 1) & np.isfinite(result)
    if not good.all():
        wanted = "at least 1" if closed else "finite and greater than 1"
        raise ValueError(message("orders", wanted, float(result[~good][0])))
    return result


def vector(name: str, value: Any) -> np.ndarray:
    """`value` as a non-empty, finite float64 vector."""
    return _array(name, value, 1, "vector")


def matrix(name: str, value: Any) -> np.ndarray:
    """`value` as a non-empty, finite float64 matrix."""
    return _array(name, value, 2, "matrix")


def validator(check: Callable[..., Any], **kwargs: Any) -> Any:
    """An attrs validator made of one of the checks above."""

    def validate(instance: Any, attribute: attr.Attribute, value: Any) -> None:
        del instance
        check(attribute.name, value, **kwargs)

    return validate


@contextlib.contextmanager
def renaming(names: Mapping[str, str]) -> Iterator[None]:
    """Has what is refused within called by the names that its caller knows it by."""
    try:
        yield
    except (TypeError, ValueError) as error:
        name, must, rest = str(error).partition(" must ")
        if not must or name not in names:
            raise
        raise type(error)(f"{names[name]}{must}{rest}") from error


def _array(name: str, value: Any, rank: int, word: str) -> np.ndarray:
    result = np.asarray(value, dtype=np.float64)
    if result.ndim != rank or result.size == 0:
        raise ValueError(
            f"{name} must be a non-empty {word}, found shape {result.shape}"
        )
    if not np.all(np.isfinite(result)):
        raise ValueError(f"{name} must be finite, found NaN or infinity")
    return result
