# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Flattening of pytrees of float arrays to one vector, and back.

    layout = TreeLayout(params)
    vector = layout.flatten(update, layout.dimension)
    update = layout.restore(vector)

The template may be of anything with a shape and a dtype. Keys are sorted, those of an
OrderedDict too, as in the layout of `dpfl.aggregators`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpfl import checks
from dpfl.arrays import Array

# A pytree of arrays, in the shapes of the template.
Update = Any


class TreeLayout:
    """The layout of a pytree's leaves in one flat vector.

    Attributes:
      dimension: Length d of the vector.
      text: The pytree's structure, shapes and dtypes.
    """

    def __init__(self, template: Update):
        """Initializes the layout.

        Args:
          template: A pytree of float arrays, or of anything with a shape and a dtype.
        """
        leaves, self._structure = jax.tree.flatten(template)
        places = jax.tree.unflatten(self._structure, range(len(leaves)))
        self._order = list(_sorted_leaves(places))
        for leaf in leaves:
            if not (hasattr(leaf, "dtype") and is_float(leaf)):
                wanted = "a pytree of float arrays, or of their shapes and dtypes"
                raise TypeError(checks.message("template", wanted, leaf))
        self._types = [
            (tuple(leaf.shape), jax.dtypes.canonicalize_dtype(leaf.dtype))
            for leaf in leaves
        ]
        self._sizes = [math.prod(shape) for shape, _ in self._types]
        self.dimension = sum(self._sizes)
        if not self.dimension:
            wanted = "of at least one parameter"
            raise ValueError(checks.message("template", wanted, template))
        parts = ", ".join(f"{dtype}{list(shape)}" for shape, dtype in self._types)
        self.text = f"{self._structure}: {parts}"

    def clients(self, updates: Any) -> int:
        """The length of the leading axis of updates; TypeError for other shapes."""
        leaves, structure = jax.tree.flatten(updates)
        shapes = [tuple(leaf.shape) for leaf in leaves]
        number = shapes[0][0] if shapes and shapes[0] else 0
        wanted = [(number, *shape) for shape, _ in self._types]
        fits = structure == self._structure and shapes == wanted
        if not (fits and all(map(is_float, leaves))):
            rule = f"float arrays with a leading axis of clients before {self.text}"
            given = f"{structure}: {', '.join(str(list(each)) for each in shapes)}"
            raise TypeError(checks.message("updates", rule, given))
        return number

    def flatten(self, update: Update, length: int) -> Array:
        """Flattens an update to float32[length], padded with zeros."""
        leaves = jax.tree.leaves(update)
        ordered = (leaves[place] for place in self._order)
        parts = [jnp.reshape(leaf, [-1]).astype(jnp.float32) for leaf in ordered]
        parts.append(jnp.zeros([length - self.dimension], jnp.float32))
        return jnp.concatenate(parts)

    def restore(self, vector: Array) -> Update:
        """Restores a pytree of the template's dtypes from a flat float32 vector."""
        sizes = [self._sizes[place] for place in self._order]
        parts = jnp.split(vector, np.cumsum(sizes)[:-1])
        leaves: list[Any] = [None] * len(parts)
        for place, part in zip(self._order, parts):
            shape, dtype = self._types[place]
            leaves[place] = jnp.reshape(part, shape).astype(dtype)
        return jax.tree.unflatten(self._structure, leaves)

    def zeros(self, clients: int) -> Any:
        """Updates of zeros."""
        leaves = [jnp.zeros([clients, *shape], dtype) for shape, dtype in self._types]
        return jax.tree.unflatten(self._structure, leaves)


def _sorted_leaves(tree: Any) -> Iterator[Any]:
    """The leaves in the order of `tf.nest`; JAX sorts no OrderedDict."""
    if isinstance(tree, Mapping):
        for key in sorted(tree):
            yield from _sorted_leaves(tree[key])
    elif isinstance(tree, (list, tuple)):
        for part in tree:
            yield from _sorted_leaves(part)
    else:
        yield from jax.tree.leaves(tree)


def is_float(leaf: Any) -> bool:
    """Whether an array's numbers are floats."""
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))
