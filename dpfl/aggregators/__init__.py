# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""TFF aggregators, made from configurations of mechanisms.

    mechanism = dpfl.Gaussian(cohort_size=100, clip_norm=1.0, noise_multiplier=1.0)
    process = aggregators.build(mechanism).create(value_type)

`build` makes the factory of a `dpfl.mechanisms` configuration, and
`build_with_host_noise` that for a training program that holds the state;
`dpfl.mechanisms.registry` has the table.

Importing this package makes TFF's own workers end with the program; see `worker_end`.
"""

from dpfl import needs_tff  # noqa: F401
from dpfl.aggregators import worker_end
from dpfl.aggregators.factory import CodecFactory
from dpfl.aggregators.metrics import no_metrics
from dpfl.aggregators.registry import build, build_with_host_noise

__all__ = ["CodecFactory", "build", "build_with_host_noise", "no_metrics"]

worker_end.protect()
