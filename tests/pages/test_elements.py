# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math
from html import parser

import pytest

from dpfl.pages import elements

HOSTILE = "<script>alert('x')</script>\" onload=\"y"


class Reader(parser.HTMLParser):
    """Collects tags, attributes and text, and holds that tags close in order."""

    VOID = ("meta", "br", "circle")

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.data, self.open = [], {}, [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, []).append(value)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.data.append(data)


@pytest.mark.parametrize(
    "element",
    [
        elements.heading(HOSTILE),
        elements.paragraph(HOSTILE),
        elements.cards({HOSTILE: HOSTILE}),
        elements.facts({HOSTILE: HOSTILE}),
        elements.facts({"nested": {HOSTILE: [HOSTILE]}}),
        elements.table([{"a": HOSTILE}], {"a": HOSTILE}),
        elements.folded(HOSTILE, ""),
    ],
)
def test_markup_in_a_value_is_text(element):
    found = Reader(elements.page(HOSTILE, [element]))
    assert "script" not in found.tags
    assert "onload" not in found.attributes
    assert any(HOSTILE in part for part in found.data)


def test_a_page_loads_nothing():
    found = Reader(elements.page("a", [elements.facts({"b": 1})]))
    assert not {"src", "href", "srcset"} & set(found.attributes)
    assert not {"link", "script", "img", "iframe"} & set(found.tags)
    assert any("default-src 'none'" in each for each in found.attributes["content"])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.inf, "∞"),
        (True, "yes"),
        (0.883221, "0.8832"),
        (1506250944.0, "1,506,250,944"),
        ({"bands": 2}, "bands 2"),
    ],
)
def test_values_are_formatted_for_readers(value, text):
    assert elements.shown(value) == text
