# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Rounds of clients and server in a framework; a package for each.

    agg = dpfl.jax_aggregator(mechanism, params)  # of `dpfl.engines.jax`
    mean, state, measured = agg.update(agg.init(), updates, None, agg.entropy())

TFF's rounds are in `dpfl.aggregators`.
"""
