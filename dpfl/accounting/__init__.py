# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Privacy accounting: events, an accountant and calibration. Imports no TensorFlow."""

from dpfl.accounting.accountant import DpflAccountant, register
from dpfl.accounting.calibration import (
    PrivacyReport,
    calibrate_noise_multiplier,
    epsilon,
)
from dpfl.accounting.events import DEFAULT_ORDERS, RdpDpEvent

__all__ = [
    "DEFAULT_ORDERS",
    "DpflAccountant",
    "PrivacyReport",
    "RdpDpEvent",
    "calibrate_noise_multiplier",
    "epsilon",
    "register",
]
