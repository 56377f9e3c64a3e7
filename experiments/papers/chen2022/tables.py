# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Table 1 and Fig. 8, as tables of the sweep's rows."""

from __future__ import annotations

from typing import Any

from dpfl import tasks

from .. import plotting, secure_sums
from ..result_rows import Rows, distinct, numbers, seeds, where
from .training import TIMED_COHORTS, bar, panels, said, within

# Of columns in pictures.
_TITLES = {
    "n": "clients",
    "epsilon": "\u03b5",
    "z": "noise\nmultiplier",
    "r": "compression\nrate",
    "b": "bits of\na number",
    "bits per parameter": "bits per\nparameter",
}


def fewest_bits(rows: Rows) -> list[dict[str, str]]:
    """Returns of each task, noise and rate the fewest bits within the slack.

    Args:
      rows: Rows of the sweep.

    Returns:
      Rows with task, epsilon, noise multiplier, compression rate, bits, bits per
      parameter and measure (mean and range over seeds); without those
      rates that no number of bits keeps within the slack.
    """
    found = []
    for task, runs in panels(rows):
        plain = where(runs, compression_rate=1)
        if not plain:
            continue
        widest = max(int(r["bits"]) for r in plain)
        worst = bar(where(plain, bits=widest), task)
        for rate in distinct(runs, "compression_rate"):
            chosen = where(runs, compression_rate=rate)
            for bits in sorted(distinct(chosen, "bits"), key=int):
                group = where(chosen, bits=bits)
                if within(group, worst, task):
                    found.append(_row(group))
                    break
    return found


def equal_times(rows: Rows) -> list[dict[str, str]]:
    """Returns the smaller cohort without compression, and the larger with enough.

    Enough is the lowest rate of the sweep at which secure aggregation takes the larger
    cohort no longer than the smaller.

    Args:
      rows: Rows of the sweep.
    """
    found = []
    for task, runs in panels(rows):
        least, most = TIMED_COHORTS[task]
        needed = secure_sums.rate_of_equal_time(least, most)
        large = where(runs, cohort_size=most)
        rates = sorted(distinct(large, "compression_rate"), key=float)
        enough = [rate for rate in rates if float(rate) >= needed - 1e-6][:1]
        for cohort, chosen in ((least, ["1"]), (most, enough)):
            group = [
                row
                for row in where(runs, cohort_size=cohort)
                if row["compression_rate"] in chosen
            ]
            if group:
                found.append({"n": str(cohort), **_row(group)})
    return found


def _row(group: Rows) -> dict[str, str]:
    first = group[0]
    measure = tasks.task_entry(first["task"]).measure
    values = numbers(group, measure.final_column)
    mean = sum(values) / len(values)
    return {
        "task": first["task"],
        "epsilon": f"{float(first['epsilon']):.3g}",
        "z": f"{float(first['noise_multiplier']):.3g}",
        "r": f"{float(first['compression_rate']):g}",
        "b": first["bits"],
        "bits per parameter": f"{float(first['uplink_bits_per_parameter']):.3g}",
        measure.label: f"{mean:.3f} ({min(values):.3f} to {max(values):.3f})",
    }


def _titled(table: Rows) -> list[dict[str, str]]:
    """Returns a table whose columns have the names that a picture shows."""
    return [{_TITLES.get(k, k): v for k, v in row.items()} for row in table]


def draw_fewest_bits(rows: Rows, scale: str) -> Any:
    """Draws Table 1."""
    del scale
    slack = ", ".join(f"{task} {said(task)}" for task in distinct(rows, "task"))
    return plotting.table(
        _titled(fewest_bits(rows)),
        "the fewest bits tried at each rate that are within the slack\n"
        f"of the most bits without a sketch ({slack}); {seeds(rows)}",
        width=8,
    )


def draw_equal_times(rows: Rows, scale: str) -> Any:
    """Draws Fig. 8."""
    del scale
    return plotting.table(
        _titled(equal_times(rows)),
        "a small cohort without a sketch, and a large one whose sketch makes "
        f"secure aggregation\nno slower; {seeds(rows)}",
        width=8,
    )
