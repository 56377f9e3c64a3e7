# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The array library of an audit: TensorFlow's beside TFF, else JAX's.

draw = library.compiled(codec.release)
seed = library.seed(1, 77)
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from dpfl import arrays
from dpfl.arrays import Array

HAS_TFF = importlib.util.find_spec("tensorflow_federated") is not None
NAME = "tensorflow" if HAS_TFF else "jax"
NX = arrays.named(NAME)
if not HAS_TFF:
    import jax

    jax.config.update("jax_enable_x64", True)
    # A card would round factors.
    jax.config.update("jax_default_matmul_precision", "highest")


def seed(*words: int) -> Array:
    """A seed of two words, int64[2]."""
    return NX.asarray(np.array(words, np.int64), np.int64)


def compiled(function: Callable[..., Any], *specs: tuple[Any, Any]) -> Any:
    """A function of arrays, compiled.

    Args:
      function: The function.
      *specs: Shape and dtype of each argument; none for any.
    """
    if not HAS_TFF:
        return jax.jit(function)
    import tensorflow as tf

    signature = [tf.TensorSpec(*spec) for spec in specs] or None
    return tf.function(function, signature, autograph=False)


def mapped(function: Callable[[Any], Any], rows: tuple[Array, ...]) -> Any:
    """The results of a function of each row of arrays, one after the other."""
    if not HAS_TFF:
        return jax.lax.map(function, rows)
    import tensorflow as tf

    def spec(part: Any, shape: Any) -> Any:
        return tf.TensorSpec(shape, part.dtype)

    of_row = [spec(part, part.shape[1:]) for part in rows]
    one = tf.function(lambda *row: function(row), autograph=False)
    outputs = one.get_concrete_function(*of_row).structured_outputs
    kind = tf.nest.map_structure(lambda part: spec(part, part.shape), outputs)
    return tf.map_fn(lambda row: one(*row), rows, fn_output_signature=kind)
