# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Every number of the documentation is in a table, in code that runs, or in a test.

A decimal number, outside of blocks of code, must be in a table of docs/results that its
part of the page names, by a link or as a figure, be in a Python block or its output on
the page, or be in one of the lists here with a reason. Where a table has seeds, means
and ranges over them count, and not single runs. What has one digit or two is spared
after an equals sign, where it is a setting, and on the pages of `LEAST_DIGITS`.
"""

import ast
import csv
import functools
import re
from pathlib import Path

import pytest

from experiments.papers import result_rows
from experiments.papers.index import FIGURES
from tests.experiments.papers import test_results as results

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
TABLES = {path.stem: path for path in sorted((DOCS / "results").glob("*.csv"))}
TABLES["audit"] = DOCS / "privacy/audit.csv"
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\([^)\s]*?([\w.]+)\.csv\)")
NUMBER = re.compile(r"(?<![\w.^/-])\d+(?:,\d{3})*\.\d+(?:e[+-]?\d+)?(?![\w^]|\.\d)(%?)")
# What papers call their theorems, and the pages and programs of others their versions.
NAME = re.compile(
    r"\b(?:Theorem|Lemma|Corollary|Proposition|Section|Python|TFF|Linux|Slurm)"
    r" \d+(?:\.\d+)+(?:(?:,| or| and| to) \d+\.\d+)*"
)
# Differences between rows of tables, mostly, are what has fewer digits there.
LEAST_DIGITS = {"docs/figures.md": 3, "docs/gallery.md": 3, "docs/claims.md": 3}
# Of what runs are, and not of what was measured.
LABELS = ("seed", "points", "round", "rounds", "delta")

# Tables that hold a page, or the part below a heading, besides those that it names.
MORE = {
    "README.md": ("equal_bits", "equal_bits_docs", "dome_compare"),
    "docs/benchmarks.md": ("benchmarks",),
    "docs/claims.md": (*FIGURES, "mf_one_rate"),
    "docs/dome.md": ("benchmarks", "dome_learning"),
    "docs/noise.md": ("benchmarks",),
    "docs/privacy/audit.md": ("audit",),
    "docs/several_machines.md": ("benchmarks",),
    "docs/sketching.md": ("benchmarks",),
}
EXACT = "exact_numbers"

_DIFFERENCES = "tests/experiments/papers/test_differences.py"
_EXACT_RESULTS = "tests/experiments/papers/test_exact_results.py"
_README = "tests/experiments/papers/test_readme_numbers.py"
_RESULTS = "tests/experiments/papers/test_results.py"
_SAID = "tests/experiments/papers/test_said.py"
_DRAWN = "tests/vectors/test_discrete_gaussian.py"
# Numbers that are made from tables by a test, which looks for the sentence.
TESTED = {
    "docs/figures.md": {
        f"{_EXACT_RESULTS}::test_losses_of_the_prefix_sum": "1.002 1.03 1.07 1.51 2.93",
        f"{_EXACT_RESULTS}::test_noise_of_streams_in_training": (
            "4.90 5.05 4.38 3.38 3.24 5.71 4.76 3.67 3.56"
        ),
        f"{_EXACT_RESULTS}::test_errors_under_secure_aggregation": "26.84 26.82 37.0",
        f"{_EXACT_RESULTS}::test_least_bits": (
            "12.1 14.5 13.2 14.1 14.7 15.0 15.9 15.8 12.7 10.9 12.3 12.9 13.3 13.7 11.0"
            " 11.5 11.2 13.1 1.08 1.19"
        ),
        f"{_RESULTS}::test_when_momentum_in_the_matrix_overtakes": (
            "0.357 0.647 0.811 0.858 0.894 0.899"
        ),
        f"{_DIFFERENCES}::test_what_all_runs_of_ten_fold_on_docstrings_come_to": (
            "4.099 4.124"
        ),
        f"{_DIFFERENCES}::test_by_how_little_ten_fold_is_told_apart": "0.0003",
    },
    "docs/claims.md": {
        f"{_EXACT_RESULTS}::test_noise_of_streams_in_training": "3.38 3.24",
        f"{_EXACT_RESULTS}::test_least_bits": "12.7 11.0 15.0",
        f"{_EXACT_RESULTS}::test_losses_of_the_prefix_sum": "1.002",
        f"{_RESULTS}::test_when_momentum_in_the_matrix_overtakes": (
            "0.647 0.357 0.858 0.811 5.422 5.298"
        ),
        f"{_DIFFERENCES}::test_what_all_runs_of_ten_fold_on_docstrings_come_to": (
            "4.099 4.124"
        ),
        f"{_DIFFERENCES}::test_by_how_little_ten_fold_is_told_apart": "0.0003",
    },
    "docs/gallery.md": {
        f"{_EXACT_RESULTS}::test_losses_of_the_prefix_sum": "2.93",
        f"{_EXACT_RESULTS}::test_errors_under_secure_aggregation": "26.8 37.0",
    },
    "docs/privacy/adjacency.md": {
        "tests/accounting/test_adjacency.py::TestRemovalFromAFixedCohort": (
            "4.377 9.98 8.98 6.58"
        ),
    },
    "docs/privacy/client_sampling.md": {
        "tests/accounting/test_csgm.py": "0.001 8.5",
    },
    "docs/privacy/fixed_point.md": {
        "tests/accounting/test_grid_numbers.py": "2.1e-34",
        _DRAWN: "3.7 5.5",
    },
    "docs/privacy/gaussian_mixtures.md": {
        "tests/accounting/test_random_slot.py": "1.1 5.9 0.01",
    },
    "docs/privacy/masked_loss.md": {
        "tests/accounting/test_stopped_martingale.py": "0.00866 0.0119 0.01197 0.02 0.9",
    },
    "docs/privacy/misprints.md": {
        "tests/accounting/test_misprints.py": "1.4116 0.5448 181.8 1.5",
    },
    "docs/privacy/README.md": {"tests/accounting/test_csgm.py": "1.1954"},
    "docs/privacy/rounding.md": {
        "tests/accounting/test_rounding.py": "0.031789 0.066108 0.160890",
        "tests/accounting/test_grid_numbers.py": "2.1e-34",
        "tools/exact_numbers.py": "0.0064",
    },
    "docs/privacy/sparsified_gaussian.md": {
        "tests/accounting/test_misprints.py": "1.5",
    },
    "docs/tasks.md": {
        f"{_SAID}::test_the_docstrings_that_there_are": "4.3",
        f"{_SAID}::test_how_large_a_made_up_file_is": "3.1",
    },
}
# Numbers that are no results.
ALLOWED = {
    "README.md": {"a version": "3.10 3.11"},
    "docs/tasks.md": {"a setting": "0.01"},
    "docs/factorization.md": {
        "a default": "0.05",
        "the number of a paper": (
            "2211.06530 2306.08153 2202.08312 2404.16706 2202.11205 2103.00039"
            " 2505.12128 2405.13763 2405.15913 2408.08868"
        ),
    },
    "docs/claims.md": {"a paper's": "80.1 75.3"},
    "docs/dome.md": {"a default": "0.999"},
    "docs/figures.md": {"a setting": "0.99999"},
    "docs/noise.md": {"255 vectors of 1,018,174 numbers of 4 bytes": "1.04"},
    "docs/privacy/audit.md": {"a level of confidence": "99.55 99.9"},
    "docs/privacy/client_sampling.md": {"a setting": "0.5 0.03"},
    "docs/privacy/random_slot.md": {"a setting": "0.7"},
    "docs/privacy/fixed_point.md": {"eps(2) by its formula": "1.03e-34"},
    "docs/sketching.md": {"a default": "1.02", "1.1 squared": "1.21"},
}


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def listed(page, lists):
    """The numbers of a page in one of the lists here."""
    return {n for words in lists.get(page, {}).values() for n in words.split()}


def as_number(text):
    try:
        return float(text)
    except ValueError:
        return None


@functools.cache
def values(name):
    """The numbers of a table: means and ranges over its seeds, if it has any."""
    with TABLES[name].open(newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    cells = [{k: as_number(v) for k, v in row.items()} for row in table]
    if "seed" not in table[0] or len(result_rows.distinct(table, "seed")) == 1:
        found = {v for row in cells for v in row.values() if v is not None}
        # Milliseconds and gibibytes.
        more = (1000, 1 / 1024) if name == "benchmarks" else ()
        return frozenset(found | {v * scale for v in found for scale in more})
    labels = list(table[0])[: list(table[0]).index("seed")]
    labels += ["round"] if "round" in table[0] else []
    grouped = {}
    for row, numbers in zip(table, cells):
        grouped.setdefault(tuple(row[k] for k in labels), []).append(numbers)
    found = set()
    for runs in grouped.values():
        for column in runs[0]:
            several = [run[column] for run in runs if run[column] is not None]
            if column not in LABELS and several:
                mean = sum(several) / len(several)
                found |= {mean, min(several), max(several)}
    return frozenset(found)


def digits(text):
    """How many digits a number has, those of its size alone left out."""
    mantissa = text.partition("e")[0].replace(",", "").replace(".", "")
    return len(mantissa.lstrip("0"))


def is_rounded(text, percent, value):
    """Whether a text says a number, to as many digits as the text has."""
    size = float(text.replace(",", ""))
    after = len(text.partition("e")[0].partition(".")[2])
    scales = (1, 100) if percent else (1,)
    return any(
        abs(size) == abs(float(shown))
        for scale in scales
        for shown in (
            f"{value * scale:.{after}f}",
            f"{value * scale:.{digits(text)}g}",
        )
    )


def parts(text):
    """The parts of a page between headings, each with its heading."""
    return re.split(r"^(?=#+ )", text, flags=re.M)


def prose(part):
    """A part without code, links' targets and what tests of results hold."""
    part = re.sub(r"`[^`\n]*`", "", BLOCK.sub("", part))
    part = re.sub(r"\]\([^)]*\)|https?://\S+", "]", part)
    part = NAME.sub("", " ".join(part.split()))
    return results.NUMBER.sub("", part)


def code(text):
    """The Python blocks of a page and their output, which other tests run."""
    return "\n".join(
        block for language, block in BLOCK.findall(text) if language != "sh"
    )


def named(page, part):
    """The tables that a part of a page names."""
    found = {*LINK.findall(part), *MORE.get(name_of(page), ())}
    found |= set(re.findall(r"`(\w+)`", part)) & set(TABLES)
    # Of computed numbers a page has its own alone.
    return found & set(TABLES) - {EXACT}


def exact(page):
    """The computed numbers of a page."""
    own = name_of(page).removeprefix("docs/").removesuffix(".md")
    return [row for row in result_rows.read_csv(TABLES[EXACT]) if row["page"] == own]


def strangers(page, text):
    """The numbers of a page that nothing holds."""
    computed = [float(row["value"]) for row in exact(page)]
    in_code = {m.group(0) for m in re.finditer(r"\d+(?:\.\d+)?(?:e-?\d+)?", code(text))}
    spared = listed(name_of(page), TESTED) | listed(name_of(page), ALLOWED) | in_code
    for part in parts(text):
        known = [*computed, *(v for name in named(page, part) for v in values(name))]
        text = prose(part)
        for match in NUMBER.finditer(text):
            number = match.group(0).rstrip("%")
            is_set = digits(number) < 3 and text[: match.start()].rstrip()[-1:] == "="
            least = LEAST_DIGITS.get(name_of(page), 1)
            if digits(number) < least or number in spared or is_set:
                continue
            if not any(is_rounded(number, match.group(1), value) for value in known):
                yield number, part.splitlines()[0]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_number_comes_from_somewhere(page):
    assert not list(strangers(page, page.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("page", "old", "new"),
    [
        ("docs/gallery.md", "0.859, 0.846", "0.859, 0.946"),
        ("docs/figures.md", "ends at 4.464", "ends at 4.454"),
        ("docs/privacy/matrix_factorization.md", "11.36", "11.35"),
        ("docs/privacy/masked_loss.md", "2.029", "2.030"),
        ("docs/factorization.md", "29.5", "28.5"),
        ("docs/benchmarks.md", "1.17, 1.04", "1.37, 1.04"),
        ("docs/several_machines.md", "take 0.55 of", "take 0.49 of"),
        ("docs/tasks.md", "4.3 million", "3.3 million"),
        ("README.md", "with 5.3 bits", "with 7.7 bits"),
    ],
)
def test_a_wrong_number_is_found(page, old, new):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert old in text
    assert list(strangers(ROOT / page, text.replace(old, new, 1)))


def test_the_lists_have_nothing_that_no_page_has():
    for page in {*TESTED, *ALLOWED}:
        text = (ROOT / page).read_text(encoding="utf-8")
        wanted = listed(page, TESTED) | listed(page, ALLOWED)
        assert not {number for number in wanted if number not in text}, page


def test_the_tests_that_are_named_are_there():
    for page in TESTED:
        for place, words in TESTED[page].items():
            path, _, name = place.partition("::")
            source = (ROOT / path).read_text(encoding="utf-8")
            if name:
                tree = ast.walk(ast.parse(source))
                assert name in {getattr(node, "name", None) for node in tree}
            else:
                for number in words.split():
                    assert number in source, (page, number)


def test_pages_have_the_computed_numbers():
    for row in result_rows.read_csv(TABLES[EXACT]):
        page = (DOCS / f"{row['page']}.md").read_text(encoding="utf-8")
        shown = format(float(row["value"]), row["format"]).replace("e-0", "e-")
        assert re.search(rf"(?<![\d.]){re.escape(shown)}(?!\d)", page), row
