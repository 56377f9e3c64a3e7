# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Evaluation of a model on a central test set, as one program.

evaluate = JaxEvaluator(task, model)
evaluate(params)    # {"loss": ..., "accuracy": ...}
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpfl.arrays import Array
from dpfl.engines.jax import networks
from dpfl.engines.jax.local_training import Sums, batch_sums
from dpfl.engines.jax.rounds import padded
from dpfl.tasks.metrics import Objective
from dpfl.tasks.task import JaxParts, Task

_BATCH = 256


def metrics(objective: Objective, sums: Sums) -> dict[str, np.float32]:
    """The metrics of sums by name, in their order; 0 where no label counts."""

    def mean(total: Array, count: Array) -> np.float32:
        return np.float32(total) / max(np.float32(count), np.float32(1))

    return {each.name: mean(*sums[each.name]) for each in objective.metrics}


class JaxEvaluator:
    """Evaluates parameters on a test set, which stays on the device."""

    def __init__(self, task: Task, model: JaxParts):
        """Initializes the evaluator."""
        x, y = task.test_examples()
        objective, to_input = task.objective, task.to_input
        batches = -(-len(x) // _BATCH)

        def batched(part: np.ndarray) -> Array:
            whole = jnp.asarray(padded(part, batches * _BATCH))
            return jnp.reshape(whole, [batches, _BATCH, *part.shape[1:]])

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
                return lax.scan(functools.partial(add, params), zeros, examples)[0]

        self._objective, self._total = objective, total

    def __call__(self, params: Any) -> dict[str, np.float32]:
        """The metrics of parameters by name."""
        return metrics(self._objective, self._total(params, self._examples))


def logits_of(
    task: Task,
) -> Callable[[Sequence[np.ndarray], np.ndarray], np.ndarray]:
    """The function of a task's weights and inputs, as they are stored, to logits."""
    own = networks.model(task.network) if task.network else task.jax
    assert own is not None
    structure = jax.tree.structure(networks.template(own))

    @jax.jit
    def logits(weights: Sequence[Array], x: Array) -> Array:
        x = task.to_input(x) if task.to_input else x
        with jax.default_matmul_precision("highest"):
            return own.apply(jax.tree.unflatten(structure, weights), x, None)

    return lambda weights, x: np.asarray(logits(weights, x))
