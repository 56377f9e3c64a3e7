# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Audits of real aggregators: lower bounds on epsilon, and counts of their noise.

Everything is looked at that the adversary of an event sees: the noised integers of a
trusted server before any post-processing, what a secure sum opens, and the result.
`suite.jobs` are the checks; `experiments/audit.py` runs them.
"""

from dpfl import needs_tff  # noqa: F401
