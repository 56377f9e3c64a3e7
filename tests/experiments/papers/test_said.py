# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Numbers of the pages that are made from tables, where no other test makes them."""

import re

import numpy as np
import pytest

from dpfl.tasks import corpus
from dpfl.tasks.configs import DocsConfig
from experiments.papers import rows, sweep, trainings
from experiments.papers.index import FIGURES
from tests.experiments.papers import test_medium
from tests.experiments.papers.test_results import DOCS, text_of
from tools import corpus_counts


def table(name):
    return rows.read_csv(DOCS / f"results/{name}.csv")


def test_the_docstrings_that_there_are():
    [found] = table("docs_corpus")
    sentences = f"{round(int(found['sentences']), -3):,}"
    words = f"{int(found['words']) / 1e6:.1f}"
    page = text_of("tasks")
    assert (
        f"With Python {found['python']} there are {found['modules']} modules of "
        f"{found['min_sentences']} sentences or more, with {sentences} sentences and "
        f"{words} million words ([counted](results/docs_corpus.csv)). "
        f"{found['clients']} of them are clients."
    ) in page
    assert f"a file of {float(found['kept_megabytes']):.0f} MB" in page
    [guessed] = table("docs_frequencies")
    assert guessed["clients"] == found["clients"]
    assert f"docstrings of {found['clients']} modules" in text_of("../README")


def test_modules_that_are_too_small_are_not_counted():
    sentences = np.array([1, 2, 1, 2, 3], np.int32)
    sizes = np.array([2, 1, 2], np.int64)
    words = np.zeros(9, np.int32)
    found = corpus.Corpus(("a", "b", "c"), ("word",), words, sentences, sizes)
    config = DocsConfig(min_sentences=2, test_fraction=0.5)
    assert corpus_counts.counts(found, config) == {
        "min_sentences": 2,
        "modules": 2,
        "sentences": 4,
        "words": 8,
        "clients": 1,
        "test_modules": 1,
    }


# How rows of the page begin, and what the table calls them.
SOAKS = {
    "SIGKILLs of trainings": "trainings killed",
    "SIGKILLs of the loop": "loops killed",
    "SIGKILLs of one of two workers": "workers killed",
    "signals": "signals",
    "full disks during a training": "full disks during a training",
    "full disks during the loop": "full disks during the loop",
    "hostile updates": "hostile updates",
    "command lines": "command lines",
}


def test_what_the_soak_found():
    page = (DOCS / "reliability.md").read_text(encoding="utf-8")
    found = {row["trouble"]: row for row in table("soak")}
    assert sorted(found) == sorted(SOAKS.values())
    for words, trouble in SOAKS.items():
        row = found[trouble]
        faults = row["faults"]
        if row["unfinished"] != "0":
            faults += f" ({row['unfinished']})"
        end = f"| {int(row['count']):,} | {faults} |"
        assert re.search(rf"^\| {words}.*{re.escape(end)}$", page, re.M), trouble
    killed = found["workers killed"]
    said = f"{killed['faults']} differing bits in {killed['count']} kills"
    assert f"{said} ([seed {killed['seeds']}]" in text_of("several_machines")


@pytest.mark.parametrize(
    ("name", "said", "least", "most"),
    [
        ("equal_bits", "a quarter of an hour", 0.12, 0.33),
        ("equal_bits_docs", "under an hour", 0.4, 0.95),
    ],
)
def test_hours_of_the_readme(name, said, least, most):
    assert f"{len(test_medium.runs(name))} runs in {said}" in text_of("../README")
    assert least < test_medium.processor_seconds(name) / 2 / 3600 < most


def test_the_readmes_first_command_takes_less_than_a_minute():
    found = {row["row"]: float(row["seconds"] or 0) for row in table("benchmarks")}
    # Its 60 rounds, with what is around them.
    assert 60 * found["digits: l2_csgm"] + found["start_up: dpfl-train"] < 60
    assert "for less than a minute" in text_of("../README")


COLUMNS = {"emnist": 1, "stackoverflow": 2}
HOURS = {"h": 1, "days": 24, "months": 24 * 30.4}


def clients(name):
    """Clients in all rounds of all runs at the paper scale, by task."""
    found = {"emnist": 0, "stackoverflow": 0}
    for work in FIGURES[name].grid(sweep.Setting("paper")):
        if isinstance(work, trainings.Training):
            found[work.task] += work.rounds * work.cohort_size
    return found


def paper_lines():
    page = (DOCS / "figures.md").read_text(encoding="utf-8")
    part = page[page.index("## Time at paper scale") :]
    lines = part[: part.index("\n## ")].splitlines()
    return [line.strip("| ").split(" |") for line in lines if line.startswith("| `")]


@pytest.mark.parametrize("cells", paper_lines(), ids=lambda cells: cells[0][:20])
def test_time_at_paper_scale(cells):
    """Clients of each figure, by the seconds of one that the page has above."""
    text = text_of("figures")
    fast, slow = re.search(
        r"F-EMNIST takes ([\d.]+) to ([\d.]+) processor seconds", text
    ).groups()
    [lstm] = re.search(r"Stack Overflow takes ([\d.]+):", text).groups()
    *_, time = cells
    for name in re.findall(r"`(\w+)`", cells[0]):
        found = clients(name)
        for task, column in COLUMNS.items():
            said = float(cells[column].strip() or 0)
            assert said == pytest.approx(found[task] / 1e6, rel=0.05, abs=1e-9)
        both = [
            (found["emnist"] * float(each) + found["stackoverflow"] * float(lstm))
            / (32 * 3600)
            for each in (fast, slow)
        ]
        if "half an hour" in time:
            assert 0.2 < both[0] < both[1] < 0.7
            continue
        numbers, unit = re.fullmatch(r" ([\d.]+(?: to [\d.]+)?) (\w+)", time).groups()
        hours = [float(number) * HOURS[unit] for number in numbers.split(" to ")]
        assert hours[0] == pytest.approx(both[0], rel=0.15)
        assert hours[-1] == pytest.approx(both[1], rel=0.15)


def test_what_the_stopped_clock_gains():
    found = {row["number"]: float(row["value"]) for row in table("exact_numbers")}
    less = 1 - found["z, q = 0.5, stopped"] / found["z, q = 0.5, Renyi"]
    assert f"with some {less:.0%} less noise than `rdp`" in text_of("privacy/README")


def test_ratios_of_the_audit():
    lines = rows.read_csv(DOCS / "privacy/audit.csv")
    found = rows.where(lines, check="epsilon")
    ratios, attainable = (rows.numbers(found, name) for name in ("ratio", "attainable"))
    assert min(ratios) > 0.5
    assert (
        f"Of the {len(found)} lines none is at or below one half: ratios are from "
        f"{min(ratios):.2f} to {max(ratios):.2f}, and what is attainable from "
        f"{min(attainable):.2f} to {max(attainable):.2f}."
    ) in text_of("privacy/audit")


def test_the_optimal_factorization_for_those_who_come_back():
    found = rows.where(table("encoders"), participations="16", bands_or_buffers="")
    errors = {row["method"]: float(row["root_mean_error"]) for row in found}
    less = 1 - errors["optimal-epochs"] / errors["toeplitz"]
    assert f"It is {less:.0%} below the best Toeplitz C" in text_of("factorization")


def test_how_far_seeds_of_dome_are_apart():
    runs = {}
    for row in table("dome_learning"):
        if row["excess_error"]:
            cell = runs.setdefault((row["row"], row["column"]), [])
            cell.append(float(row["excess_error"]))
    far, next_to = sorted(runs.values(), key=lambda e: min(e) - max(e))[:2]
    assert far == runs["`energy_fraction=0.99`", "no noise"]
    assert (
        f"have errors from {min(far):.3f} to {max(far):.3f}, and in the other cells "
        f"errors are up to {max(next_to) - min(next_to):.2f} apart"
    ) in text_of("dome")


def test_fixed_points_beside_each_other():
    [row] = rows.where(table("factorization_time"), momentum="0.9")
    fast, plain = float(row["seconds"]), float(row["plain_seconds"])
    assert f"took {fast:.2g} and {plain:.2g} for β=0.9" in text_of("figures")


def test_noise_of_digits_and_of_a_large_model():
    found = {
        row["number"]: f"{float(row['value']):{row['format']}}"
        for row in table("exact_numbers")
        if row["page"] == "tasks"
    }
    small, large = found["z, d = 15994"], found["z, d = 1048576"]
    times = found["total noise over that of the small model"]
    page = text_of("tasks")
    assert f"{small} for d=15,994 and {large} for d=1,048,576" in page
    assert f"{times} times smaller with the small model" in page
