# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""The table of methods: names, and functions that factorize a workload.

    compute(prefix_sum(1000), "toeplitz", bands=16)

Results of long computations are cached on disk.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpfl import checks, disk_cache
from dpfl.factorization import (
    banded,
    blt,
    inverse_banded,
    optimal,
    optimal_epochs,
    structured,
    toeplitz,
    tree,
)
from dpfl.factorization.factorization import Factorization, from_parts, parts
from dpfl.factorization.factors import ToeplitzFactors
from dpfl.factorization.workloads import Workload


def identity(workload: Workload) -> Factorization:
    """C = I, B = A: independent noise in each round."""
    factors = ToeplitzFactors(toeplitz.padded(np.ones(1), workload.rounds))
    return Factorization(workload, "identity", {}, factors)


def band_low_rank(
    workload: Workload, *, band: int, rank: int, rtol: float = 1e-6
) -> Factorization:
    """The structured approximation of the optimal factorization.

    Args:
      workload: A.
      band: h, diagonals kept of B, in [1, T].
      rank: r of the low-rank part, in [0, T].
      rtol: Relative duality gap of the optimal factorization.
    """
    exact = optimal.factorize(workload, rtol=rtol)
    return structured.band_low_rank(exact, band, rank)


METHODS: Mapping[str, Callable[..., Factorization]] = {
    "identity": identity,
    "honaker-online": tree.honaker_online,
    "honaker-full": tree.honaker_full,
    "optimal-prefix-sum": optimal.for_momentum,
    "optimal": optimal.factorize,
    "optimal-epochs": optimal_epochs.factorize_epochs,
    "band-low-rank": band_low_rank,
    "toeplitz-root": toeplitz.root,
    "toeplitz": toeplitz.optimize_toeplitz,
    "banded": banded.optimize_banded,
    "banded-inverse-root": inverse_banded.root,
    "banded-inverse": inverse_banded.optimize_inverse,
    "blt-rational": blt.rational,
    "blt": blt.optimize_blt,
}


_COUNTS = ("band", "bands", "buffers", "participations", "separation")
# The methods check that a count is not too large for a workload.
_CHECKS: Mapping[str, checks.Check] = {
    **dict.fromkeys(_COUNTS, checks.integer),
    "rank": functools.partial(checks.integer, at_least=0),
    "rtol": checks.positive,
}


def checked(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a method as their checks return them, None unchanged."""
    return {
        name: _CHECKS[name](name, value)
        if name in _CHECKS and value is not None
        else value
        for name, value in params.items()
    }


def compute(workload: Workload, method: str, **params: Any) -> Factorization:
    """The factorization of a workload by a method of `METHODS` with its parameters.

    Args:
      workload: A.
      method: A key of `METHODS`.
      **params: Arguments of the method's function.

    Raises:
      ValueError: If there is no such method or it does not take the parameters.
    """
    method = checks.choice("method", method, METHODS)
    workload = checks.instance(Workload)("workload", workload)
    params = checked(params)
    try:
        return _factorize(METHODS[method], workload, params)
    except TypeError as error:
        raise ValueError(
            f"params must be arguments of the method {method!r}, found "
            f"{sorted(params)}: {error}"
        ) from error


@disk_cache.kept(parts, from_parts)
def _factorize(
    method: Callable[..., Factorization], workload: Workload, params: Mapping[str, Any]
) -> Factorization:
    return method(workload, **params)
