# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Evaluation of a model on a central test set, as one program.

evaluate = Evaluator(model, objective, x, y)
evaluate(params)    # {"loss": ..., "accuracy": ...}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpfl.arrays import Array
from dpfl.engines.jax.local_training import Sums, batch_sums
from dpfl.tasks.metrics import Objective
from dpfl.tasks.task import JaxParts

_BATCH = 256


def metrics(objective: Objective, sums: Sums) -> dict[str, np.float32]:
    """The metrics of sums by name, in their order; 0 where no label counts."""

    def mean(total: Array, count: Array) -> np.float32:
        return np.float32(total) / max(np.float32(count), np.float32(1))

    return {each.name: mean(*sums[each.name]) for each in objective.metrics}


class Evaluator:
    """Evaluates parameters on a test set, which stays on the device."""

    def __init__(
        self,
        model: JaxParts,
        objective: Objective,
        x: np.ndarray,
        y: np.ndarray,
        to_input: Optional[Callable[[Array], Array]] = None,
    ):
        """Initializes the evaluator.

        Args:
          model: The model.
          objective: The labels that are learned and scored.
          x: Inputs, [examples, ...].
          y: Labels, int32[examples, ...].
          to_input: Function from stored inputs to the model's; None for the identity.
        """
        batches = -(-len(x) // _BATCH)

        def batched(part: np.ndarray) -> Array:
            rest = np.zeros([batches * _BATCH - len(part), *part.shape[1:]], part.dtype)
            return jnp.reshape(
                jnp.asarray(np.concatenate([part, rest])),
                [batches, _BATCH, *part.shape[1:]],
            )

        self._examples = batched(x), batched(y), batched(np.ones([len(x)], bool))

        def add(params: Any, sums: Sums, batch: Any) -> tuple[Sums, None]:
            own_x, own_y, is_there = batch
            own_x = to_input(own_x) if to_input else own_x
            logits = model.apply(params, own_x, None)
            more = batch_sums(objective, logits, own_y, is_there)
            return jax.tree.map(jnp.add, sums, more), None

        @jax.jit
        def total(params: Any, examples: Any) -> Sums:
            zero = jnp.zeros([])
            zeros = {metric.name: (zero, zero) for metric in objective.metrics}
            with jax.default_matmul_precision("highest"):
                return lax.scan(
                    lambda sums, batch: add(params, sums, batch), zeros, examples
                )[0]

        self._objective, self._total = objective, total

    def __call__(self, params: Any) -> dict[str, np.float32]:
        """The metrics of parameters by name."""
        return metrics(self._objective, self._total(params, self._examples))
