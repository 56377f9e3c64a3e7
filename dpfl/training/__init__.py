# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A training run: its worker, choice of clients, checkpoints, metrics and ledger."""

from dpfl import needs_tff  # noqa: F401
