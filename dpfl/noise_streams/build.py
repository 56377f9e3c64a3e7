# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Choice of the cheapest stream that has the noise of a factorization.

    factorization = fact.compute(fact.Workload(64), "toeplitz-root")
    stream = build_stream(factorization, dimension)

With `redraw` structured streams draw rows again instead of remembering them.
"""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from dpfl import factorization as fact
from dpfl.arrays import in_numpy
from dpfl.factorization import factorization as factorization_lib
from dpfl.noise_streams import dense, encoders, structured, tree
from dpfl.noise_streams import stream as stream_lib


def build_stream(
    factorization: fact.Factorization,
    dimension: int,
    *,
    block_rounds: Optional[int] = None,
    redraw: bool = False,
    nx: Any = in_numpy,
) -> stream_lib.NoiseStream:
    """Builds the stream of A^-1 B Z of a factorization A = B C.

    Args:
      factorization: The factorization.
      dimension: d, the length of a row.
      block_rounds: Rounds of a dense stream computed at a time; None for
        `factorization.block_rounds`.
      redraw: Whether structured streams draw rows again instead of remembering them.
      nx: The module of the array library, of `dpfl.arrays`.

    Raises:
      ValueError: If `block_rounds` is below 1.
    """
    # The arguments of a stream depend on the kind of factors.
    factors: Any = factorization.factors
    rounds = factorization.rounds
    if isinstance(factors, fact.BandLowRankFactors):
        return structured.StructuredStream(
            factors, factorization.workload, dimension, redraw=redraw, nx=nx
        )
    if isinstance(factors, fact.BufferedFactors):
        return encoders.BufferedStream(factors, dimension, nx=nx)
    if factorization.method == "honaker-online":
        return tree.TreeStream(rounds, dimension, nx=nx)
    if factorization_lib.is_dense(factorization):
        matrix = lower_triangular(factorization.noising_rows())
        return dense.DenseStream(matrix, dimension, block_rounds=block_rounds, nx=nx)
    if isinstance(factors, fact.InverseBandedFactors):
        weights = factors.e[: factors.entries]
        return encoders.MovingStream(weights, rounds, dimension, redraw=redraw, nx=nx)
    if isinstance(factors, fact.ToeplitzFactors):
        columns = np.tile(factors.c[: factors.bands], (rounds, 1))
    else:
        columns = factors.diagonals
    rows = encoders.rows_of_columns(columns)
    return encoders.BandedStream(rows, dimension, nx=nx)


def lower_triangular(matrix: np.ndarray) -> np.ndarray:
    """The lower-triangular L with L L^T = K K^T, so that L Z' is distributed as K Z.

    A row of K Z may use rows of Z that later rows use too, as with `honaker-full`; a
    row of L Z' is drawn without them.

    Args:
      matrix: K, of shape (T, m) and rank T.

    Returns:
      K itself if it is square and lower triangular, else L of shape (T, T).
    """
    rounds, columns = matrix.shape
    if rounds == columns and not np.triu(matrix, 1).any():
        return matrix
    upper: np.ndarray = np.linalg.qr(matrix.T, mode="r")  # type: ignore[assignment]
    return upper.T * np.sign(np.diagonal(upper))
