# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""From a factorization to the cheapest stream that has its noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import numpy as np

from dpfl import factorization as fact
from dpfl.factorization import factorization as factorization_lib
from dpfl.noise_streams import banded, blt, dense, moving, structured, tree
from dpfl.noise_streams import stream as stream_lib


def build_stream(
    factorization: fact.Factorization,
    dimension: int,
    *,
    block_rounds: Optional[int] = None,
    redraw: bool = False,
    normals: stream_lib.Normals = stream_lib.grid_normals,
) -> stream_lib.NoiseStream:
    """Returns the stream of A^-1 B Z of a factorization.

    Args:
      factorization: A = B C.
      dimension: d.
      block_rounds: Rounds computed at a time where the stream is a dense one; None is
        `dense.default_block_rounds`.
      redraw: Whether a structured stream draws rows again rather than remember them.
      normals: The source of Z.

    Raises:
      ValueError: If `dimension` or `block_rounds` is below 1.
    """
    if dimension < 1:
        raise ValueError(f"dimension must be at least 1, found {dimension}")
    build = _BUILDERS[type(factorization.factors)]
    return build(
        factorization, dimension, normals, block_rounds=block_rounds, redraw=redraw
    )


def _dense(
    factorization: Any,
    dimension: int,
    normals: stream_lib.Normals,
    *,
    block_rounds: Optional[int],
    redraw: bool,
) -> stream_lib.NoiseStream:
    del redraw
    matrix = factorization.noising_rows(0, factorization.rounds)
    return dense.DenseStream(
        matrix, dimension, block_rounds=block_rounds, normals=normals
    )


def _tree(
    factorization: Any, dimension: int, normals: stream_lib.Normals, **options: Any
) -> stream_lib.NoiseStream:
    if factorization.method == "honaker-online":
        return tree.TreeStream(factorization.rounds, dimension, normals=normals)
    return _dense(factorization, dimension, normals, **options)


def _structured(
    factorization: Any,
    dimension: int,
    normals: stream_lib.Normals,
    *,
    block_rounds: Optional[int],
    redraw: bool,
) -> stream_lib.NoiseStream:
    del block_rounds
    return structured.StructuredStream(
        factorization.factors,
        factorization.workload,
        dimension,
        redraw=redraw,
        normals=normals,
    )


def _toeplitz(
    factorization: Any, dimension: int, normals: stream_lib.Normals, **options: Any
) -> stream_lib.NoiseStream:
    factors = factorization.factors
    if factorization_lib.kept_rows(factorization) is None:
        return _dense(factorization, dimension, normals, **options)
    columns = np.tile(factors.c[: factors.bands], (factors.rounds, 1))
    rows = banded.rows_of_columns(columns)
    return banded.BandedStream(rows, dimension, normals=normals)


def _banded(
    factorization: Any, dimension: int, normals: stream_lib.Normals, **options: Any
) -> stream_lib.NoiseStream:
    columns = factorization.factors.diagonals
    if factorization_lib.kept_rows(factorization) is None:
        return _dense(factorization, dimension, normals, **options)
    rows = banded.rows_of_columns(columns)
    return banded.BandedStream(rows, dimension, normals=normals)


def _buffered(
    factorization: Any, dimension: int, normals: stream_lib.Normals, **options: Any
) -> stream_lib.NoiseStream:
    del options
    factors = factorization.factors
    return blt.BufferedStream(
        factors.inverse_decay,
        factors.inverse_scale,
        factors.rounds,
        dimension,
        normals=normals,
    )


def _moving(
    factorization: Any, dimension: int, normals: stream_lib.Normals, **options: Any
) -> stream_lib.NoiseStream:
    factors = factorization.factors
    if factorization_lib.kept_rows(factorization) is None:
        return _dense(factorization, dimension, normals, **options)
    weights = factors.e[: factors.bands]
    return moving.MovingStream(
        weights, factors.rounds, dimension, redraw=options["redraw"], normals=normals
    )


_BUILDERS: dict[type[fact.Factors], Callable[..., stream_lib.NoiseStream]] = {
    fact.DenseFactors: _dense,
    fact.TreeFactors: _tree,
    fact.BandLowRankFactors: _structured,
    fact.ToeplitzFactors: _toeplitz,
    fact.BandedFactors: _banded,
    fact.BufferedFactors: _buffered,
    fact.InverseBandedFactors: _moving,
}
