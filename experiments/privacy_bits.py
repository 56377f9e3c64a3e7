# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The subcommand bits of dpfl-privacy, which has the flags."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from dpfl import checks
from dpfl.mechanisms import Mechanism, Participation
from dpfl.mechanisms.integer import MOST_BITS
from dpfl.planning import comparison
from dpfl.planning.comparison import Cost

from . import cli, drawings

COLUMNS = {
    "mechanism": "mechanism",
    "rate": "compression",
    "bits": "bits",
    "bits_per_parameter": "bits a parameter",
    "noise_multiplier": "noise multiplier",
    "epsilon": "epsilon",
    "mean_squared_error": "error of mean",
    "error_over_gaussian": "over Gaussian",
    "accountant": "accountant",
}


def curve(candidates: Sequence[Mechanism], participation: Participation) -> list[Cost]:
    """Returns the points of the curve, and draws them if --plot says so.

    What cannot run with so few bits is said on stderr.

    Args:
      candidates: Mechanisms, each with every number of bits that --widths names.
      participation: Who takes part in which rounds.
    """
    values: Any = flags.FLAGS
    wanted = [
        each
        for candidate in candidates
        for each in comparison.widened(candidate, widths())
    ]
    with cli.bar(wanted) as each:
        found = list(
            comparison.points(
                each,
                participation,
                values.dimension,
                values.epsilon,
                values.delta,
                values.accountant,
            )
        )
    for mechanism, point, refused in found:
        if point is None:
            print(f"not shown: {mechanism.name}: {refused}", file=sys.stderr)
    points: list[Cost] = [point for _, point, _ in found if point is not None]
    if values.plot is not None:
        drawings.draw_bits([dataclasses.asdict(point) for point in points], values.plot)
    return points


def widths() -> list[int]:
    """Returns the numbers of bits that --widths names."""
    texts = flags.FLAGS.widths
    try:
        found = [int(text) for text in texts]
    except ValueError:
        wanted = "whole numbers with commas between them"
        message = checks.message("--widths", wanted, ",".join(texts))
        raise ValueError(message) from None
    for width in found:
        checks.integer("--widths", width, 1, MOST_BITS)
    return found
