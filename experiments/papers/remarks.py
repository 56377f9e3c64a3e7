# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What is said of the rows of a figure."""

from __future__ import annotations

from dpfl import accounting
from dpfl.planning import remarks

from .rows import Rows


def print_remark(rows: Rows) -> None:
    """Says how many rows have an epsilon that protects nobody, if any have."""
    spent = [row.get("measured_epsilon") or row.get("epsilon") or "0" for row in rows]
    large = [text for text in spent if float(text) > accounting.LARGE_EPSILON]
    if large:
        print(
            f"note that an epsilon above {accounting.LARGE_EPSILON:g} protects nobody, "
            f"found in {len(large)} of {len(rows)} rows; the train.log of a run names "
            f"the noise_multiplier that brings it to {remarks.USUAL_EPSILON:g}"
        )
