# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Checks of arguments, and the one form of their messages.

    clip_norm must be greater than 0, found -1.0

The message is one sentence: the argument's name, the values that would be right, and
the value found. A value of a wrong type raises TypeError, one out of range ValueError.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import numbers
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Optional, TypeVar, cast

import numpy as np

Check = Callable[[str, Any], Any]
"""Maps an argument's name and value to the value that is kept, or raises."""

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Smallest delta: parts of a smaller one, and their products, would be no normal floats.
LEAST_DELTA = 1e-300
# Longest update: a greater length is a mistake.
MOST_DIMENSIONS = 10**12


def message(name: str, wanted: str, value: Any) -> str:
    """The sentence for a refused argument.

    Args:
      name: The argument's name.
      wanted: The values that would be right, as read behind "must be".
      value: The value found.
    """
    return f"{name} must be {wanted}, found {value!r}"


def require(is_right: Any, name: str, wanted: str, value: Any) -> None:
    """Raises ValueError with `message` unless a value is right.

    Args:
      is_right: Whether it is.
      name: The argument's name.
      wanted: The values that would be right, as read behind "must be".
      value: The value found.
    """
    if not is_right:
        raise ValueError(message(name, wanted, value))


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

    Args:
      name: The argument's name, for the message.
      value: The number to check; a bool is not one.
      above: Exclusive lower bound.
      at_least: Inclusive lower bound.
      below: Exclusive upper bound.
      at_most: Inclusive upper bound.

    Raises:
      TypeError: `value` is not a real number.
      ValueError: `value` is NaN, infinite or out of range.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(message(name, "a number", value))
    try:
        result = float(value)
    except OverflowError:
        # An integer larger than any float.
        result = math.inf
    require(math.isfinite(result), name, "a finite number", value)
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
    is_within = above < result < below and at_least <= result <= at_most
    require(is_within, name, " and ".join(ends), value)
    return result


def integer(
    name: str,
    value: Any,
    at_least: Optional[int] = 1,
    at_most: Optional[int] = None,
    limit: str = "",
) -> int:
    """`value` as an int from `at_least` to `at_most`.

    Args:
      name: The argument's name, for the message.
      value: The integer to check.
      at_least: Inclusive lower bound; None for no bound.
      at_most: Inclusive upper bound; None for no bound.
      limit: The meaning of the bounds, for the message.

    Raises:
      TypeError: `value` is not an integer (a bool is not one).
      ValueError: `value` is out of range.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise TypeError(message(name, "an integer", value))
    result = int(value)
    limit = f", {limit}" if limit else ""
    if at_least is not None:
        require(result >= at_least, name, f"at least {at_least}{limit}", result)
    if at_most is not None:
        require(result <= at_most, name, f"at most {at_most}{limit}", result)
    return result


def dimension(name: str, value: Any) -> int:
    """`value` as an int, if it is the length of an update, at least 1.

    A float that is a whole number is accepted too: a sum of np.prod of shapes is a
    float if one of the shapes is that of a scalar.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return integer(name, value, at_most=MOST_DIMENSIONS)


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
    """`value` as a float, if it is in (0, 1), and not below `LEAST_DELTA`."""
    return real(name, value, at_least=LEAST_DELTA, below=1)


def choice(name: str, value: Any, choices: Collection[str]) -> str:
    """`value`, if it is one of `choices`; else ValueError.

    Args:
      name: The argument's name, for the message.
      value: The value to check.
      choices: The allowed strings.
    """
    is_choice = isinstance(value, str) and value in choices
    require(is_choice, name, f"one of {', '.join(sorted(choices))}", value)
    return str(value)


def text(name: str, value: Any) -> str:
    """`value` as a str, if it is one; else TypeError."""
    if not isinstance(value, str):
        raise TypeError(message(name, "a string", value))
    return str(value)


def path(name: str, value: Any) -> str:
    """`value` as a str, if it is a path; else TypeError."""
    result = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(result, str) or not result:
        raise TypeError(message(name, "a path", value))
    return str(result)


def boolean(name: str, value: Any) -> bool:
    """`value` as a bool, if it is True or False; else TypeError."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(message(name, "True or False", value))
    return bool(value)


def function(name: str, value: Any) -> Callable[..., Any]:
    """`value`, if it can be called; else TypeError."""
    if not callable(value):
        raise TypeError(message(name, "a function", value))
    return value


def instance(kind: type) -> Check:
    """The check that a value is of a class; else TypeError."""

    def check(name: str, value: Any) -> Any:
        if not isinstance(value, kind):
            article = "an" if kind.__name__[0] in "AEIOU" else "a"
            raise TypeError(message(name, f"{article} {kind.__name__}", value))
        return value

    return check


def orders(values: Any, *, closed: bool = False) -> np.ndarray:
    """Renyi orders as a float64 vector.

    Args:
      values: A number or a non-empty sequence of numbers.
      closed: Whether 1 and infinity are orders too.
    """
    result = np.atleast_1d(_floats("orders", values, "a sequence of numbers"))
    is_vector = result.ndim == 1 and result.size
    require(is_vector, "orders", "a non-empty sequence", values)
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


def of_arguments(table: Mapping[str, Check]) -> Callable[[_Function], _Function]:
    """Decorator that checks arguments and passes on the values that the checks return.

    Args:
      table: Checks by argument name. Arguments without a check are passed on unchanged,
        and so is None for an optional argument.
    """

    def decorate(function: _Function) -> _Function:
        parameters = inspect.signature(function).parameters
        own = [
            (
                name,
                math.inf if parameter.kind is parameter.KEYWORD_ONLY else place,
                table[name],
                "Optional" in str(parameter.annotation),
            )
            for place, (name, parameter) in enumerate(parameters.items())
            if name in table
        ]
        if not own:
            return function

        @functools.wraps(function)
        def checked(*given: Any, **named: Any) -> Any:
            values: list[Any] = list(given)
            for name, place, check, is_optional in own:
                where: Any = values if place < len(values) else named
                key: Any = place if where is values else name
                if where is named and name not in named:
                    continue
                if where[key] is not None or not is_optional:
                    where[key] = check(name, where[key])
            return function(*values, **named)

        return cast(_Function, checked)

    return decorate


@contextlib.contextmanager
def renaming(names: Mapping[str, str]) -> Iterator[None]:
    """Renames arguments in errors raised inside the block.

    Args:
      names: The caller's name of each argument, by the name in the error.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        name, must, rest = str(error).partition(" must ")
        if not must or name not in names:
            raise
        raise type(error)(f"{names[name]}{must}{rest}") from error


def _floats(name: str, value: Any, wanted: str) -> np.ndarray:
    """`value` as a float64 array; TypeError if it is not of real numbers."""
    try:
        with np.errstate(over="ignore"):
            array = np.asarray(value)
            # Digits in a text are no number, and complex ones lose a part.
            if array.dtype.kind in "biufO" and not _has_text(array):
                return array.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(message(name, wanted, value)) from error
    raise TypeError(message(name, wanted, value))


def _has_text(array: np.ndarray) -> bool:
    is_object = array.dtype.kind == "O"
    return is_object and any(isinstance(one, (str, bytes)) for one in array.flat)


def _array(name: str, value: Any, rank: int, word: str) -> np.ndarray:
    result = _floats(name, value, f"a {word} of numbers")
    is_right = result.ndim == rank and result.size
    require(is_right, name, f"a non-empty {word}, by its shape", result.shape)
    if not np.all(np.isfinite(result)):
        raise ValueError(f"{name} must be finite, found NaN or infinity")
    return result
