# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.pages import svg

LIMITS = {"allow_nan": False, "allow_infinity": False, "width": 32}


def chart(lines, **options):
    """A chart as a tree."""
    return ElementTree.fromstring(svg.chart(lines, "t", "x", "y", **options))


def places(tree, color=0):
    """Pixels of the lines with a color."""
    own = [x for x in tree.iter("path") if x.get("stroke") == f"var(--c{color})"]
    pairs = [pair for path in own for pair in path.get("d")[1:].split("L")]
    return [tuple(map(float, pair.split())) for pair in pairs]


def test_a_line_goes_from_corner_to_corner():
    tree = chart([svg.Line("a", [(0, 0), (1, 1), (2, 4)])])
    (x0, y0), (x1, y1), (x2, y2) = places(tree)
    assert x0 < x1 < x2 and x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    # Up is smaller in pixels; one of four parts, and four.
    assert y0 - y1 == pytest.approx((y0 - y2) / 4, abs=0.2) and y0 > y2
    assert 0 < x0 and x2 < svg.WIDTH and 0 < y2 and y0 < svg.HEIGHT


def test_decades_are_equally_far_apart():
    tree = chart([svg.Line("a", [(1, 0), (10, 1), (100, 2)])], is_logarithmic=True)
    (x0, _), (x1, _), (x2, _) = places(tree)
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert {"1", "10", "100"} <= {text.text for text in tree.iter("text")}


@settings(max_examples=30, deadline=None)
@given(
    points=st.lists(
        st.tuples(st.floats(**LIMITS), st.floats(**LIMITS)), min_size=1, max_size=9
    ),
    is_logarithmic=st.booleans(),
)
def test_any_finite_points_are_within_the_picture(points, is_logarithmic):
    if is_logarithmic:
        points = [(abs(x) or 1.0, y) for x, y in points]
    tree = chart([svg.Line("a", points)], is_logarithmic=is_logarithmic)
    for x, y in places(tree):
        assert 0 <= x <= svg.WIDTH and 0 <= y <= svg.HEIGHT


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0.79, 0.883, [0.8, 0.82, 0.84, 0.86, 0.88]),
        (1, 30, [5, 10, 15, 20, 25, 30]),
    ],
)
def test_ticks_are_round(low, high, expected):
    assert svg.ticks(low, high) == pytest.approx(expected)


def test_long_line_is_thinned_but_keeps_its_ends():
    points = [(float(i), 0.0) for i in range(100_000)]
    found = svg.thinned(points)
    assert len(found) == svg.MOST_POINTS
    assert found[0] == points[0] and found[-1] == points[-1]
    assert len(svg.chart([svg.Line("a", points)], "t", "x", "y")) < 10_000


def test_a_legend_names_lines_and_colors():
    lines = [svg.Line("a<b", [(0, 1)]), svg.Line("c", [(1, 2)], 3, True)]
    text = svg.chart(lines, 'a "title"', "x", "y")
    assert "a&lt;b" in text and "&quot;title&quot;" in text
    assert re.search(r"--c3\);border-style:dashed", text)
    assert "legend" not in svg.chart(lines[:1], "t", "x", "y")
    assert svg.chart([svg.Line("a", [])], "t", "x", "y") == ""
