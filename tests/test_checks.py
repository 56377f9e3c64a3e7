# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math

import numpy as np
import pytest

from dpfl import checks
from tests.refusals import refuses


@pytest.mark.parametrize(
    ("check", "good", "bad", "bounds"),
    [
        (checks.positive, [1e-300, 3, np.float32(2)], 0, [0]),
        (checks.nonnegative, [0, 0.5], -1e-9, [0]),
        (checks.fraction, [1e-9, 1], 1.5, [0, 1]),
        (checks.probability, [0, 1], -0.1, [0, 1]),
        (checks.delta, [1e-300, 0.5], 1.0, [1e-300, 1]),
        (checks.delta, [1e-300], 5e-324, [1e-300, 1]),
        (checks.integer, [1, np.int64(7)], 0, [1]),
        (checks.positive, [], math.nan, ["finite"]),
        (checks.positive, [], math.inf, ["finite"]),
    ],
)
def test_values_out_of_range_are_refused(check, good, bad, bounds):
    for value in good:
        assert check("x", value) == value
    with refuses(ValueError, "x", *bounds, bad):
        check("x", bad)


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        (checks.positive, True),
        (checks.positive, "1"),
        (checks.integer, 1.0),
        (checks.integer, True),
        (checks.boolean, 1),
    ],
)
def test_values_of_wrong_type_are_refused(check, bad):
    with refuses(TypeError, "x", repr(bad)):
        check("x", bad)


def test_unknown_choice_is_refused():
    assert checks.choice("kind", "b", {"b": 1, "a": 2}) == "b"
    for bad in ("c", None, 3):
        with refuses(ValueError, "kind", "a, b", repr(bad)):
            checks.choice("kind", bad, {"b": 1, "a": 2})


def test_orders():
    assert checks.orders(2).tolist() == [2.0]
    assert checks.orders([1, math.inf], closed=True).tolist() == [1.0, math.inf]
    with refuses(ValueError, "orders", 1, 1.0):
        checks.orders([2, 1])
    with refuses(ValueError, "orders", 1, 0.5):
        checks.orders([0.5], closed=True)
    with refuses(ValueError, "orders"):
        checks.orders([])


def test_arrays():
    assert checks.vector("v", [1, 2]).dtype == np.float64
    with refuses(ValueError, "v", "(1, 1)"):
        checks.vector("v", [[1.0]])
    with refuses(ValueError, "m", "finite", "NaN"):
        checks.matrix("m", [[1.0, math.nan]])
    for wrong in ("12", ["1", "2"], [1, "2"], [b"1"], [1j], [[1], [2, 3]], [None], {1}):
        for name, check in (
            ("v", checks.vector),
            ("m", checks.matrix),
            ("orders", lambda _, value: checks.orders(value)),
        ):
            with refuses((TypeError, ValueError), name):
                check(name, wrong)


def test_renaming_changes_only_the_leading_name():
    known = {"bands": "matrix_bands"}
    with refuses(ValueError, "matrix_bands", 1, 0):
        with checks.renaming(known):
            checks.integer("bands", 0)
    with refuses(TypeError, "matrix_bands", 1.5):
        with checks.renaming(known):
            checks.integer("bands", 1.5)
    with refuses(ValueError, "rank", 1, 0):
        with checks.renaming(known):
            checks.integer("rank", 0)
