# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Flattening of values of any structure to one vector, and back.

    layout = Layout(value_type)
    vector = layout.flatten(update, layout.dimension)
    update = layout.restore(vector)

A client's key may stand beside the update: `layout.split(value)` parts them.
"""

from __future__ import annotations

import math
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import checks

# A structure of tensors, as tf.nest understands it.
Structure = Any


# Type of the key that may stand beside a client's update.
KEY_TYPE = tff.TensorType(np.int64, [2])
_NAMES = ["update", "client_key"]


class Layout:
    """The layout of a value's tensors in one flat vector.

    Attributes:
      value_type: TFF type of a client's value.
      has_key: Whether a client's key stands beside the update.
      dimension: Length d of the flattened update.
    """

    def __init__(self, value_type: tff.Type):
        self.value_type = value_type
        self.has_key = _has_key(value_type)
        update_type = value_type["update"] if self.has_key else value_type
        self._specs = _tensor_specs(update_type)
        if self._specs is None:
            raise TypeError(
                "value_type must be a structure of float tensors of known shapes, or "
                "OrderedDict(update=<such a structure>, client_key=int64[2]), found "
                f"{value_type}"
            )
        specs = tf.nest.flatten(self._specs)
        self._sizes = [math.prod(spec.shape.as_list()) for spec in specs]
        self.dimension = sum(self._sizes)
        if not self.dimension:
            wanted = "of at least one parameter"
            raise ValueError(checks.message("value_type", wanted, value_type))

    def split(self, value: Structure) -> tuple[Structure, Optional[tf.Tensor]]:
        """Splits a value into the update and the client's key or None."""
        if self.has_key:
            return value["update"], value["client_key"]
        return value, None

    def flatten(self, update: Structure, length: int) -> tf.Tensor:
        """Flattens an update to float32[length], padded with zeros, in one pass."""
        parts = [
            tf.cast(tf.reshape(tensor, [-1]), tf.float32)
            for tensor in tf.nest.flatten(update)
        ]
        if length > self.dimension:
            parts.append(tf.zeros([length - self.dimension]))
        return parts[0] if len(parts) == 1 else tf.concat(parts, 0)

    def restore(self, vector: tf.Tensor) -> Structure:
        """Restores the structure of an update from a float32[dimension] vector."""
        parts = tf.split(vector, self._sizes)
        tensors = [
            tf.cast(tf.reshape(part, spec.shape), spec.dtype)
            for part, spec in zip(parts, tf.nest.flatten(self._specs))
        ]
        return tf.nest.pack_sequence_as(self._specs, tensors)


def _has_key(value_type: tff.Type) -> bool:
    if not isinstance(value_type, tff.StructType):
        return False
    is_named = tff.structure.name_list(value_type) == _NAMES
    return is_named and value_type["client_key"] == KEY_TYPE


def _tensor_specs(update_type: tff.Type) -> Optional[Structure]:
    """The tf.TensorSpecs of a type; None if it cannot be aggregated."""
    if isinstance(update_type, tff.TensorType):
        specs = tf.TensorSpec(update_type.shape, update_type.dtype)
    elif isinstance(
        update_type, tff.StructWithPythonType
    ) and tff.types.is_structure_of_tensors(update_type):
        specs = tff.types.structure_from_tensor_type_tree(
            lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), update_type
        )
    else:
        return None
    leaves = tf.nest.flatten(specs)
    for spec in leaves:
        if not (spec.dtype.is_floating and spec.shape.is_fully_defined()):
            return None
    return specs if leaves else None
