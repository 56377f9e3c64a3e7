# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mechanisms as frozen numbers: noise, accounting and bits from one object."""

from dpfl.mechanisms import registry
from dpfl.mechanisms.csgm import L2Csgm, LinfCsgm, default_linf_ratio
from dpfl.mechanisms.dome import Dome, DomeDdg
from dpfl.mechanisms.gaussian import Gaussian, NoMechanism
from dpfl.mechanisms.integer import (
    DistributedDiscreteGaussian,
    DistributedSkellam,
    IntegerMechanism,
)
from dpfl.mechanisms.matrix_factorization import MatrixFactorization
from dpfl.mechanisms.mechanism import Mechanism, NoiseMechanism
from dpfl.mechanisms.participation import (
    PARTICIPATIONS,
    BallsInBins,
    BMinSeparation,
    CyclicPoisson,
    FixedSize,
    OncePerEpoch,
    Participation,
    PoissonSampling,
    RandomAllocation,
    WithoutReplacement,
)
from dpfl.mechanisms.registry import MECHANISMS, TEST_CONFIGS, register
from dpfl.mechanisms.sgmf import Sgmf
from dpfl.mechanisms.sketch import ProjectAndPerturb, SketchedDdg, SparseRecovery

__all__ = ["Mechanism", "NoMechanism", "NoiseMechanism", "Gaussian", "IntegerMechanism"]
__all__ += ["DistributedDiscreteGaussian", "DistributedSkellam", "Dome", "DomeDdg"]
__all__ += ["L2Csgm", "LinfCsgm", "MatrixFactorization", "Sgmf", "default_linf_ratio"]
__all__ += ["ProjectAndPerturb", "SketchedDdg", "SparseRecovery"]
__all__ += ["BallsInBins", "BMinSeparation", "CyclicPoisson", "FixedSize"]
__all__ += ["OncePerEpoch", "Participation"]
__all__ += [
    "PARTICIPATIONS",
    "PoissonSampling",
    "RandomAllocation",
    "WithoutReplacement",
]
__all__ += ["TEST_CONFIGS", "MECHANISMS", "register"]

# Loaded last, since plug-ins import this package.
registry.load_plugins()
