# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mechanisms as frozen numbers: noise, accounting and bits from one object."""

from dpfl.mechanisms.budget import calibrate
from dpfl.mechanisms.choice import Chosen, chosen
from dpfl.mechanisms.csgm import L2Csgm, LinfCsgm, default_linf_ratio
from dpfl.mechanisms.distributed import (
    DistributedDiscreteGaussian,
    DistributedSkellam,
)
from dpfl.mechanisms.dome import Dome, DomeDdg
from dpfl.mechanisms.gaussian import Gaussian
from dpfl.mechanisms.integer import IntegerMechanism
from dpfl.mechanisms.matrix_factorization import MatrixFactorization
from dpfl.mechanisms.mechanism import Mechanism, NoiseMechanism
from dpfl.mechanisms.none import NoMechanism
from dpfl.mechanisms.participation import (
    PARTICIPATIONS,
    CyclicPoisson,
    FixedSize,
    OncePerEpoch,
    Participation,
    PoissonSampling,
    RandomSlot,
)
from dpfl.mechanisms.registry import MECHANISMS
from dpfl.mechanisms.sgmf import Sgmf
from dpfl.mechanisms.sketch import ProjectAndPerturb, SketchedDdg, SparseRecovery

__all__ = [
    "MECHANISMS",
    "PARTICIPATIONS",
    "Chosen",
    "CyclicPoisson",
    "DistributedDiscreteGaussian",
    "DistributedSkellam",
    "Dome",
    "DomeDdg",
    "FixedSize",
    "Gaussian",
    "IntegerMechanism",
    "L2Csgm",
    "LinfCsgm",
    "MatrixFactorization",
    "Mechanism",
    "NoMechanism",
    "NoiseMechanism",
    "OncePerEpoch",
    "Participation",
    "PoissonSampling",
    "ProjectAndPerturb",
    "RandomSlot",
    "Sgmf",
    "SketchedDdg",
    "SparseRecovery",
    "calibrate",
    "chosen",
    "default_linf_ratio",
]
