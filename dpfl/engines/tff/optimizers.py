# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A server's optimizer as one of TFF's.

optimizer = TffOptimizer(server_optimizers.build_server_optimizer("sgd", 1.0))
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from dpfl import arrays
from dpfl.training.server_optimizers import ServerOptimizer


class TffOptimizer(tff.learning.optimizers.Optimizer):
    """An optimizer of `dpfl.training.server_optimizers`, for structures of tensors."""

    def __init__(self, optimizer: ServerOptimizer):
        self._optimizer = optimizer

    def initialize(self, specs: Any) -> Any:
        """See base class."""
        shapes = [spec.shape for spec in tf.nest.flatten(specs)]
        return self._optimizer.initialize(arrays.named("tensorflow"), shapes)

    # Optimizers have no control flow that depends on tensors, and searching for it
    # (autograph) is a third of what it takes to build a process.
    @tf.autograph.experimental.do_not_convert
    def next(self, state: Any, weights: Any, gradients: Any) -> tuple[Any, Any]:
        """See base class."""
        state, moved = self._optimizer.next(
            state, tf.nest.flatten(weights), tf.nest.flatten(gradients)
        )
        return state, tf.nest.pack_sequence_as(weights, moved)
