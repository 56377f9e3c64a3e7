# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Rounds in JAX.

    agg = dpfl.jax_aggregator(mechanism, params)
    mean, state, measured = agg.update(agg.init(), updates, None, agg.entropy())

The text of `aggregator` shows a whole training loop.
"""
