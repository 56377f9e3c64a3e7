# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Comparison of factorizations of one workload: errors, sensitivity, seconds.

workload = mf.Workload(16, 0.9)
for each in factorizations.contenders(workload, participations=2, separation=8):
print(each.row(mf.MinSeparation(8, 2)))
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Optional

from dpfl.factorization import structured
from dpfl.factorization.factorization import Factorization
from dpfl.factorization.methods import compute
from dpfl.factorization.sensitivity import OneParticipation, ParticipationSchema
from dpfl.factorization.workloads import Workload


@dataclasses.dataclass(frozen=True)
class TimedFactorization:
    """A factorization A = B C, and the wall-clock time to compute it."""

    factorization: Factorization
    seconds: float

    def row(self, plan: ParticipationSchema) -> dict[str, Any]:
        """The factorization's row of the table, for the rounds of a client.

        Errors are per coordinate at noise multiplier 1 and clip norm 1. The gap bounds
        the loss under one participation and is None for any other plan.
        """
        factorization = self.factorization
        sensitivity = factorization.sensitivity(plan)
        return {
            "rounds": factorization.rounds,
            "method": factorization.method,
            "params": dict(factorization.params),
            **dataclasses.asdict(factorization.errors(plan)),
            "sensitivity": sensitivity.value,
            "sensitivity_is_exact": sensitivity.exact,
            "gap": factorization.gap if isinstance(plan, OneParticipation) else None,
            "seconds": self.seconds,
        }


def timed(make: Callable[[], Factorization]) -> TimedFactorization:
    """The result of `make`, with the seconds it took."""
    begin = time.perf_counter()
    return TimedFactorization(make(), time.perf_counter() - begin)


def band_and_rank(rounds: int) -> tuple[int, int]:
    """Band and rank of the structured decoder: log2(rounds) in all, rounded up.

    This is the choice of Denisov et al. 2022, Table 2; the band has the larger half.
    """
    depth = max(1, math.ceil(math.log2(rounds)))
    return min((depth + 1) // 2, rounds), depth // 2


def contenders(
    workload: Workload,
    *,
    bands: Optional[int] = None,
    rank: Optional[int] = None,
    buffers: int = 3,
    participations: int = 1,
    separation: Optional[int] = None,
) -> list[TimedFactorization]:
    """The factorization of a workload by each method.

    The optimal prefix sum is left out for a workload that is one. The last is the
    structured approximation of the optimal one; its seconds are the approximation's.

    Args:
      workload: The workload A.
      bands: Band of the structured decoder; None for `band_and_rank`'s.
      rank: Rank of the structured decoder; None for `band_and_rank`'s.
      buffers: Buffers of the buffered Toeplitz encoder.
      participations: Most rounds of a client, to which Toeplitz encoders are fitted.
      separation: Least distance of these rounds; needed with more than one.
    """
    several: Mapping[str, Any] = {}
    if participations > 1:
        several = {"participations": participations, "separation": separation}
    methods: dict[str, Mapping[str, Any]] = {
        "identity": {},
        "honaker-online": {},
        "honaker-full": {},
        "optimal-prefix-sum": {},
        "optimal": {},
        "toeplitz-root": {},
        "toeplitz": several,
        "blt": {"buffers": buffers, **several},
    }
    if workload.is_prefix_sum:
        del methods["optimal-prefix-sum"]
    results = {
        method: timed(functools.partial(compute, workload, method, **params))
        for method, params in methods.items()
    }
    optimal = results["optimal"].factorization
    usual_bands, usual_rank = band_and_rank(workload.rounds)
    band = usual_bands if bands is None else min(bands, workload.rounds)
    width = usual_rank if rank is None else rank
    last = timed(lambda: structured.band_low_rank(optimal, band, width))
    return [*results.values(), last]
