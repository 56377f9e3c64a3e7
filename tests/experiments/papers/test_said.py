# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Numbers of the pages that are made from tables, where no other test makes them."""

import contextlib
import re
import sqlite3
import statistics

import numpy as np
import pytest

from dpfl.tasks import corpus, docs
from dpfl.tasks.configs import DocsConfig
from experiments.papers import result_rows, sweep, trainings
from experiments.papers.index import FIGURES
from tests.experiments.papers import test_medium
from tests.experiments.papers.test_results import DOCS, text_of
from tools import corpus_counts, paper_client_costs, rehearse


def table(name):
    return result_rows.read_csv(DOCS / f"results/{name}.csv")


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
    assert f"took {found['processor_seconds']} processor seconds, on a busy" in page
    [guessed] = table("docs_frequencies")
    assert guessed["clients"] == found["clients"]
    assert f"docstrings of {found['clients']} modules" in text_of("../README")


def test_the_settings_of_docstrings_are_the_best_that_were_tried():
    found = result_rows.where(
        table("medium_validation"), task="docs", mechanism="gaussian", cohort_size="100"
    )
    best = min(found, key=lambda row: float(row["validation_loss"]))
    assert len(found) == 5
    assert float(best["clip_norm"]) == docs.PACKAGES_DEFAULTS.clip_norm
    assert float(best["server_lr"]) == docs.PACKAGES_DEFAULTS.server_lr
    clip, rate = best["clip_norm"], best["server_lr"]
    said = f"clip, {clip}, and the server's rate, {rate}, are the best of five settings"
    assert said in text_of("tasks")


def test_how_many_settings_were_tried():
    counts = [
        len(table(name))
        for name in ("medium_validation", "mnist_validation", "mnist_search")
    ]
    assert counts[2] == 6
    page = text_of("figures")
    assert f"[{counts[0]} trials](results/medium_validation.csv)" in page
    assert f"[{counts[1]} more](results/mnist_validation.csv), by hand" in page


def test_other_clips_are_as_good_each_at_its_best_rate():
    found = result_rows.where(
        table("medium_validation"),
        model="cnn",
        mechanism="gaussian",
        cohort_size="10",
        server_optimizer="",
        noise_multiplier="0.079",
    )
    best = {
        clip: max(
            result_rows.numbers(
                result_rows.where(found, clip_norm=clip), "validation_accuracy"
            )
        )
        for clip in result_rows.distinct(found, "clip_norm")
    }
    assert best.keys() == {"0.1", "0.3", "1.0"}
    for clip in ("0.1", "1.0"):
        assert len(result_rows.where(found, clip_norm=clip)) == 3
        assert abs(best[clip] - best["0.3"]) < 0.003
    said = "clip 0.1 or 1, each at the best of three rates, was within 0.3 points of it"
    assert said in text_of("figures")


def test_how_large_a_made_up_file_is(tmp_path):
    """By a file of fewer clients, of a size that is in proportion to the examples."""
    rehearse.write_emnist(tmp_path, clients=40, examples=198)
    path = tmp_path / "emnist_all.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as file:
        [[examples]] = file.execute("SELECT COUNT(*) FROM examples")
    # Those for testing are an eighth as many.
    size = path.stat().st_size / examples * 3400 * (198 + 198 // 8)
    said = f"`--clients=3400 --examples=198` is the paper's size, {size / 1e9:.1f} GB."
    assert said in text_of("tasks")


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
        ("equal_bits", "quarter of an hour", 0.12, 0.33),
        ("equal_bits_docs", "hour or less", 0.4, 0.95),
    ],
)
def test_hours_of_the_readme(name, said, least, most):
    assert f"{len(test_medium.runs(name))} runs in an estimated {said}" in text_of(
        "../README"
    )
    assert least < test_medium.processor_seconds(name) / 2 / 3600 < most


def test_the_readmes_first_command_takes_less_than_a_minute():
    found = {row["row"]: float(row["seconds"] or 0) for row in table("benchmarks")}
    # Its 60 rounds, with what is around them.
    assert 60 * found["digits: l2_csgm"] + found["start_up: dpfl-train"] < 60
    assert "for less than a minute" in text_of("../README")


PROCESSORS = 32


def client_seconds(task):
    """What a client of a task takes with each seed."""
    found = result_rows.where(table("paper_client_costs"), task=task)
    assert [row["seed"] for row in found] == ["1", "2", "3"]
    return result_rows.numbers(found, "client_processor_seconds")


def clients(name):
    """Clients in all rounds of all runs at the paper scale, by task."""
    found = {"emnist": 0, "stackoverflow": 0}
    for work in FIGURES[name].grid(sweep.Setting("paper")):
        if isinstance(work, trainings.Training) and work.task in found:
            found[work.task] += work.rounds * work.cohort_size
    return found


def in_millions(count):
    millions = count / 1e6
    return f"{millions:.3g}" if millions >= 100 else f"{millions:.2g}" * (count > 0)


def in_words(hours):
    """A time with two digits, in the unit that suits it."""
    if hours < 1:
        return f"{60 * hours:.2g} min"
    if hours < 48:
        return f"{hours:.2g} h"
    if hours < 60 * 24:
        return f"{hours / 24:.2g} days"
    return f"{hours / 24 / 30.4:.2g} months"


def paper_cells(name):
    """The cells of a figure, made from its grid and from what a client takes."""
    found = clients(name)
    seconds = sum(
        count * statistics.mean(client_seconds(task)) for task, count in found.items()
    )
    hours = seconds / PROCESSORS / 3600
    return [*map(in_millions, found.values()), in_words(hours)]


def paper_lines():
    page = (DOCS / "figures.md").read_text(encoding="utf-8")
    part = page[page.index("## Time at paper scale") :]
    lines = part[: part.index("\n## ")].splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("| `")
    ]


@pytest.mark.parametrize("cells", paper_lines(), ids=lambda cells: cells[0][:20])
def test_time_at_paper_scale(cells):
    """Each cell follows from the grids and the table of what a client takes."""
    for name in re.findall(r"`(\w+)`", cells[0]):
        assert cells[1:] == paper_cells(name)


def test_each_grid_of_the_paper_scale_has_its_time():
    """But for those that train nothing."""
    said = {name for line in paper_lines() for name in re.findall(r"`(\w+)`", line[0])}
    assert said == {
        name
        for name, figure in FIGURES.items()
        if "paper" in figure.scales and any(clients(name).values())
    }


def test_what_a_client_of_the_paper_scale_takes():
    measured = table("paper_client_costs")
    fast, slow = (client_seconds(task) for task in ("emnist", "stackoverflow"))
    examples = result_rows.distinct(measured, "examples")
    others = statistics.mean(result_rows.numbers(measured, "processors_of_others"))
    page = text_of("figures")
    assert (
        f"A client of F-EMNIST takes {statistics.mean(fast):.3f} processor seconds "
        f"({min(fast):.3f} to {max(fast):.3f}), and one of Stack Overflow "
        f"{statistics.mean(slow):.2f} ({min(slow):.2f} to {max(slow):.2f}): the mean "
        "and the range of three seeds ([measured](results/paper_client_costs.csv), "
    ) in page
    assert f"{' and '.join(examples)} of a client on average" in page
    assert f"Other programs used {others:.1f} of the two processors meanwhile" in page


def test_a_client_takes_the_difference_of_two_runs():
    """Whatever both runs take, start-up for instance, is none of its time."""
    few = paper_client_costs.Taken(10, 30.0, 60.0, 45.0)
    many = paper_client_costs.Taken(50, 40.0, 40.0, 55.0)
    found = paper_client_costs.difference("emnist", 3, few, many)
    assert found.client_processor_seconds == 0.25 and found.processors_of_others == 1
    with pytest.raises(ValueError, match="more than 50 .* found 10$"):
        paper_client_costs.difference("emnist", 3, many, few)


def test_rows_of_clients_are_differences():
    for row in table("paper_client_costs"):
        number = {name: float(v) for name, v in row.items() if name != "task"}
        more = number["many_clients"] - number["few_clients"]
        seconds = number["many_processor_seconds"] - number["few_processor_seconds"]
        wanted = number["client_processor_seconds"]
        assert seconds / more == pytest.approx(wanted, abs=0.11 / more)


@pytest.mark.parametrize("task", paper_client_costs.SIZES)
def test_flags_of_clients_are_those_of_the_figure(task):
    flags = paper_client_costs.flags_of(task)
    assert flags["flagfile"] == f"tasks/{task}.flags"
    assert (flags["mechanism"], flags["compression_rate"]) == ("l2_csgm", 100)
    assert "seed" in flags and flags["epsilon"] == 10


def test_what_the_stopped_clock_gains():
    found = {row["number"]: float(row["value"]) for row in table("exact_numbers")}
    less = 1 - found["z, q = 0.5, stopped"] / found["z, q = 0.5, Renyi"]
    assert f"with some {less:.0%} less noise than `rdp`" in text_of("privacy/README")


def test_ratios_of_the_audit():
    lines = result_rows.read_csv(DOCS / "privacy/audit.csv")
    found = result_rows.where(lines, check="epsilon")
    ratios, attainable = (
        result_rows.numbers(found, name) for name in ("ratio", "attainable")
    )
    assert min(ratios) > 0.5
    small = [row for row in found if float(row["delta"]) < 0.01]
    assert {float(row["delta"]) for row in small} == {1e-3, 1e-4} and len(small) == 11
    assert "Eleven lines have 1e-3 or 1e-4," in text_of("privacy/audit")
    assert (
        f"Of the {len(found)} lines none is at or below one half: ratios are from "
        f"{min(ratios):.2f} to {max(ratios):.2f}, and what is attainable from "
        f"{min(attainable):.2f} to {max(attainable):.2f}."
    ) in text_of("privacy/audit")


def test_the_optimal_factorization_for_those_who_come_back():
    found = result_rows.where(
        table("encoders"), participations="16", bands_or_buffers=""
    )
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
    [row] = result_rows.where(table("factorization_time"), momentum="0.9")
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
