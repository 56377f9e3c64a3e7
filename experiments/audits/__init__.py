# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Audits of real aggregators: lower bounds on epsilon, and counts of their noise.

    settings = suite.Settings(mechanisms=("gaussian",), is_quick=True)
    for name, job in suite.jobs(settings):
        results += job()

The audits examine everything that the adversary of an event sees: the noised integers
of a trusted server before any post-processing, the opened secure sums, and the result.
`suite.jobs` lists the checks, which `experiments/audit.py` runs. With JAX in place of
TFF they are of `dpfl.jax_aggregator`.
"""
