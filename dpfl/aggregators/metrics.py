# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Metrics of TFF's learning algorithms beside a mechanism.

    process = tff.learning.algorithms.build_unweighted_fed_avg(
        model_fn, optimizer, metrics_aggregator=dpfl.no_metrics
    )

Without it TFF opens sums of losses and of example counts.
"""

from __future__ import annotations

import collections
from typing import Any

import tensorflow_federated as tff


def no_metrics(
    metric_finalizers: Any, local_unfinalized_metrics_type: Any = None
) -> tff.Computation:
    """A `metrics_aggregator` for TFF's learning algorithms that opens nothing.

    TFF's own sums the clients' losses and example counts in the open. Beside a secure
    sum, that is an exact function of their data which no epsilon covers.

    Args:
      metric_finalizers: Ignored.
      local_unfinalized_metrics_type: Ignored.
    """
    del metric_finalizers, local_unfinalized_metrics_type

    @tff.federated_computation
    def aggregate(metrics: tff.Value) -> tff.Value:
        del metrics
        return tff.federated_value(collections.OrderedDict(), tff.SERVER)

    return aggregate
