# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Each number of docs/benchmarks.md is that of the row that its line names."""

import decimal
import re
import statistics

import pytest

from experiments.papers import result_rows
from tests.experiments.papers.test_numbers import is_rounded
from tests.experiments.papers.test_results import text_of
from tests.experiments.test_costs import DOCS, MEASURED, NAMED, NUMBER

PAGE = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
# By what --rows above a table begins with: the labels of its lines, and the rows that
# they are of. Braces stand for a word that depends on the column.
LINES = {
    "plain": {
        "the same steps in one `tf.function`": "plain",
        "TFF's own loop, functional model": "tff_iterator",
        "TFF's default loop, Keras model": "tff_default",
        "dpfl's process, TFF's `UnweightedMeanFactory`": "mean",
        "dpfl's process, `none`": "none",
        "dpfl's process, `gaussian`": "gaussian",
        "dpfl's process, `l2_csgm`, γ=0.01, rotation included": "csgm",
        "peak memory of Python, with all of these, MiB": "memory_python",
        "peak memory of the worker, with the last three, MiB": "memory_worker",
    },
    "digits_rounds": {
        "the same steps alone": "digits: steps alone",
        "`none`": "digits: none",
        "`gaussian`": "digits: gaussian",
        "`l2_csgm`, γ=0.1": "digits: l2_csgm",
    },
    "sizes": {
        "95,918 (`small_cnn`)": "small_cnn, {}",
        "209,662 (`2nn`)": "2nn, {}",
        "1,018,174 (`cnn`)": "cnn, {}",
    },
    "cohorts": {
        "peak with 10 clients a round": "worker: peak at n=10",
        "peak with 1000": "worker: peak at n=1000",
        "after 10 rounds of cohorts of other sizes": (
            "worker: after 10 rounds of other sizes"
        ),
        "after 60": "worker: after 60 rounds of other sizes",
    },
    "aggregation": {
        "TFF's mean": "aggregate: TFF mean",
        "TFF `gaussian_fixed`": "aggregate: TFF gaussian_fixed",
        "`none`": "aggregate: none",
        "`gaussian`": "aggregate: gaussian",
        "`l2_csgm`, Hadamard, γ=1": "aggregate: csgm hadamard 1",
        "`l2_csgm`, Hadamard, γ=0.1": "aggregate: csgm hadamard 0.1",
        "`l2_csgm`, Hadamard, γ=0.01": "aggregate: csgm hadamard 0.01",
    },
    "rotations": {
        "TFF's Hadamard rotation of 2²⁰ coordinates": "rotate: TFF hadamard",
        "dpfl's": "rotate: hadamard",
        "dpfl's Fourier rotation of 1,018,174": "rotate: dft",
        "mask at γ=0.01, a draw a coordinate": "mask: a draw per coordinate",
        "mask drawn by gaps": "mask: gaps",
    },
    "sketch_aggregation": {
        "TFF's `DistributedDpSumFactory`, discrete Gaussian, 16 bits": (
            "secure: TFF discrete Gaussian"
        ),
        "`distributed_discrete_gaussian`, 16 bits": "secure: discrete Gaussian",
        "`distributed_discrete_gaussian`, 7 bits": "secure: discrete Gaussian, 7 bits",
        "`distributed_skellam`, 16 bits": "secure: Skellam",
        "`sketched_ddg`, r = 10, 16 bits": "secure: sketched 10",
        "`sketched_ddg`, r = 10, 7 bits": "secure: sketched 10, 7 bits",
        "`sketched_ddg`, r = 100, 16 bits": "secure: sketched 100",
    },
    "calibration": {
        "100, 7, 2²⁰": "calibrate 1e2, 7 bits{}",
        "10,000, 13, 10⁶": "calibrate 1e4, 13 bits{}",
        "100,000, 18, 10⁶": "calibrate 1e5, 18 bits{}",
        "1,000,000, 22, 10⁷": "calibrate 1e6, 22 bits{}",
        "100, 3, 2²⁰: refused": "refuse 1e2, 3 bits{}",
        "10,000, 12, 10⁴: refused": "refuse 1e4, 12 bits{}",
    },
    "long_run": {
        "10,000 rounds of the loop around a process that computes nothing": (
            "loop alone: {}"
        ),
        "500 rounds of training of a network of 15,994 parameters": "training: {}",
    },
}
# By the head of a column: the columns of what was measured, the unit, and the word that
# stands in the place of the braces.
HEADS = {
    "s": (("seconds",), 1, ""),
    "s a round": (("seconds",), 1, ""),
    "ms": (("seconds",), 1000, ""),
    "ms a round": (("seconds",), 1000, "a round"),
    "processor time": (("processor_seconds",), 1, ""),
    "one release": (("seconds",), 1, ""),
    "sampled": (("seconds",), 1, ", sampled"),
    "MiB": (("mebibytes",), 1, ""),
    "memory, MiB": (("mebibytes",), 1, "memory"),
    "ratio": (("ratio",), 1, ""),
    "ratio to the steps alone": (("ratio",), 1, ""),
    "ratio to TFF's mean": (("ratio",), 1, ""),
    "ratio to TFF's": (("ratio",), 1, ""),
    "ratio of time": (("ratio",), 1, "a round"),
    "ratio of memory": (("ratio",), 1, "memory"),
    **{
        f"n={n}": (("seconds", "processor_seconds"), 1, f"n={n}")
        for n in (10, 100, 1000)
    },
}


def tables(page):
    """Yields the group of each table of a page, its heads, and its lines of cells."""
    for match in re.finditer(r"(?:^\|.*\n)+", page, re.MULTILINE):
        heads, _, *lines = (
            [cell.strip() for cell in line.strip().strip("|").split("|")]
            for line in match.group(0).splitlines()
        )
        words = NAMED.findall(page[: match.start()])[-1]
        yield words.split(",")[0], heads, lines


def measured(name, columns):
    """What there is of a row, which need not be there, in these columns.

    The row that a whole round is compared with has no ratio, which would be 1.
    """
    for row in result_rows.where(MEASURED, row=name):
        # The first of several runs has a table, the others have a sentence.
        if re.search(r": \d$", row["run"]):
            continue
        own = {**row, "ratio": "1"} if name == "plain" else row
        return [float(own[column]) for column in columns if own[column]]
    return []


def differs(label, name, head, cell):
    """Whether a cell says anything but what was measured."""
    columns, scale, word = HEADS[head]
    if label.endswith("MiB"):
        columns = ("mebibytes",) if columns == ("seconds",) else ("ratio",)
    found = [value * scale for value in measured(name.format(word), columns)]
    said = NUMBER.findall(cell)
    return len(said) != len(found) or not all(map(is_said, said, found))


def is_said(text, value):
    return is_rounded(text, "", value)


def faults(page):
    """The cells of a page that are not those of the rows that their lines name."""
    for group, heads, lines in tables(page):
        for label, *line in lines:
            name = LINES[group][label]
            for head, cell in zip(heads[1:], line):
                if head == "of":
                    [row] = result_rows.where(MEASURED, run="rounds", row=name)
                    is_wrong = cell.strip("`") != row["of"]
                else:
                    is_wrong = differs(label, name, head, cell)
                if is_wrong:
                    yield label, head, cell


def test_each_cell_is_of_the_row_that_its_line_names():
    assert not list(faults(PAGE))
    has = [group for group, _, lines in tables(PAGE) for label, *_ in lines]
    assert len(has) == sum(map(len, LINES.values())) and set(has) == set(LINES)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("| 1.26 | 1.08 | `none` |", "| 1.26 | 1.03 | `none` |"),
        ("| 1.26 | 1.08 | `none` |", "| 1.26 | 1.08 | plain |"),
        ("| 437 |", "| 885 |"),
        ("| 73 | 0.59 |", "| 93 | 0.59 |"),
        ("0.30 (0.57)", "0.94 (0.57)"),
        ("| 317 | 1.07 |", "| 318 | 1.07 |"),
        ("| 138 | 4.8 |", "| 138 | |"),
        ("| 0.25 s | 0.36 s |", "| 0.36 s | 0.25 s |"),
        ("| 0.022 s | |", "| 0.022 s | 0.20 s |"),
        ("| 35 | 0.98 |", "| 1.9 | 0.98 |"),
    ],
)
def test_the_number_of_another_row_is_found(old, new):
    assert PAGE.count(old) == 1
    assert list(faults(PAGE.replace(old, new)))


def value(name, column="seconds", run=None):
    """What was measured of a row."""
    [found] = result_rows.where(MEASURED, row=name, **({"run": run} if run else {}))
    return float(found[column])


def listed(numbers):
    """Numbers as a sentence says them."""
    words = [f"{number:.2f}" for number in numbers]
    return f"{', '.join(words[:-1])} and {words[-1]}"


def of_five(name):
    """The ratios of the five runs of a row of a round, and their median, in words."""
    found = [
        row for row in result_rows.where(MEASURED, row=name) if "rounds" in row["run"]
    ]
    # As decimal numbers, so that 1.075 is rounded as it stands.
    ratios = [decimal.Decimal(row["ratio"]) for row in found]
    assert len(ratios) == 5
    return listed(ratios), f"in the median {statistics.median(ratios):.2f}"


def sentences():
    """What the page says between its tables, made from what was measured."""
    (none, n), (gaussian, g), (csgm, c) = map(of_five, ("none", "gaussian", "csgm"))
    yield f"`none` took {none} times the time of the plain steps, {n}; "
    yield f"`gaussian` {gaussian} times that of `none`, {g}; "
    yield f"L2-CSGM {csgm} times, {c}."
    alone, *own = (
        value(f"digits: {name}", "processor_seconds")
        for name in ("steps alone", "none", "gaussian", "l2_csgm")
    )
    yield f"({min(own):.2f} to {max(own):.2f} s in place of {alone:.2f})"
    one, two = value("workers: 1"), value("workers: 2")
    yield f"take {value('workers: 2', 'ratio'):.2f} of the time of one"
    yield f"{one:.1f} s and {two:.1f} s a round): a ratio"
    first, tenth, *later = (
        value(f"worker: {when}", "mebibytes")
        for when in ("first round", "10 rounds", "40 rounds", "100 rounds")
    )
    assert len(set(later)) == 1
    yield (
        f"{first:.0f} MiB after the first round, at {tenth:.0f} MiB after the tenth, "
        f"and at {later[0]:.0f} MiB after the 40th and after the 100th; Python's "
        f"peaked at {value('python: peak', 'mebibytes'):.0f} MiB. The fastest round "
        f"took {value('a round, the least'):.1f} s, and the median, beside other "
        f"work, {value('a round, median beside other work'):.0f} s."
    )
    yield f"making the vectors ({value('aggregate: values alone'):.2g} s alone)"
    yield f"Making the vectors ({value('secure: values alone'):.2g} s alone)"
    name = "factorization T=2048, {}"
    fast, slow = value(name.format("accelerated")), value(name.format("plain"))
    ratio = value(name.format("accelerated"), "ratio")
    memory = value(name.format("memory"), "mebibytes")
    yield (
        f"takes {fast:.2f} s, {ratio:.2g} of the {slow:.1f} s that the plain fixed "
        f"point takes, with {memory:.0f} MiB"
    )
    yield (
        f"takes {value('start_up: dpfl-train'):.1f} s, where a program that only "
        f"imports TFF takes {value('start_up: import of TFF'):.1f} s"
    )


def test_sentences_say_what_was_measured():
    text = text_of("benchmarks")
    for sentence in sentences():
        assert sentence in text


def test_a_thousand_clients_by_a_hundred():
    times = {
        model: value(f"{model}, n=1000") / value(f"{model}, n=100")
        for model in ("small_cnn", "2nn", "cnn")
    }
    assert (
        "takes five and a half to six and a half times as long with up to 2·10⁵ "
        "parameters, and eleven times with a million"
    ) in text_of("benchmarks")
    assert 5.25 < min(times["small_cnn"], times["2nn"]) < 5.75
    assert 6.25 < max(times["small_cnn"], times["2nn"]) < 6.75
    assert round(times["cnn"]) == 11


def test_how_far_ratios_are_from_those_of_medians():
    """A ratio is a median over turns, and not the ratio of the two medians."""
    found = result_rows.where(MEASURED, run="sketch_aggregation")
    base = value("secure: TFF discrete Gaussian")
    apart = max(
        abs(float(row["ratio"]) / (float(row["seconds"]) / base) - 1) for row in found
    )
    assert f"differs by up to {apart:.0%} from" in text_of("benchmarks")


def test_how_far_processes_are_apart():
    found = {}
    for row in MEASURED:
        if re.fullmatch(r"rounds(: \d)?", row["run"]) and row["ratio"]:
            found.setdefault(row["row"], []).append(float(row["ratio"]))
    apart = max(max(ratios) / min(ratios) for ratios in found.values())
    assert "from one process to the next, by up to a quarter." in text_of("benchmarks")
    assert 1.2 < apart < 1.3


def test_what_other_pages_say_of_rotations_and_workers():
    one, two = value("workers: 1"), value("workers: 2")
    assert (
        f"take {value('workers: 2', 'ratio'):.2f} of the time of one of them, with 100 "
        f"clients and a million parameters {two:.1f} s a round in place of {one:.1f},"
    ) in text_of("several_machines")
    page, hadamard = text_of("aggregators"), value("rotate: hadamard")
    assert "more than five times as fast as TFF's loop ([measured]" in page
    assert 5 < value("rotate: TFF hadamard") / hadamard < 6
    assert f"as long as some {value('rotate: dft') / hadamard:.0f} Hadamard" in page


def test_arithmetic_of_dome():
    """What follows from the sizes of the state and the sketch, in docs/dome.md."""
    page, d, k = text_of("dome"), 4_051_263, 256
    assert f"d = {d:,}, k = {k}, all {k // 4} directions kept" in page
    directions = 2 * k // 4 * d
    assert f"U' has {directions / 1e9:.2f} GB" in page
    # Besides, the model and two moments, of four bytes each.
    assert (
        f"files in memory besides, {(directions + 12 * d) / 1e9:.2f} GB of it" in page
    )
    # U' by U', each multiplication with an addition.
    assert f"three products of {2 * (k // 4) ** 2 * d / 1e9:.0f} GFLOP" in page
    small, probed = 1_018_174, 64
    assert f"the ratio d/k is {round(small / probed, -3):,.0f}" in page
    assert f"together see {300 * probed / small:.0%} of the dimensions" in page
