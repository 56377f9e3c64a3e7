# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Questions before a run: which noise, bits, rate or bands, and what is spent after."""

from dpfl.planning.budget import calibrate, epsilon, privacy_report
from dpfl.planning.choice import Chosen, chosen
from dpfl.planning.ledger import Ledger
from dpfl.planning.noise import Noise, noise

__all__ = ["Chosen", "Ledger", "Noise", "calibrate", "chosen", "epsilon", "noise"]
__all__ += ["privacy_report"]
