# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""dpfl: differential privacy and communication in federated learning."""

__version__ = "0.1.0"
