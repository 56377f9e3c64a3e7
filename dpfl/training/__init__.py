# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Training runs: settings, cohort selection, checkpoints, metrics and ledger.

plan = dpfl.make_plan(dpfl.RunConfig(...))
with dpfl.Run(plan) as run:
    summary = run.train()
"""
