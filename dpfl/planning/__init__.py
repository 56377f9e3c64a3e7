# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The plan of a run: its noise, bits, rate and bands, and the ledger that it keeps.

    mechanism = planning.calibrate(mechanism, plan, dimension, epsilon=4, delta=1e-6)
    ledger = planning.Ledger(mechanism, plan, dimension, delta=1e-6)
    epsilon = ledger.record_round(clients)

Imports no TensorFlow.
"""

from dpfl.planning.budget import epsilon, privacy_report
from dpfl.planning.choice import ResolvedMechanism, calibrate, resolve
from dpfl.planning.ledger import Ledger
from dpfl.planning.noise import Noise, noise

__all__ = [
    "ResolvedMechanism",
    "Ledger",
    "Noise",
    "calibrate",
    "resolve",
    "epsilon",
    "noise",
]
__all__ += ["privacy_report"]
