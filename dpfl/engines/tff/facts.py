# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Facts of TFF's engine, without the import of TFF, which takes seconds.

facts.about(plan).memory    # bytes
"""

from __future__ import annotations

from typing import Any

from dpfl import machine
from dpfl.training import provenance
from dpfl.training.engine import About

# Vectors of a model that each group of clients beyond the second adds.
_VECTORS_OF_A_GROUP = 10
# Vectors of a model that copies of the state on its way to the worker and back add.
_VECTORS_OF_MESSAGES = 25
# Beginnings of the environment's settings by which TensorFlow chooses its code.
_SETTINGS = ("TF_ENABLE_", "TF_XLA_", "ONEDNN_", "DNNL_")


def about(plan: Any) -> About:
    """The facts of a plan's engine."""
    groups = plan.config.concurrency or machine.processors()
    vectors = plan.mechanism.run_vectors(plan.dimension) + _VECTORS_OF_MESSAGES
    vectors += _VECTORS_OF_A_GROUP * max(0, groups - 2)
    is_the_same = not plan.task.draws_in_training
    memory = round(4 * vectors * plan.dimension)
    settings = provenance.environment(_SETTINGS)
    last_bits = {**provenance.kind_of_processor(), **settings}
    return About({"device": "cpu"}, is_the_same, last_bits, memory)
