# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""By how much a compressed run may be worse than the uncompressed one."""

from __future__ import annotations

from dpfl import tasks

from ..rows import Rows, mean_and_range

# A share of the task's own measure.
SLACK = {
    "digits": 0.01,
    "docs": 0.04,
    "emnist": 0.01,
    "mnist": 0.01,
    "stackoverflow": 0.04,
}


def said(task: str) -> str:
    """Returns how far off the slack is, in words."""
    measure = tasks.task_entry(task).measure
    return f"{SLACK[task]:.0%} {'above' if measure.lower_is_better else 'below'}"


def bar(rows: Rows, task: str) -> float:
    """Returns the worst measure that the slack allows.

    Args:
      rows: Uncompressed runs.
      task: Name of the task.
    """
    measure = tasks.task_entry(task).measure
    mean, _, _ = mean_and_range(rows, measure.final_column)
    return mean * (1 + SLACK[task] if measure.lower_is_better else 1 - SLACK[task])


def within(rows: Rows, worst: float, task: str) -> bool:
    """Returns whether runs are no worse than `worst` in the mean over seeds."""
    measure = tasks.task_entry(task).measure
    mean, _, _ = mean_and_range(rows, measure.final_column)
    return mean <= worst if measure.lower_is_better else mean >= worst
