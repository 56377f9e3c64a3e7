# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Matrix factorizations A = B C for correlated noise: numpy and scipy, float64.

    banded = compute(prefix_sum(1000), "banded", bands=16)
    banded.errors().root_mean, banded.sensitivity(MinSeparation(16)).value

See docs/factorization.md for the symbols and the algorithms.
"""

from dpfl.factorization.factorization import ErrorSummary, Factorization
from dpfl.factorization.factors import (
    BandedFactors,
    BandLowRankFactors,
    BufferedFactors,
    DenseFactors,
    Factors,
    InverseBandedFactors,
    ToeplitzFactors,
    TreeFactors,
)
from dpfl.factorization.methods import METHODS, compute
from dpfl.factorization.sensitivity import (
    FixedEpochs,
    MinSeparation,
    OneParticipation,
    ParticipationSchema,
    Sensitivity,
    ShuffledEpochs,
)
from dpfl.factorization.storage import load, save
from dpfl.factorization.workloads import (
    ConstantRate,
    DropRate,
    LinearCooldown,
    Schedule,
    Workload,
    prefix_sum,
)

__all__ = [
    "METHODS",
    "BandLowRankFactors",
    "BandedFactors",
    "BufferedFactors",
    "ConstantRate",
    "DenseFactors",
    "DropRate",
    "ErrorSummary",
    "Factorization",
    "Factors",
    "FixedEpochs",
    "InverseBandedFactors",
    "LinearCooldown",
    "MinSeparation",
    "OneParticipation",
    "ParticipationSchema",
    "Schedule",
    "Sensitivity",
    "ShuffledEpochs",
    "ToeplitzFactors",
    "TreeFactors",
    "Workload",
    "compute",
    "load",
    "prefix_sum",
    "save",
]
