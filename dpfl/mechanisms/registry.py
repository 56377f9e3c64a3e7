# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The one table of mechanisms, from a name to the class of its configuration."""

from __future__ import annotations

from dpfl.mechanisms import (
    csgm,
    dome,
    gaussian,
    integer,
    matrix_factorization,
    none,
    sgmf,
    sketch,
)
from dpfl.mechanisms.mechanism import Mechanism

_CONFIGS: tuple[type[Mechanism], ...] = (
    none.NoMechanism,
    gaussian.Gaussian,
    csgm.L2Csgm,
    csgm.LinfCsgm,
    integer.DistributedDiscreteGaussian,
    integer.DistributedSkellam,
    sketch.SketchedDdg,
    sketch.ProjectAndPerturb,
    sketch.SparseRecovery,
    dome.Dome,
    dome.DomeDdg,
    matrix_factorization.MatrixFactorization,
    sgmf.Sgmf,
)

# The classes of the configurations, by name.
MECHANISMS = {config.name: config for config in _CONFIGS}
