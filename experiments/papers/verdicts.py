# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Kinds of claims: an effect of runs, a number, or nothing yet; each has a verdict.

    effect = claim.effect(Path("docs/results"))
    claim.verdict(effect)    # "no cost shown", "costs more" or "not decided", ...

A claim names the compared runs and the condition on their effect, which is the same for
all claims of a kind. `experiments.papers.claims` has the papers' claims.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np

from dpfl import files

from .. import effects, tables

# Limits that an effect on accuracy must exceed, and their words on pages.
FREE, AHEAD = "costs below 1 point", "ahead"
LIMITS = {FREE: -0.01, AHEAD: 0.0}
HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "not decided"
NO_COST, COSTS, COSTS_MORE = "no cost shown", "costs, below the margin", "costs more"
NOT_ASSAYABLE = "not assayable"


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
        values = [float(row[self.column]) for row in rows]
        return self._effect(rows, values, effects.effect)

    def place(self, words: Iterable[str]) -> str:
        """The first of the words that the setting has."""
        return next(each for each in words if each in self.setting)

    def over_clients(self, folder: Path) -> Optional[effects.Effect]:
        """The gain with its interval over seeds and clients.

        It is computed from the file of `dpfl-compare --by_client`, which is beside the
        table of `dpfl-compare --csv`; None where there is none.

        Raises:
          ValueError: If the files are of different runs.
        """
        path = folder / f"{self.table}_clients.csv"
        if not path.exists():
            return None
        clients = files.read_csv(path)
        examples = np.array([float(row["examples"]) for row in clients])
        rows = _rows(folder, self.table, self.chosen)
        sums = [np.array([float(own[row["run"]]) for own in clients]) for row in rows]
        for row, own in zip(rows, sums):
            value, wanted = float(np.sum(own) / np.sum(examples)), row[self.column]
            if not math.isclose(value, float(wanted), abs_tol=1e-5):
                raise ValueError(
                    f"{path} must have {self.column} {wanted} of {row['run']}, "
                    f"found {value}"
                )

        def found(cells: Any, pairs: Any) -> effects.Effect:
            return effects.effect_over_clients(cells, examples, pairs)

        return self._effect(rows, sums, found)

    def _effect(
        self,
        rows: Sequence[tables.Row],
        values: Sequence[Any],
        of: Callable[[Any, Any], effects.Effect],
    ) -> effects.Effect:
        """The effect from what each row measured.

        Args:
          rows: Rows of the table.
          values: A value of each.
          of: Function of cells and pairs to their effect.
        """
        sides = (self.ours, self.other, self.chosen, *(self.less or ()))
        names = [*self.over, *sorted({name for side in sides for name in side})]

        def cell(row: tables.Row) -> tuple[str, ...]:
            return tuple(row[name] for name in names)

        cells = effects.by_seed(
            (cell(row), row["seed"], value) for row, value in zip(rows, values)
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
        return of(cells, every).times(scale)

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
        effect = in_points(interval, digits)
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


def in_points(interval: effects.Effect, digits: int = 1) -> str:
    """An effect on accuracy with the ends of its interval."""
    ends = (interval.size, interval.low, interval.high)
    return "{} ({} to {})".format(*(f"{100 * x:.{digits}f}" for x in ends))


@dataclasses.dataclass(frozen=True)
class Gate:
    """A number without which a family says nothing.

    Attributes:
      words: What is wrong if the number is not within its bounds.
      number: Function of the folder of tables to the number.
      least: The least that it may be.
      below: What it must be below.
    """

    words: str
    number: Callable[[Path], float]
    least: float = -math.inf
    below: float = math.inf

    def holds(self, folder: Path) -> bool:
        """Whether the number is within its bounds."""
        return self.least <= self.number(folder) < self.below


def late_change(claims: Iterable[Claim], folder: Path) -> float:
    """The greatest change of an effect between the last two evaluations, either way.

    Args:
      claims: Claims about a table of `dpfl-compare --csv`.
      folder: Folder of the tables.
    """
    changes = (dataclasses.replace(one, column="late_change") for one in claims)
    return max(abs(one.effect(folder).size) for one in changes)


def best_at_end(table: str, arms: Labels, folder: Path) -> float:
    """The number of arms whose best setting is an end of those tried.

    Args:
      table: Name of a table with lines of the sweep.csv of `dpfl-sweep`.
      arms: Labels of the lines.
      folder: Folder of the tables.

    Raises:
      ValueError: If no line has the labels.
    """
    rows = _rows(folder, table, arms)
    if not rows:
        raise ValueError(f"{table} must have lines of {dict(arms)}, found none")
    return sum(bool(row["best_at_end"]) for row in rows)


@dataclasses.dataclass(frozen=True)
class Family:
    """Claims that were asked beforehand, in the order in which they are decided.

    Attributes:
      name: The family's name.
      claims: The claims.
      gates: The gates.
    """

    name: str
    claims: tuple[Claim, ...]
    gates: tuple[Gate, ...]

    def failed(self, folder: Path) -> list[str]:
        """The words of the gates that fail."""
        return [gate.words for gate in self.gates if not gate.holds(folder)]

    def verdicts(self, folder: Path) -> list[str]:
        """The verdict of each claim, which is decided only if those before it are."""
        if self.failed(folder):
            return [NOT_ASSAYABLE for _ in self.claims]
        found: list[str] = []
        for one in self.claims:
            verdict = one.verdict(one.effect(folder))
            found.append(UNDECIDED if UNDECIDED in found else verdict)
        return found

    def p_values(self, folder: Path) -> list[float]:
        """The p-value of each claim; 1 where the family is not assayable."""
        if self.failed(folder):
            return [1.0 for _ in self.claims]
        return [one.p_value(one.effect(folder)) for one in self.claims]


def _rows(folder: Path, table: str, labels: Labels) -> list[tables.Row]:
    rows = files.read_csv(folder / f"{table}.csv")
    return [row for row in rows if tables.has(row, labels)]
