# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Makes the tables of the documentation, and pictures of effects, from results.

  python -m tools.pages           writes them into the pages
  python -m tools.pages --check   exits with 1 if a page differs from its tables

A page says what a table shows in the comment above it:

  <!-- table csgm_fig2 task=mnist: epsilon, compression_rate | noise_multiplier .3g -->
  <!-- end -->

A file of docs/results, rows to choose, columns whose values name a line, and columns
of numbers with their formats. Rows of a line, such as seeds, become mean (least to
most); `NAME by COLUMN` gives a column for each value of another one, and `lines .0f`
counts. `NAME .1% vs COLUMN=VALUE over COLUMN` is what a line gains over the rows with
that value, with its 95% interval, pooled over the values of other columns. A single
line with that value is compared with all others. If COLUMN names no line, it is what
the line's other rows gain. Of rows to choose `COLUMN=A|B` takes both.
`<!-- claims PAPER -->` is the table of a paper's claims, and `<!-- families TABLE -->`
that of what was asked beforehand; effects of both are drawn too.
`<!-- figures PAPER -->` is the table of a paper's figures and tables, and
`<!-- words PAPER -->` that of its own words; `<!-- verdicts all -->` has all claims by
data set.
"""

from __future__ import annotations

import functools
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dpfl import files
from experiments import effects, tables
from experiments.papers import claims, coverage, verdict_tables, verdicts

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs/results"
MARKED = re.compile(
    r"(<!-- (table|claims|verdicts|figures|words|families) (.*?) -->\n)"
    r"(.*?)(<!-- end -->)",
    re.S,
)


def value(rows: tables.Rows, name: str, shown: str, **by: str) -> str:
    """The mean of numbers, with the least and the greatest in brackets if they differ.

    Args:
      rows: Rows of a line.
      name: Column of the numbers, or "lines" for the number of rows.
      shown: Format of a number.
      **by: Labels that the rows must have.
    """
    rows = tables.where(rows, **by)
    if name == "lines":
        return str(len(rows))
    values = [float(row[name]) for row in rows if row[name]]
    if not values:
        return ""
    mean = sum(values) / len(values)
    cells = [f"{x:{shown}}" for x in (mean, min(values), max(values))]
    return cells[0] if cells[1] == cells[2] else "{} ({} to {})".format(*cells)


def gained(
    rows: tables.Rows,
    keys: Sequence[str],
    name: str,
    shown: str,
    vs: Sequence[str],
) -> Callable[[tables.Rows], str]:
    """A function from a line's rows to its effect, by `COLUMN=VALUE over COLUMNS`.

    Args:
      rows: Rows of the table, including those compared with.
      keys: Columns that distinguish cells, besides those pooled over.
      name: The compared column.
      shown: Format of the effect.
      vs: The words after `vs`.
    """
    column, _, wanted = vs[0].partition("=")
    shared = [*vs[2:], *([] if column in keys else keys)]
    every = [*keys, *vs[2:], column]

    def cell(row: tables.Row, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(row[each] for each in names)

    cells = effects.by_seed(
        (cell(row, every), row["seed"], float(row[name])) for row in rows
    )
    compared = tables.where(rows, **{column: wanted})
    bases = {cell(row, shared): cell(row, every) for row in compared}
    one = next(iter(bases.values())) if len(bases) == 1 else None

    def text(line: tables.Rows) -> str:
        others = [row for row in line if row[column] != wanted]
        pairs = {cell(row, every): one or bases[cell(row, shared)] for row in others}
        if not pairs:
            return ""
        interval = effects.effect(cells, list(pairs.items()))
        if interval.seeds > 1 and math.isinf(interval.high):
            return f"{interval.size:{shown}} in each seed".replace("%", "")
        ends = [
            f"{x:{shown}}".rstrip("%")
            for x in (interval.size, interval.low, interval.high)
        ]
        return "{} ({} to {})".format(*ends)

    return text


def split(row: dict[str, str]) -> dict[str, str]:
    """A row with its `number`, if any, split into `setting` and `case`."""
    setting, _, case = row.get("number", "").rpartition(", ")
    return {**row, "setting": setting, "case": case} if case else row


def label(word: str) -> str:
    """A label without superfluous digits."""
    if re.fullmatch(r"\d+\.\d{6,}", word):
        return f"{float(word):.3g}"
    return "∞" if word == "inf" else re.sub(r"^(\d+)\.0$", r"\1", word)


def head(name: str, **part: str) -> str:
    """The head of a column of numbers."""
    words = tables.head(name)
    of = [f"{tables.HEADS.get(key, key)}={label(word)}" for key, word in part.items()]
    return ", ".join([words, *of])


def columns(
    rows: tables.Rows, keys: Sequence[str], text: str
) -> Iterator[tuple[str, Callable[[tables.Rows], str]]]:
    """Yields the heads of columns, and functions from a line's rows to their cells.

    Args:
      rows: Rows of the table.
      keys: Columns that name a line.
      text: The columns' part of the comment.
    """
    for part in text.split(","):
        name, shown, *how = part.split()
        if not how:
            yield head(name), functools.partial(value, name=name, shown=shown)
        elif how[0] == "vs":
            words = label(how[1].partition("=")[2]).replace("_", " ")
            yield f"gain over {words}", gained(rows, keys, name, shown, how[1:])
        else:
            for word in tables.distinct(rows, how[1]):
                by = {how[1]: word}
                yield (
                    head(name, **by),
                    functools.partial(value, name=name, shown=shown, **by),
                )


def table(spec: str) -> str:
    """The lines of a Markdown table, by the specification in its comment.

    Raises:
      ValueError: If the specification names an unknown file or column, or an invalid
        format.
    """
    matched = re.fullmatch(r"(\w+)((?: \w+=[^:]*?)*): (.*) \| (.*)", spec)
    if matched is None:
        raise ValueError(f"a table must be 'FILE: NAMES | COLUMNS', found {spec!r}")
    file, chosen, names, numbers = matched.groups()
    wanted = dict(re.findall(r"(\w+)='?([^'=]*?)'?(?= \w+=|$)", chosen))
    rows = list(map(split, files.read_csv(RESULTS / f"{file}.csv")))
    rows = [row for row in rows if tables.has(row, wanted)]
    keys = names.split(", ")
    several = [name for name, words in wanted.items() if "|" in words]
    shown = list(columns(rows, [*keys, *several], numbers))
    lines = dict.fromkeys(tuple(row[key] for key in keys) for row in rows)
    heads = [*map(head, keys), *(words for words, _ in shown)]
    text = []
    for line in lines:
        here = tables.where(rows, **dict(zip(keys, line)))
        text.append([*map(label, line), *(cell(here) for _, cell in shown)])
    return tables.markdown(heads, text)


@functools.cache
def claimed(paper: str) -> str:
    """The lines of the table of a paper's claims."""
    return verdict_tables.lines(claims.of_paper(paper), RESULTS, corrected())


def overview(_: str) -> str:
    """The lines of the table of all verdicts by data set."""
    return verdict_tables.overview(claims.CLAIMS, RESULTS, claims.DATA_SETS)


@functools.cache
def corrected() -> list[verdicts.Claim]:
    """The claims that many lines leave decided."""
    return verdict_tables.corrected(claims.CLAIMS, RESULTS)


def figures(paper: str) -> str:
    """The lines of the table of a paper's figures and tables."""
    return coverage.lines(paper, RESULTS)


def about(name: str) -> list[verdicts.Family]:
    """The families that are about a table's runs."""
    return [one for one in claims.FAMILIES if one.claims[0].table == name]


def families(name: str) -> str:
    """The lines and the gates of the families that are about a table's runs."""
    own = about(name), RESULTS
    return f"{verdict_tables.asked(*own)}\n{verdict_tables.gates(*own)}"


def made(text: str) -> str:
    """A page with its tables generated anew."""
    makers = dict(table=table, claims=claimed, figures=figures, families=families)
    makers.update(words=coverage.words, verdicts=overview)
    return MARKED.sub(lambda m: f"{m[1]}\n{makers[m[2]](m[3])}\n{m[5]}", text)


def effects_of(name: str) -> list[tuple[str, str, effects.Effect]]:
    """The label, the verdict and the effect of each claim about runs.

    Args:
      name: A paper, or the table of families.
    """
    if about(name):
        return [
            (f"{each.name}: {one.claim}", verdict, one.effect(RESULTS))
            for each in about(name)
            for one, verdict in zip(each.claims, each.verdicts(RESULTS))
        ]
    every = [
        (one, one.effect(RESULTS))
        for one in claims.of_paper(name)
        if isinstance(one, verdicts.Claim)
    ]
    return [
        (f"{one.setting}: {one.claim}", one.verdict(effect), effect)
        for one, effect in every
    ]


def main(argv: Sequence[str]) -> int:
    """Writes the pages, or with `--check` names those that differ."""
    differ = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = page.read_text()
        if made(text) != text:
            differ.append(page)
            if "--check" not in argv:
                page.write_text(made(text))
        drawn = re.findall("<!-- (claims|families) (?!costs)(.*?) -->", text)
        for kind, name in drawn:
            picture = ROOT / f"docs/images/effects_{name}.png"
            lines = claimed(name) if kind == "claims" else families(name)
            note = files.digest({"claims": lines})
            if not picture.exists() or note.encode() not in picture.read_bytes():
                differ.append(picture)
                if "--check" not in argv:
                    verdict_tables.draw_effects(effects_of(name), str(picture), note)
    for path in differ:
        print(path.relative_to(ROOT))
    return int("--check" in argv and bool(differ))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
