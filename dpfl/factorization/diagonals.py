# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""What follows from how many diagonals an encoder C has.

Columns of C that are h apart share no row if C has h diagonals, and C^-1 Z obeys a
recurrence over the h - 1 rows before.
"""

from __future__ import annotations

from typing import Optional

import numpy as np

from dpfl.factorization.encoders import (
    BandedFactors,
    InverseBandedFactors,
    ToeplitzFactors,
)
from dpfl.factorization.factorization import Factorization

# A recurrence over more diagonals than this, and over more than the rounds divided by
# the second, costs more than blocks of a dense matrix: a row of those draws some
# rounds / 60 rows of normals, and to draw a row costs as much as 30 to add.
_MOST_BANDS, _ROUNDS_PER_BAND = 128, 8


def bands(found: Factorization) -> int:
    """Returns h, the diagonals of C as far as its factors tell; T for other factors."""
    factors = found.factors
    if isinstance(factors, ToeplitzFactors):
        return factors.bands
    if isinstance(factors, BandedFactors):
        return factors.diagonals.shape[1]
    return found.rounds


def kept_rows(found: Factorization) -> Optional[int]:
    """Returns how many rows of d floats a stream over diagonals remembers.

    Those of C are in a recurrence, those of C^-1 in a sum.

    Args:
      found: The factorization A = B C.

    Returns:
      h - 1; None if the stream is none of these: blocks of a dense matrix are cheaper
      where there are too many diagonals.
    """
    if isinstance(found.factors, InverseBandedFactors):
        h = found.factors.bands
    elif isinstance(found.factors, (ToeplitzFactors, BandedFactors)):
        h = bands(found)
    else:
        return None
    most = max(_MOST_BANDS, found.rounds // _ROUNDS_PER_BAND)
    return h - 1 if h <= most else None


def longest_column(found: Factorization, rounds: int, first: int = 0) -> float:
    """Returns the norm of the longest of some columns of C, as far as it is released.

    Args:
      found: The factorization A = B C.
      rounds: Rows of A G + B Z that are released.
      first: Columns from this one on count; 0 unless C has fewer diagonals than rows.
    """
    factors = found.factors
    if isinstance(factors, ToeplitzFactors):
        return float(np.linalg.norm(factors.c[: rounds - first]))
    if isinstance(factors, BandedFactors):
        columns = factors.diagonals[first:rounds]
        left = rounds - np.arange(first, rounds)
        released = np.arange(columns.shape[1]) < left[:, np.newaxis]
        return float(np.max(np.linalg.norm(columns * released, axis=1)))
    return found.sensitivity(rounds=rounds).value
