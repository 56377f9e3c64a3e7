# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The clients of a round in JAX, and sums over them in chunks and over devices.

    total, scalars, aux = cohorts.sums(chunk, codec, cohort, clients_at_once)

The sums have the same bits for chunks of any size, on any number of devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Optional, Union

import jax
import jax.numpy as jnp
from jax import lax

from dpfl import checks
from dpfl.arrays import Array
from dpfl.codecs.base import Codec
from dpfl.engines.jax.layout import Update, is_float

# Updates with a leading axis of clients, or a function from places to them.
Updates = Union[Any, Callable[[Array], Any]]


class JaxCohort(NamedTuple):
    """The clients of a round, of this device or of all if all devices know them.

    Attributes:
      updates: A pytree with a leading axis, or a function; see `JaxAggregator.update`.
      keys: Integers [clients, words], or None.
      mask: bool[clients], or None.
      weights: float32[clients], or None.
      number: The number of clients.
    """

    updates: Updates
    keys: Optional[Array]
    mask: Optional[Array]
    weights: Optional[Array]
    number: int

    @property
    def is_shared(self) -> bool:
        """Whether all devices know all clients, as a function does."""
        return callable(self.updates)

    def is_there(self, places: Array) -> Array:
        """Whether each place has a client that is not masked, bool[places]."""
        is_there = places < self.number
        if self.mask is not None:
            is_there = is_there & self.mask[jnp.minimum(places, self.number - 1)]
        return is_there

    def at(self, places: Array) -> tuple[tuple[Update, Any], Any, Array]:
        """Updates with aux, keys with weights, and `is_there` at places."""
        is_there = self.is_there(places)
        # A function finds a client past the end too.
        places = jnp.minimum(places, self.number - 1)
        own = jax.tree.map(lambda each: each[places], (self.keys, self.weights))
        if callable(self.updates):
            return self.updates(places), own, is_there
        updates = self.updates
        if len(places) != self.number:
            updates = jax.tree.map(lambda leaf: leaf[places], updates)
        return (updates, None), own, is_there


def key_words(keys: Any) -> Array:
    """Keys as integers [clients, words]."""
    keys = jnp.asarray(keys)
    if jnp.issubdtype(keys.dtype, jax.dtypes.prng_key):
        keys = jax.random.key_data(keys)
    if not (jnp.issubdtype(keys.dtype, jnp.integer) and keys.ndim):
        wanted = "keys of jax.random or integers, one or a row for each client"
        raise TypeError(checks.message("keys", wanted, keys))
    return jnp.reshape(keys, [keys.shape[0], math.prod(keys.shape[1:])])


def sums(
    chunk: Callable[[Array], tuple[Any, Any]],
    codec: Codec,
    cohort: JaxCohort,
    clients_at_once: int,
    axis: Optional[str] = None,
) -> tuple[Any, Any, Any]:
    """The sums of all chunks, of the same bits on any number of devices.

    Args:
      chunk: Function of places to the sum of their messages and a pair of rows.
      codec: The codec of the messages.
      cohort: The clients.
      clients_at_once: The most clients of a chunk.
      axis: Name of the axis of devices; None for one device.
    """
    number = cohort.number
    chunks = -(-number // clients_at_once)
    size = -(-number // chunks)
    # Chunks of clients that all devices know are dealt to the devices in turn.
    is_dealt = axis is not None and cohort.is_shared
    leaves = jax.tree.leaves(codec.zero())
    is_ordered = is_dealt and any(map(is_float, leaves))

    def none(places: Array) -> tuple[Any, Any]:
        made = jax.eval_shape(chunk, places)
        return jax.tree.map(lambda each: jnp.zeros(each.shape, each.dtype), made)

    def merged(total: Any, more: Any) -> tuple[Any, None]:
        return codec.reduce_modulo(codec.merge(total, more)), None

    def add(total: Any, index: Array) -> tuple[Any, Any]:
        places = index * size + jnp.arange(size, dtype=jnp.int32)
        # A chunk of absent clients, which pads a cohort, costs nothing.
        more, rows = lax.cond(jnp.any(cohort.is_there(places)), chunk, none, places)
        if not is_ordered:
            return merged(total, more)[0], rows
        # Floats are added in the order of the chunks.
        return lax.scan(merged, total, lax.all_gather(more, axis))[0], rows

    def of_cohort(row: Array) -> Array:
        if is_dealt:
            row = lax.all_gather(row, axis, axis=1)
        row = jnp.ravel(row)[:number]
        if axis is not None and not is_dealt:
            row = jnp.ravel(lax.all_gather(row, axis))
        return row

    indices = jnp.arange(chunks, dtype=jnp.int32)
    if is_dealt:
        devices = lax.axis_size(axis)
        turns = jnp.arange(-(-chunks // devices), dtype=jnp.int32)
        indices = turns * devices + lax.axis_index(axis)
    if is_dealt or chunks > 1:
        total, rows = lax.scan(add, codec.zero(), indices)
    else:
        total, rows = chunk(jnp.arange(size, dtype=jnp.int32))
    if axis is not None and not is_ordered:
        total = codec.reduce_modulo(lax.psum(total, axis))
    # Floats too are added up in one order, however the cohort was split.
    return (total, *jax.tree.map(lambda row: _sum(of_cohort(row)), rows))


def _sum(row: Array) -> Array:
    """The sum of numbers in pairs, in an order that no compiler changes."""
    row = jnp.pad(row, [0, (1 << (len(row) - 1).bit_length()) - len(row)])
    while len(row) > 1:
        row = row[: len(row) // 2] + row[len(row) // 2 :]
    return row[0]
