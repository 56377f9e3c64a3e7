# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figures of Chen et al. 2022, 'The Fundamental Price of Secure Aggregation'.

    python -m experiments.reproduce --figure=secagg_fig2 --scale=small

Figs. 2 to 8 and Table 1 are views of one sweep over noise, compression rates r, bits b,
cohort sizes n and models.
"""

from __future__ import annotations

import math

from dpfl import tasks

from ..tables import Row, Rows, distinct, mean_and_range, where
from . import secure_sums

# Cohorts of Fig. 8: the one without compression, and the one that must be no slower.
TIMED_COHORTS = {"digits": (10, 50), "mnist": (50, 200), "emnist": (100, 1000)}
# Slack as a share of the task's own metric.
SLACK = dict.fromkeys(("digits", "emnist", "mnist"), 0.01)
SLACK |= dict.fromkeys(("docs", "stackoverflow"), 0.04)


def _with_noise(rows: Rows) -> list[Row]:
    """Rows with their noise, which is the budget or z, and their setting in words."""
    results: list[Row] = []
    for row in rows:
        is_budget = bool(row.get("budget"))
        amount = float(row["budget" if is_budget else "noise_multiplier"])
        noise = f"{'ε' if is_budget else 'z'}={amount:g}"
        rate = f"r={float(row['compression_rate']):g}"
        setting = f"n={row['cohort_size']}, {rate}, {row['bits']} bits, {noise}"
        results.append({**row, "noise": noise, "setting": setting})
    return results


def _final(rows: Rows) -> float:
    """The mean final metric of runs, with a sign so that larger is better."""
    metric = tasks.task_entry(rows[0]["task"]).metric
    mean, _, _ = mean_and_range(rows, metric.final_column)
    return -mean if metric.lower_is_better else mean


def fewest_bits(rows: Rows) -> list[Row]:
    """The runs of Table 1 for each task, noise and rate.

    These have the fewest bits whose metric is within the slack of the most bits
    without a sketch. Rates without such a number of bits have no run.
    """
    runs: list[Row] = []
    rows = _with_noise(rows)
    for task in distinct(rows, "task"):
        for noise in distinct(where(rows, task=task), "noise"):
            own = where(rows, task=task, noise=noise)
            plain = where(own, compression_rate=1)
            if not plain:
                continue
            widest = max(int(row["bits"]) for row in plain)
            best = _final(where(plain, bits=widest))
            worst = best - SLACK[task] * abs(best)
            for rate in distinct(own, "compression_rate"):
                groups = where(own, compression_rate=rate)
                widths = sorted(distinct(groups, "bits"), key=int)
                tried = [where(groups, bits=bits) for bits in widths]
                runs += next((g for g in tried if _final(g) >= worst), [])
    return runs


def rate_of_equal_time(small: int, large: int) -> float:
    """The compression at which a larger cohort's secure sum takes no longer.

    The time of secure aggregation is of order n log(n) d (Chen et al. 2022, A.1).
    """
    return large * math.log(large) / (small * math.log(small))


def equal_times(rows: Rows) -> list[Row]:
    """The smaller cohort without compression, and the larger with enough of it.

    Enough is the lowest rate of the sweep at which secure aggregation takes no longer
    for the larger cohort than for the smaller (Fig. 8).
    """
    runs: list[Row] = []
    rows = _with_noise(rows)
    for task in distinct(rows, "task"):
        least, most = TIMED_COHORTS[task]
        needed = rate_of_equal_time(least, most)
        own = where(rows, task=task)
        large = where(own, cohort_size=most)
        rates = sorted(distinct(large, "compression_rate"), key=float)
        runs += where(own, cohort_size=least, compression_rate=1)
        for rate in [r for r in rates if float(r) >= needed - 1e-6][:1]:
            runs += where(large, compression_rate=rate)
    return runs


ROWS = {
    **secure_sums.ROWS,
    **dict.fromkeys(("secagg_fig2", "secagg_fig4", "secagg_fig7"), _with_noise),
    "secagg_table1": fewest_bits,
    "secagg_fig8": equal_times,
}
WORK = secure_sums.WORK
