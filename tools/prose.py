# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Counts words and numbers in the documentation.

  python -m tools.prose             a line for each page, beside its limits
  python -m tools.prose PAGE ...    and what is above them, to be rewritten

A report and no linter: a long sentence that is cut in two reads no better. Code,
tables, headings, mathematics and targets of links are no sentences. Years and the
numbers of theorems, figures and the like are names, not numbers. `!` marks what is
above a limit.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

ROOT = Path(__file__).resolve().parents[1]
MANY = 4
CELL_WORDS = 8
LONG = 30
FENCE = re.compile(r"^```.*?^```$|^\$\$.*?\$\$$|<!--.*?-->|^    .*?$", re.M | re.S)
HEADING = re.compile(r"^(?:#+ .*|!\[.*|\*`\w+`.*\*)$", re.M)
ITEM = re.compile(r"^ *(?:[-*]|\d+\.) ", re.M)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
MARKED = re.compile(r"`[^`]*`|\$[^$\n]+\$")
LABEL = re.compile(
    r"\b(?:Theorem|Lemma|Proposition|Corollary|Equation|Algorithm|Algorithms|Alg\.|"
    r"Figs?\.|Figure|Table|Section|section|Appendix|arXiv|Python|Linux|TFF)"
    r"(?:(?: |, | and | to )[A-Z]?[\d.]*\d)+|\b(?:19|20)\d\d[ab]?\b"
)
NUMBER = re.compile(r"(?<![\w.])\d[\d,.]*(?:e-?\d+)?(?![A-Za-z])")
INTERVAL = re.compile(r"-?\S+ \(\S+ to \S+\)")
END = re.compile(r"(?<=[.!?:])[*)\"]*\s+(?=[*(\"]*[A-Z_`])")


class Count(NamedTuple):
    """Counts of a page: means over its sentences, and maxima over cells."""

    words: float
    numbers: float
    share: float
    cell_words: int
    cell_numbers: int


class Limits(NamedTuple):
    """Limits of a page's counts; None means no limit."""

    words: Optional[float] = None
    numbers: Optional[float] = None
    share: Optional[float] = 0.0
    cell_words: Optional[int] = CELL_WORDS
    cell_numbers: Optional[int] = 1


GUIDE = Limits(17, 0.4)
EVIDENCE = Limits(None, 0.6)
PROOFS = Limits(share=None)


def limits(page: Path) -> Limits:
    """The limits of a page, by its folder."""
    if page.parent.name == "privacy":
        return PROOFS
    return EVIDENCE if page.parent.name == "evidence" else GUIDE


def numbers(text: str) -> int:
    """The number of numbers in a sentence or cell."""
    plain = LABEL.sub("", MARKED.sub("x", LINK.sub(r"\1", text)))
    return len(NUMBER.findall(plain))


def values(cell: str) -> int:
    """The number of numbers in a cell, unless it begins with a word."""
    return numbers(cell) if re.match(r"[-+]?\d", cell) else 0


def words(text: str) -> int:
    """The number of words in a text; code counts as one, and so does a formula."""
    plain = MARKED.sub("x", LINK.sub(r"\1", text))
    return len(re.findall(r"\S*\w\S*", plain))


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page."""
    text = HEADING.sub("", FENCE.sub("\n", text))
    text = re.sub(r"^\|.*$", "\n", text, flags=re.M)
    for paragraph in re.split(r"\n\s*\n", ITEM.sub("\n\n", text)):
        for sentence in END.split(LINK.sub(r"\1", " ".join(paragraph.split()))):
            if words(sentence):
                yield sentence


def cells(text: str) -> Iterator[str]:
    """The cells of a page's tables, without quotations; an interval is one number."""
    text = re.sub(r"^```.*?^```$|“[^”]*”", "", text, flags=re.M | re.S)
    for line in re.findall(r"^\|(.*)\|$", text, re.M):
        for cell in re.split(r"(?<!\\)\|", line):
            yield INTERVAL.sub("0", cell.strip())


def count(text: str) -> Count:
    """The counts of a page."""
    parts = list(sentences(text))
    many = [numbers(sentence) for sentence in parts]
    table = list(cells(text)) or [""]
    total = max(1, len(parts))
    return Count(
        sum(map(words, parts)) / total,
        sum(many) / total,
        sum(n >= MANY for n in many) / total,
        max(map(words, table)),
        max(map(values, table)),
    )


def line(name: str, count: Count, limits: Limits) -> str:
    """A line of the report.

    Args:
      name: Name of the page.
      count: Its counts.
      limits: Its limits.
    """
    shown = (".1f", ".2f", ".1%", "d", "d")
    each = (
        f"{value:{form}}" + ("!" if limit is not None and value > limit else " ")
        for value, form, limit in zip(count, shown, limits)
    )
    return f"{name:36}" + "".join(f"{text:>11}" for text in each)


def main(argv: Sequence[str]) -> None:
    """Prints the report."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    heads = ("words", "numbers", f"{MANY} or more", "cell words", "numbers")
    print(f"{'page':36}" + "".join(f"{head:>10} " for head in heads))
    kinds = {"guides": GUIDE, "evidence": EVIDENCE, "privacy": PROOFS}
    for kind, most in kinds.items():
        limit = ("" if each is None else f"{each:g}" for each in most)
        print(f"{f'at most, {kind}':36}" + "".join(f"{each:>10} " for each in limit))
    for page in [Path(arg).resolve() for arg in argv] or pages:
        text, most = page.read_text("utf-8"), limits(page)
        print(line(str(page.relative_to(ROOT)), count(text), most))
        if argv:
            for part in sentences(text):
                if numbers(part) >= MANY or words(part) > LONG:
                    print(f"  sentence: {part}")
            for part in cells(text):
                if values(part) > 1 or words(part) > CELL_WORDS:
                    print(f"  cell: {part}")


if __name__ == "__main__":
    main(sys.argv[1:])
