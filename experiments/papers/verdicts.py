# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Kinds of claims: an effect of runs, a number, or nothing yet; each has a verdict.

A claim says which runs are compared with which, and what it asks of the effect: the
same for all claims of a kind. `experiments.papers.claims` has what the papers claim.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Optional, Union

from dpfl import files

from .. import effects, tables

# What an effect on accuracy is to be above, and how pages say it.
FREE, AHEAD, A_POINT_AHEAD = "costs below 1 point", "ahead", "a point ahead"
LIMITS = {FREE: -0.01, AHEAD: 0.0, A_POINT_AHEAD: 0.01}
HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "not decided"


Labels = Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Claim:
    """Runs that are compared, and what is asked of the effect.

    A label that rows must have may be several, with | between them.

    Attributes:
      paper: As its page names it.
      claim: What is claimed.
      where: Figure, table or section of the paper.
      setting: What was trained here.
      asks: What the effect is to be above, as `LIMITS` names it.
      table: Name of a table in docs/results.
      ours: Labels of the runs.
      other: Labels that those which they are compared with have in place of theirs.
      over: Labels over whose values the effect is pooled.
      chosen: Labels that all rows have.
      measure: A column of accuracies.
      less: The same as `ours` and `other`, for runs whose effect is taken off; None for
        a single effect.
      times: How often it is taken off.
    """

    paper: str
    claim: str
    where: str
    setting: str
    asks: str
    table: str
    ours: Labels
    other: Labels
    over: tuple[str, ...] = ()
    chosen: Labels = dataclasses.field(default_factory=dict)
    measure: str = "final_accuracy"
    less: Optional[tuple[Labels, Labels]] = None
    times: int = 1

    def effect(self, folder: Path) -> effects.Effect:
        """What the runs gain, in units of the measure, from the tables in a folder.

        Raises:
          ValueError: If a run has none to be compared with, or both effects differ
            in how many there are.
        """
        rows = _rows(folder, self.table, self.chosen)
        sides = (self.ours, self.other, self.chosen, *(self.less or ()))
        names = [*self.over, *sorted({name for side in sides for name in side})]

        def cell(row: tables.Row) -> tuple[str, ...]:
            return tuple(row[name] for name in names)

        cells = effects.by_seed(
            (cell(row), row["seed"], float(row[self.measure])) for row in rows
        )

        def pairs(ours: Labels, other: Labels) -> list[tuple]:
            found = {cell(r): cell({**r, **other}) for r in rows if tables.has(r, ours)}
            missing = [key for key in found.values() if key not in cells]
            if missing or not found:
                raise ValueError(f"{self.table} must have {missing or ours}")
            return list(found.items())

        every = pairs(self.ours, self.other)
        scale = 1.0
        if self.less is not None:
            taken = [(second, first) for first, second in pairs(*self.less)]
            if len(taken) != len(every):
                raise ValueError(f"{self.table} must have as many of {self.less[0]}")
            # The mean of all pairs has one part of the effect and the others of this.
            every, scale = every + taken * self.times, 1.0 + self.times
        found = effects.effect(cells, every)
        return found.times(scale)

    def verdict(self, found: effects.Effect) -> str:
        """Whether it holds, by what was asked beforehand."""
        is_above = found.is_above(LIMITS[self.asks])
        return {"yes": HOLDS, "no": FAILS}.get(is_above, is_above)

    def cells(self, folder: Path) -> tuple[str, str, str, str]:
        """Verdict, effect, seeds and what was asked; accuracies in points."""
        found = self.effect(folder)
        away = min(abs(x - LIMITS[self.asks]) for x in (found.low, found.high))
        # An end that is at the limit but for its rounding has two digits.
        digits = 2 if away < 0.0005 else 1
        ends = (f"{100 * x:.{digits}f}" for x in (found.size, found.low, found.high))
        effect = "{} ({} to {})".format(*ends)
        return self.verdict(found), effect, str(found.seeds), self.asks


@dataclasses.dataclass(frozen=True)
class Exact:
    """A number that no seed changes much, and what is asked of it.

    Attributes:
      paper, claim, where, setting, table: As of a `Claim`.
      ours: Labels of the rows whose mean it is.
      measure: Their column.
      other: Labels of the rows by whose mean it is divided; None if it is not.
      by: Their column; `measure` if it is empty.
      ends: Columns of the least and the most that processes measured; none without.
      most: The largest with which the claim holds.
      least: The smallest.
    """

    paper: str
    claim: str
    where: str
    setting: str
    table: str
    ours: Labels
    measure: str
    other: Optional[Labels] = None
    by: str = ""
    ends: tuple[str, ...] = ()
    most: float = math.inf
    least: float = 0.0

    def _mean(self, folder: Path, labels: Labels, column: str) -> float:
        rows = _rows(folder, self.table, labels)
        return statistics.mean(float(row[column]) for row in rows)

    def value(self, folder: Path) -> float:
        """The number, from the tables in a folder."""
        own = self._mean(folder, self.ours, self.measure)
        if self.other is None:
            return own
        return own / self._mean(folder, self.other, self.by or self.measure)

    def range(self, folder: Path) -> list[float]:
        """The least and the most that it can have been, in any two processes."""
        own = [self._mean(folder, self.ours, column) for column in self.ends]
        if self.other is None:
            return own
        others = [self._mean(folder, self.other, column) for column in self.ends[::-1]]
        return [mine / other for mine, other in zip(own, others)]

    def cells(self, folder: Path) -> tuple[str, str, str, str]:
        """Verdict, number, no seeds and what was asked."""
        found, ends = self.value(folder), self.range(folder)
        within = {self.least <= each <= self.most for each in ends or [found]}
        verdict = UNDECIDED if len(within) > 1 else HOLDS if within == {True} else FAILS
        word, limit = ("at least", self.least) if self.least else ("at most", self.most)
        shown = [f"{each:#.3g}" for each in (found, *ends)]
        number = "{} ({} to {})".format(*shown) if ends else shown[0]
        return verdict, number, "", f"{word} {limit:g}"


@dataclasses.dataclass(frozen=True)
class Untested:
    """A claim that nothing here decides.

    Attributes:
      paper, claim, where: As of a `Claim`.
      setting: Why nothing does.
    """

    paper: str
    claim: str
    where: str
    setting: str

    def cells(self, _: Path) -> tuple[str, str, str, str]:
        """The verdict, and no number."""
        return "not tested", "", "", ""


Line = Union[Claim, Exact, Untested]


def _rows(folder: Path, table: str, labels: Labels) -> list[tables.Row]:
    rows = files.read_csv(folder / f"{table}.csv")
    return [row for row in rows if tables.has(row, labels)]


def lines(claims: Iterable[Line], folder: Path) -> str:
    """A table in Markdown, without columns that are empty."""
    heads = ("claim", "verdict", "effect", "seeds", "here", "asked", "in the paper")
    text: list[tuple[str, ...]] = [heads]
    for one in claims:
        verdict, effect, seeds, asked = one.cells(folder)
        own = one.claim, f"**{verdict}**", effect, seeds
        text.append((*own, one.setting, asked, one.where))
    columns = [column for column in zip(*text) if any(column[1:])]
    shown, *rows = zip(*columns)
    if "seeds" not in shown:
        shown = tuple("measured" if name == "effect" else name for name in shown)
    return tables.markdown(shown, rows)
