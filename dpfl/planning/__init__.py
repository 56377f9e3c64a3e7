# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Questions before a run: which noise, bits, rate or bands, and what is spent after."""

from dpfl.planning.budget import calibrate
from dpfl.planning.choice import Chosen, chosen

__all__ = ["Chosen", "calibrate", "chosen"]
