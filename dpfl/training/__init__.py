# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Training runs: workers, cohort selection, checkpoints, metrics and ledger."""

from dpfl import needs_tff  # noqa: F401
