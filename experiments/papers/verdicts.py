# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Kinds of claims: an effect of runs, a number, or nothing yet; each has a verdict.

    effect = claim.effect(Path("docs/results"))
    claim.verdict(effect)    # "no cost shown", "costs more" or "not decided", ...

A claim names the compared runs and the condition on their effect, which is the same for
all claims of a kind. `experiments.papers.claims` has the papers' claims.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import statistics
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Optional, Union

from dpfl import files

from .. import effects, tables

# Limits that an effect on accuracy must exceed, and their words on pages.
FREE, AHEAD = "costs below 1 point", "ahead"
LIMITS = {FREE: -0.01, AHEAD: 0.0}
HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "not decided"
NO_COST, COSTS, COSTS_MORE = "no cost shown", "costs, below the margin", "costs more"


Labels = Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Claim:
    """A comparison of runs, and the condition on its effect.

    A label may have several values, separated by |.

    Attributes:
      paper: Name of the paper's page.
      claim: The claim in words.
      where: Figure, table or section of the paper.
      setting: The training here, in words.
      asks: The limit that the effect must exceed, a key of `LIMITS`.
      table: Name of a table in docs/results.
      ours: Labels of the runs.
      other: Labels of the compared runs that differ from `ours`.
      over: Labels over whose values the effect is pooled.
      chosen: Labels that all rows have.
      column: A column of accuracies.
      less: As `ours` and `other`, for runs whose effect is subtracted; None for a
        single effect.
      times: Factor of the subtracted effect.
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
    column: str = "final_accuracy"
    less: Optional[tuple[Labels, Labels]] = None
    times: int = 1

    def effect(self, folder: Path) -> effects.Effect:
        """The gain of our runs, in units of the column, from the tables in a folder.

        Raises:
          ValueError: If a run has no counterpart, or the two effects have different
            numbers of pairs.
        """
        rows = _rows(folder, self.table, self.chosen)
        sides = (self.ours, self.other, self.chosen, *(self.less or ()))
        names = [*self.over, *sorted({name for side in sides for name in side})]

        def cell(row: tables.Row) -> tuple[str, ...]:
            return tuple(row[name] for name in names)

        cells = effects.by_seed(
            (cell(row), row["seed"], float(row[self.column])) for row in rows
        )

        def pairs(ours: Labels, other: Labels) -> list[tuple]:
            matches = {
                cell(r): cell({**r, **other}) for r in rows if tables.has(r, ours)
            }
            missing = [key for key in matches.values() if key not in cells]
            if missing or not matches:
                raise ValueError(f"{self.table} must have {missing or ours}")
            return list(matches.items())

        every = pairs(self.ours, self.other)
        scale = 1.0
        if self.less is not None:
            taken = [(second, first) for first, second in pairs(*self.less)]
            if len(taken) != len(every):
                raise ValueError(f"{self.table} must have as many of {self.less[0]}")
            # Weights of the pairs: one part of the effect, the others of the subtracted
            # one.
            every, scale = every + taken * self.times, 1.0 + self.times
        return effects.effect(cells, every).times(scale)

    def verdict(self, effect: effects.Effect) -> str:
        """The verdict by the condition that was set beforehand."""
        is_above = effect.is_above(LIMITS[self.asks])
        if self.asks == FREE:
            free = COSTS if effect.high < 0 else NO_COST
            return {"yes": free, "no": COSTS_MORE}.get(is_above, is_above)
        return {"yes": HOLDS, "no": FAILS}.get(is_above, is_above)

    def p_value(self, effect: effects.Effect) -> float:
        """The p-value of an effect that is the limit."""
        return effect.p_value(LIMITS[self.asks])

    def cells(self, folder: Path) -> tuple[str, str, str, str]:
        """Verdict, effect, seeds and condition; accuracies are in points."""
        interval = self.effect(folder)
        away = min(abs(x - LIMITS[self.asks]) for x in (interval.low, interval.high))
        # An end that equals the limit only after rounding gets two digits.
        digits = 2 if away < 0.0005 else 1
        ends = (
            f"{100 * x:.{digits}f}"
            for x in (interval.size, interval.low, interval.high)
        )
        effect = "{} ({} to {})".format(*ends)
        return self.verdict(interval), effect, str(interval.seeds), self.asks


@dataclasses.dataclass(frozen=True)
class Exact:
    """A claim about a number without seed noise, with bounds that it must meet.

    Attributes:
      paper, claim, where, setting, table: As for `Claim`.
      ours: Labels of the rows whose mean is the number.
      column: Column of the number.
      other: Labels of rows by whose mean the number is divided; None for no division.
      by: Column of the divisor; `column` if it is empty.
      ends: Columns of the least and the greatest value over processes; empty without.
      most: The largest number for which the claim holds.
      least: The smallest number for which the claim holds.
    """

    paper: str
    claim: str
    where: str
    setting: str
    table: str
    ours: Labels
    column: str
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
        own = self._mean(folder, self.ours, self.column)
        if self.other is None:
            return own
        return own / self._mean(folder, self.other, self.by or self.column)

    def range(self, folder: Path) -> list[float]:
        """The least and the greatest value that any two processes give."""
        own = [self._mean(folder, self.ours, column) for column in self.ends]
        if self.other is None:
            return own
        others = [self._mean(folder, self.other, column) for column in self.ends[::-1]]
        return [mine / other for mine, other in zip(own, others)]

    def cells(self, folder: Path) -> tuple[str, str, str, str]:
        """Verdict, number, no seeds and condition."""
        value, ends = self.value(folder), self.range(folder)
        within = {self.least <= each <= self.most for each in ends or [value]}
        verdict = UNDECIDED if len(within) > 1 else HOLDS if within == {True} else FAILS
        word, limit = ("at least", self.least) if self.least else ("at most", self.most)
        shown = [f"{each:#.3g}" for each in (value, *ends)]
        number = "{} ({} to {})".format(*shown) if ends else shown[0]
        return verdict, number, "", f"{word} {limit:g}"


@dataclasses.dataclass(frozen=True)
class Untested:
    """A claim that no experiment here decides.

    Attributes:
      paper, claim, where: As for `Claim`.
      setting: The reason.
    """

    paper: str
    claim: str
    where: str
    setting: str

    def cells(self, _: Path) -> tuple[str, str, str, str]:
        """The verdict without a number."""
        return "not tested", "", "", ""


Line = Union[Claim, Exact, Untested]


def _rows(folder: Path, table: str, labels: Labels) -> list[tables.Row]:
    rows = files.read_csv(folder / f"{table}.csv")
    return [row for row in rows if tables.has(row, labels)]


def corrected(claims: Iterable[Line], folder: Path) -> list[Claim]:
    """The claims on effects that are decided if all of them count, by Holm's method."""
    effect_claims = [one for one in claims if isinstance(one, Claim)]
    p_values = {
        place: c.p_value(c.effect(folder)) for place, c in enumerate(effect_claims)
    }
    return [effect_claims[place] for place in effects.holm(p_values)]


def overview(claims: Iterable[Claim], folder: Path, heads: Labels) -> str:
    """A Markdown table of the verdicts on each claim, by data set.

    Args:
      claims: The claims, of which those with the same words are one line.
      folder: Folder of the tables of runs.
      heads: Heads of columns, by words of a setting; a claim belongs to the first words
        that its setting has.
    """
    rows: dict[str, dict[str, list[str]]] = {}
    pages: dict[str, str] = {}
    for one in claims:
        pages.setdefault(one.claim, f"[{one.claim}]({one.paper}.md)")
        place = next(place for place in heads if place in one.setting)
        cells = rows.setdefault(one.claim, {each: [] for each in heads})
        cells[place].append(one.verdict(one.effect(folder)))
    text = [
        [pages[claim], *("; ".join(_counted(own)) for own in cells.values())]
        for claim, cells in rows.items()
    ]
    return tables.markdown(["claim", *heads.values()], text)


def _counted(words: Iterable[str]) -> list[str]:
    """Distinct words, with the number of each that there are several of."""
    counts = collections.Counter(words).items()
    return [f"{word} ({count})" if count > 1 else word for word, count in counts]


def lines(claims: Iterable[Line], folder: Path, kept: Collection[Line] = ()) -> str:
    """A Markdown table of claims, without empty columns.

    Args:
      claims: The claims of the table.
      folder: Folder of the tables of runs.
      kept: Claims that are decided if those of all papers count; see `corrected`.
    """
    heads = ("here", "claim", "verdict", "effect", "seeds", "corrected")
    text: list[tuple[str, ...]] = [(*heads, "asked", "in the paper")]
    for one in claims:
        verdict, effect, seeds, asked = one.cells(folder)
        stays = "stays" if one in kept else ""
        own = one.setting, one.claim, f"**{verdict}**", effect, seeds, stays
        text.append((*own, asked, one.where))
    columns = [column for column in zip(*text) if any(column[1:])]
    shown, *rows = zip(*columns)
    if "seeds" not in shown:
        shown = tuple("measured" if name == "effect" else name for name in shown)
    return tables.markdown(shown, rows)
