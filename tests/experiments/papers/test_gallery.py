# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The gallery has each figure, with its picture, its commands and its hours."""

import re
from pathlib import Path

import pytest

from experiments.papers import medium
from experiments.papers.index import FIGURES
from tests.experiments.papers import test_medium

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "gallery.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"### `(\w+)`\n(.*?)(?=\n##|\Z)", PAGE, re.DOTALL))


def test_each_figure_has_a_section():
    assert set(SECTIONS) == set(FIGURES)


@pytest.mark.parametrize("name", FIGURES)
def test_a_section_says_what_there_is(name):
    text, figure = SECTIONS[name], FIGURES[name]
    for picture in (f"images/{name}.png", f"images/{name}_medium.png"):
        assert (f"({picture})" in text) == (DOCS / picture).exists()
    command = f"dpfl-reproduce --figure={name}"
    lines = text.splitlines()
    assert (command in lines) == ("small" in figure.scales)
    if "medium" in figure.scales:
        tasks = {work.task for work in test_medium.runs(name)}
        data = " --data_dir=FOLDER" if medium.MNIST in tasks else ""
        assert f"{command} --scale=medium{data}" in lines
    else:
        assert "--scale=medium" not in text
    reading = re.sub(r"!\[.*\)", "", text.split("```")[0]).strip()
    assert 80 < len(reading) < 400


@pytest.mark.parametrize("name", test_medium.NAMES)
def test_hours_are_those_of_all_runs(name):
    hours, count = re.search(
        r"Medium scale: ([\d.]+) hours, (\d+) runs", SECTIONS[name]
    ).groups()
    assert int(count) == len(test_medium.runs(name))
    seconds = test_medium.processor_seconds(name)
    assert float(hours) == pytest.approx(seconds / 2 / 3600, abs=0.051)
