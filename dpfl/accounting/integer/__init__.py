# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Noise in integers: its events, and the Renyi divergences of its laws.

    event = noise_events.DistributedSkellamDpEvent(
        clients, local_stddev, granularity, clip_norm=1.0, dimension=dimension
    )
    accounting.epsilon(event, delta=1e-6).epsilon

The other modules bound the cost of rounding, and of whole shifts of the noise.
"""
