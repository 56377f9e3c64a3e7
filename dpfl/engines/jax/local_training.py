# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Training of many clients at once, each from the same weights on its own examples.

    update, sums = train(
        model, objective, params, batches, steps, client_lr=0.1, keys=keys
    )  # the update is a pytree as params, with a leading axis of clients

One program runs all clients of a chunk: a step is mapped over clients, and the loop has
as many steps as the chunk's largest client. A client that is done has batches without
examples, and stays as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dpfl import arrays
from dpfl.arrays import Array
from dpfl.tasks.metrics import LARGEST_SUM, LabelMetric, Objective
from dpfl.tasks.task import JaxParts
from dpfl.training.engine import PRECISIONS


class Batch(NamedTuple):
    """A batch of each client.

    Attributes:
      x: Inputs, [clients, batch, ...].
      y: Labels, int32[clients, batch, ...].
      is_there: bool[clients, batch], whether a row is an example.
    """

    x: Array
    y: Array
    is_there: Array


# Sums of a metric's values, and of the labels that count, by the metric's name.
Sums = dict[str, tuple[Array, Array]]


def batch_sums(objective: Objective, logits: Array, y: Array, is_there: Array) -> Sums:
    """The sums of a batch of one client, in the dtype of the logits.

    Args:
      objective: The task's objective.
      logits: Float array [batch, ..., classes].
      y: int32[batch, ...], labels.
      is_there: bool[batch], whether a row is an example.
    """
    nx = arrays.named("jax")
    rows = jnp.reshape(is_there, [len(y), *[1] * (y.ndim - 1)])

    def summed(metric: LabelMetric) -> tuple[Array, Array]:
        parts = objective.values(metric, nx, logits, y)
        values, counts = (jnp.sum(jnp.where(rows, part, 0)) for part in parts)
        return values.astype(logits.dtype), counts.astype(logits.dtype)

    return {metric.name: summed(metric) for metric in objective.metrics}


def train(
    model: JaxParts,
    objective: Objective,
    params: Any,
    batches: Callable[[Array], Batch],
    steps: Array,
    *,
    client_lr: float,
    keys: Array,
    precision: str = "float32",
) -> tuple[Any, Sums]:
    """Trains clients at once: a step of gradient descent for each of their batches.

    Args:
      model: The model.
      objective: The labels that are learned, and those that are scored.
      params: The parameters that all begin with.
      batches: Function of a step to the clients' batches.
      steps: int32[], the most steps of a client.
      client_lr: Learning rate.
      keys: Keys of `jax.random` [clients], for dropout.
      precision: A key of `PRECISIONS`, of products of matrices in training.

    Returns:
      With a leading axis of clients, parameters before minus parameters after; and sums
      over all batches, each before its step, or zeros if training diverged.
    """

    def mean_loss(own: Any, x: Array, y: Array, is_there: Array, key: Array) -> Any:
        if precision == "bfloat16":
            own, x = jax.tree.map(_to_bfloat16, (own, x))
        logits = model.apply(own, x, key)
        if precision == "bfloat16":
            logits = logits.astype(jnp.float32)
        sums = batch_sums(objective, logits, y, is_there)
        loss, learned = sums[objective.metrics[0].name]
        return loss / jnp.maximum(learned, 1), sums

    def client_step(own: Any, x: Array, y: Array, is_there: Array, key: Array) -> Any:
        gradient, sums = jax.grad(mean_loss, has_aux=True)(own, x, y, is_there, key)
        moved = jax.tree.map(lambda w, g: w - client_lr * g, own, gradient)
        # A gradient of no example may be NaN: others decide how many such steps follow.
        has_any = functools.partial(jnp.where, jnp.any(is_there))
        nothing = jax.tree.map(jnp.zeros_like, sums)
        return jax.tree.map(has_any, (moved, sums), (own, nothing))

    def body(carried: tuple[Array, Any, Sums]) -> tuple[Array, Any, Sums]:
        step, own, sums = carried
        step_keys = jax.vmap(jax.random.fold_in, (0, None))(keys, step)
        own, more = jax.vmap(client_step)(own, *batches(step), step_keys)
        return step + 1, own, jax.tree.map(jnp.add, sums, more)

    clients = len(keys)
    first = jax.tree.map(
        lambda part: jnp.broadcast_to(part, [clients, *part.shape]), params
    )
    dtype = jnp.promote_types(jax.tree.leaves(params)[0].dtype, jnp.float32)
    nothing = jnp.zeros([clients], dtype)
    zeros = {metric.name: (nothing, nothing) for metric in objective.metrics}
    with jax.default_matmul_precision(PRECISIONS[precision]):
        _, last, sums = lax.while_loop(
            lambda carried: carried[0] < steps,
            body,
            (jnp.zeros_like(steps), first, zeros),
        )
    update = jax.tree.map(lambda old, new: old - new, params, last)
    return update, _bounded(sums)


def _to_bfloat16(part: Array) -> Array:
    return part.astype(jnp.bfloat16) if part.dtype == jnp.float32 else part


def _bounded(sums: Sums) -> Sums:
    """The sums of clients, or zeros if a client's are not finite.

    Without this and the bound, one client's metrics could spoil all sums.
    """
    is_finite = jnp.all(jnp.isfinite(jnp.stack(jax.tree.leaves(sums))), 0)

    def bounded(each: Array) -> Array:
        return jnp.where(is_finite, jnp.clip(each, -LARGEST_SUM, LARGEST_SUM), 0)

    return jax.tree.map(bounded, sums)
