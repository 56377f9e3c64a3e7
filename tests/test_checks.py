# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math

import numpy as np
import pytest

from dpfl import checks
from tests import refusals


@pytest.mark.parametrize(
    ("check", "good", "bad", "wanted"),
    [
        (checks.positive, [1e-300, 3, np.float32(2)], 0, "greater than 0"),
        (checks.nonnegative, [0, 0.5], -1e-9, "at least 0"),
        (checks.fraction, [1e-9, 1], 1.5, "greater than 0 and at most 1"),
        (checks.probability, [0, 1], -0.1, "at least 0 and at most 1"),
        (checks.delta, [1e-300, 0.5], 1.0, "at least 1e-300 and less than 1"),
        (checks.delta, [1e-300], 5e-324, "at least 1e-300 and less than 1"),
        (checks.integer, [1, np.int64(7)], 0, "at least 1"),
        (checks.positive, [], math.nan, "a finite number"),
        (checks.positive, [], math.inf, "a finite number"),
    ],
)
def test_values_out_of_range_are_refused(check, good, bad, wanted):
    for value in good:
        assert check("x", value) == value
    with pytest.raises(ValueError) as caught:
        check("x", bad)
    assert str(caught.value) == f"x must be {wanted}, found {bad!r}"


@pytest.mark.parametrize(
    ("check", "bad", "wanted"),
    [
        (checks.positive, True, "a number"),
        (checks.positive, "1", "a number"),
        (checks.integer, 1.0, "an integer"),
        (checks.integer, True, "an integer"),
        (checks.boolean, 1, "True or False"),
    ],
)
def test_values_of_wrong_type_are_refused(check, bad, wanted):
    with pytest.raises(TypeError) as caught:
        check("x", bad)
    assert str(caught.value) == f"x must be {wanted}, found {bad!r}"


def test_unknown_choice_is_refused():
    assert checks.choice("kind", "b", {"b": 1, "a": 2}) == "b"
    for bad in ("c", None, 3):
        with pytest.raises(ValueError) as caught:
            checks.choice("kind", bad, {"b": 1, "a": 2})
        assert str(caught.value) == f"kind must be one of a, b, found {bad!r}"


def test_optional_values_may_be_none():
    assert checks.optional_integer("x", None) is None
    with pytest.raises(ValueError, match="x must be at most 5, found 6"):
        checks.optional_integer("x", 6, 1, 5)


def test_orders():
    assert checks.orders(2).tolist() == [2.0]
    assert checks.orders([1, math.inf], closed=True).tolist() == [1.0, math.inf]
    with pytest.raises(ValueError, match="finite and greater than 1, found 1.0"):
        checks.orders([2, 1])
    with pytest.raises(ValueError, match="at least 1, found 0.5"):
        checks.orders([0.5], closed=True)
    with pytest.raises(ValueError, match="orders must be a non-empty sequence"):
        checks.orders([])


def test_arrays():
    assert checks.vector("v", [1, 2]).dtype == np.float64
    with pytest.raises(ValueError, match=r"v must be a non-empty vector, found shape"):
        checks.vector("v", [[1.0]])
    with pytest.raises(ValueError, match="m must be finite, found NaN or infinity"):
        checks.matrix("m", [[1.0, math.nan]])
    for wrong in ("12", ["1", "2"], [1, "2"], [b"1"], [1j], [[1], [2, 3]], [None], {1}):
        for check in (
            checks.vector,
            checks.matrix,
            lambda _, value: checks.orders(value),
        ):
            with pytest.raises((TypeError, ValueError), match="^(orders|v) must be"):
                check("v", wrong)


def test_renaming_changes_the_name_in_front_alone():
    names = {"bands": "matrix_bands"}
    with pytest.raises(ValueError, match="^matrix_bands must be at least 1, found 0$"):
        with checks.renaming(names):
            checks.integer("bands", 0)
    with pytest.raises(TypeError, match="^matrix_bands must be an integer"):
        with checks.renaming(names):
            checks.integer("bands", 1.5)
    with pytest.raises(ValueError, match="^rank must be at least 1, found 0$"):
        with checks.renaming(names):
            checks.integer("rank", 0)


@pytest.mark.parametrize(
    ("parts", "is_named"),
    [
        (("clip_norm", -1.5), True),
        (("norm", -1.5), False),
        (("clip_norm", 1.5), False),
        (("clip_norm", -1), False),
        (("clip_norm", "gaussian", "/tmp/a.npz", 12), True),
        (("clip_norm", 2), False),
    ],
)
def test_refusals_match_whole_words(parts, is_named):
    text = "clip_norm must fit 'gaussian' of /tmp/a.npz and 12, found -1.5"
    assert refusals.names(text, *parts) == is_named


def test_refusals_check_type_name_and_value():
    with refusals.refuses(ValueError, "delta", 2.0):
        checks.delta("delta", 2.0)
    with pytest.raises(AssertionError), refusals.refuses(ValueError, "epsilon"):
        checks.delta("delta", 2.0)
