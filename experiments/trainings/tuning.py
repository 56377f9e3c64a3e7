# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Choice of settings by a validation measure, for `dpfl-search` and `dpfl-sweep`.

    tuning.validation("digits", "0.1")
    best = tuning.ranked(rows, ["server_lr"], "final_accuracy", False)[0].setting

Runs that diverged are rows whose measure is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from dpfl import checks, tasks

from .. import tables
from .sweep import Training

FRACTION = "validation_fraction"


class Tried(NamedTuple):
    """A setting, its number of runs and their mean metric, NaN if one diverged."""

    setting: Mapping[str, Any]
    seeds: int
    mean: float


def validation(task: str, fraction: str) -> dict[str, str]:
    """The options that have a task evaluate on a validation set.

    Args:
      task: Name of the task.
      fraction: Share of the training data, where it may be chosen.

    Raises:
      ValueError: If the task is unknown, or has no validation set.
    """
    options = {FRACTION: fraction, "evaluate_on": "validation"}

    def of(name: str) -> dict[str, str]:
        own = {option.name for option in tasks.task_options(name)}
        return {name: value for name, value in options.items() if name in own}

    if not of(task):
        known = filter(of, tasks.task_names())
        wanted = f"one with a validation set, {' or '.join(known)}"
        raise ValueError(checks.message("--task", wanted, task))
    return of(task)


def ends(grid: Sequence[Training]) -> list[Training]:
    """Runs with the least and greatest number, and each word, of every flag.

    Tasks and mechanisms count by themselves.
    """
    values: dict[tuple[str, ...], dict[str, int]] = {}
    for number, one in enumerate(grid):
        whole = one.all_flags
        kind = str(whole.get("task")), str(whole.get("mechanism"))
        for name, value in whole.items():
            values.setdefault((*kind, name), {}).setdefault(str(value), number)
    chosen: set[int] = set()
    for numbers in values.values():
        ordered = in_order(numbers)
        if is_number(ordered[0]):
            ordered = [ordered[0], ordered[-1]]
        chosen.update(numbers[value] for value in ordered)
    return [grid[number] for number in sorted(chosen)]


def is_number(text: Optional[str]) -> bool:
    """Whether a text is a finite number."""
    return math.isfinite(tables.number(text or ""))


def in_order(texts: Collection[str]) -> list[str]:
    """Distinct values: numbers in rising order, or all as they are if one is a word."""
    distinct = dict.fromkeys(texts)
    if all(map(is_number, distinct)):
        return list(
            {float(text): text for text in sorted(distinct, key=float)}.values()
        )
    return list(distinct)


def ranked(
    rows: tables.Rows, names: Collection[str], metric: str, lower_is_better: bool
) -> list[Tried]:
    """The tried settings, the best first by a column of the table.

    Settings with the most seeds come first, and diverged ones last.

    Args:
      rows: Rows of the runs.
      names: Columns that make a setting.
      metric: Column of the metric.
      lower_is_better: Whether a smaller metric is the better one.
    """
    groups: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for row in rows:
        key = tuple((name, str(row[name])) for name in names if row.get(name))
        groups.setdefault(key, []).append(float(row[metric]))
    tried = [
        Tried(dict(key), len(values), sum(values) / len(values))
        for key, values in groups.items()
    ]

    def worth(one: Tried) -> tuple[bool, int, float]:
        mean = one.mean if lower_is_better else -one.mean
        return math.isnan(one.mean), -one.seeds, 0.0 if math.isnan(mean) else mean

    return sorted(tried, key=worth)
