# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Privacy accounting: events, an accountant and calibration.

    z = accounting.calibrate_noise_multiplier(dp_accounting.GaussianDpEvent, 4, 1e-6)
    accounting.epsilon(dp_accounting.GaussianDpEvent(z), 1e-6).epsilon  # at most 4

Imports no TensorFlow.
"""

from dpfl.accounting.accountant import DpflAccountant
from dpfl.accounting.audit_figures import AuditFigures
from dpfl.accounting.calibration import (
    LARGE_EPSILON,
    BudgetNotBindingError,
    CalibrationError,
    PrivacyReport,
    UnreachableBudgetError,
    calibrate_noise_multiplier,
    epsilon,
    loss_distribution,
)
from dpfl.accounting.csgm import (
    LinfSparsifiedGaussianDpEvent,
    SparsifiedGaussianDpEvent,
    SparsifiedMatrixFactorizationDpEvent,
)
from dpfl.accounting.events import (
    DEFAULT_ORDERS,
    NoiseTooLargeError,
    NoiseTooSmallError,
    RdpDpEvent,
    Relation,
    RunDpEvent,
)
from dpfl.accounting.gaussian import gaussian_delta, gaussian_epsilon
from dpfl.accounting.integer.noise_events import (
    DistributedDiscreteGaussianDpEvent,
    DistributedSkellamDpEvent,
)
from dpfl.accounting.matrix_factorization import MatrixFactorizationDpEvent
from dpfl.accounting.trees import relations_of

__all__ = [
    "DEFAULT_ORDERS",
    "LARGE_EPSILON",
    "AuditFigures",
    "BudgetNotBindingError",
    "CalibrationError",
    "DistributedDiscreteGaussianDpEvent",
    "DistributedSkellamDpEvent",
    "DpflAccountant",
    "LinfSparsifiedGaussianDpEvent",
    "MatrixFactorizationDpEvent",
    "NoiseTooLargeError",
    "NoiseTooSmallError",
    "PrivacyReport",
    "RdpDpEvent",
    "Relation",
    "RunDpEvent",
    "SparsifiedGaussianDpEvent",
    "SparsifiedMatrixFactorizationDpEvent",
    "UnreachableBudgetError",
    "calibrate_noise_multiplier",
    "epsilon",
    "gaussian_delta",
    "gaussian_epsilon",
    "loss_distribution",
    "relations_of",
]
