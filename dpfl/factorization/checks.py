# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Argument checks of this package: each error is one sentence."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np


def positive_int(name: str, value: Any, *, maximum: int | None = None) -> int:
    """Returns `value` as an int in [1, maximum].

    Raises:
      TypeError: If it is not an integer (a bool is not one).
      ValueError: If it is out of range.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a positive integer, found {value!r}.")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, found {value}.")
    if maximum is not None and value > maximum:
        raise ValueError(f"{name} must be at most {maximum}, found {value}.")
    return int(value)


def real(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    below: float = math.inf,
    at_most: float = math.inf,
) -> float:
    """Returns `value` as a finite float within the bounds.

    Raises:
      TypeError: If it is not a real number (a bool is not one).
      ValueError: If it is NaN, infinite or out of range.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number, found {value!r}.")
    result = float(value)
    if not math.isfinite(result):
        raise ValueError(f"{name} must be finite, found {result}.")
    limits = (
        ("above", result > above, above),
        ("at least", result >= at_least, at_least),
        ("below", result < below, below),
        ("at most", result <= at_most, at_most),
    )
    for words, holds, limit in limits:
        if not holds:
            raise ValueError(f"{name} must be {words} {limit:g}, found {result:g}.")
    return result


def vector(name: str, value: Any) -> np.ndarray:
    """Returns `value` as a non-empty, finite float64 vector.

    Raises:
      ValueError: If it is empty, not of one dimension, or not finite.
    """
    result = np.asarray(value, dtype=np.float64)
    if result.ndim != 1 or result.size == 0:
        raise ValueError(
            f"{name} must be a non-empty vector, found shape {result.shape}."
        )
    if not np.all(np.isfinite(result)):
        raise ValueError(f"{name} must be finite, found NaN or infinity.")
    return result


def matrix(name: str, value: Any) -> np.ndarray:
    """Returns `value` as a non-empty, finite float64 matrix.

    Raises:
      ValueError: If it is empty, not of two dimensions, or not finite.
    """
    result = np.asarray(value, dtype=np.float64)
    if result.ndim != 2 or result.size == 0:
        raise ValueError(
            f"{name} must be a non-empty matrix, found shape {result.shape}."
        )
    if not np.all(np.isfinite(result)):
        raise ValueError(f"{name} must be finite, found NaN or infinity.")
    return result
