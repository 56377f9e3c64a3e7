# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Networks of `dpfl.tasks.networks` as functions of JAX.

    logits = apply(network, weights, x)             # evaluation
    logits = apply(network, weights, x, key)        # training, with dropout

A batch belongs to one client; `jax.vmap` makes one program of many clients, in which
each has weights of its own. Convolutions are products of patches and weights, since
XLA makes slow grouped convolutions of convolutions that are mapped over weights.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Optional

import jax
import jax.numpy as jnp
from jax import lax

from dpfl import checks
from dpfl.arrays import Array
from dpfl.tasks import networks
from dpfl.tasks.networks import Network
from dpfl.tasks.task import JaxParts


def apply(
    network: Network,
    weights: Sequence[Array],
    x: Array,
    key: Optional[Array] = None,
) -> Array:
    """The logits of a batch.

    Args:
      network: The network.
      weights: Its weights, in Keras's order.
      x: Examples, [batch, *network.input_shape].
      key: Key of `jax.random` for dropout in training; None drops nothing.

    Returns:
      Logits in the weights' dtype, [batch, ..., classes].
    """
    rest = list(weights)
    for place, (layer, shape) in enumerate(network.with_shapes()):
        number = len(layer.weight_shapes(shape))
        own, rest = rest[:number], rest[number:]
        own_key = None if key is None else jax.random.fold_in(key, place)
        x = _APPLY[type(layer)](layer, own, x, own_key)
    return x


def _convolution(layer: Any, weights: Any, x: Array, key: Any) -> Array:
    kernel, bias = weights
    rows, columns, _ = layer.output_shape(x.shape[1:])
    size, step = layer.size, layer.strides

    def shifted(i: int, j: int) -> Array:
        ends = i + step * (rows - 1) + 1, j + step * (columns - 1) + 1
        return x[:, i : ends[0] : step, j : ends[1] : step, :]

    patches = [shifted(i, j) for i in range(size) for j in range(size)]
    flat = jnp.reshape(kernel, [-1, layer.filters])
    return jax.nn.relu(_affine(jnp.concatenate(patches, -1), flat, bias))


@jax.custom_vjp
def _affine(x: Array, kernel: Array, bias: Array) -> Array:
    """An affine map of the last axis, whose gradients are products of stored matrices.

    XLA would compute the gradient of the outputs again for each of them, and transpose
    it, which is a third of a step on a processor.
    """
    return x @ kernel + bias


def _affine_forward(x: Array, kernel: Array, bias: Array) -> Any:
    return _affine(x, kernel, bias), (x, kernel)


def _affine_backward(kept: tuple[Array, Array], slope: Array) -> Any:
    x, kernel = kept
    rows, slopes = lax.optimization_barrier(
        [jnp.reshape(part, [-1, part.shape[-1]]) for part in (x, slope)]
    )
    of_x = jnp.reshape(slopes @ kernel.T, x.shape)
    return of_x, rows.T @ slopes, jnp.sum(slopes, 0)


_affine.defvjp(_affine_forward, _affine_backward)


def _dense(layer: Any, weights: Any, x: Array, key: Any) -> Array:
    kernel, bias = weights
    x = x @ kernel + bias
    return jax.nn.relu(x) if layer.activation == "relu" else x


def _dropout(layer: Any, weights: Any, x: Array, key: Any) -> Array:
    if key is None:
        return x
    keeps = jax.random.bernoulli(key, 1 - layer.rate, x.shape)
    return jnp.where(keeps, x / (1 - layer.rate), 0)


def _flatten(layer: Any, weights: Any, x: Array, key: Any) -> Array:
    return jnp.reshape(x, [len(x), -1])


def _max_pool(layer: Any, weights: Any, x: Array, key: Any) -> Array:
    batch, rows, columns, channels = x.shape
    even = x[:, : rows - rows % 2, : columns - columns % 2]
    squares = [batch, rows // 2, 2, columns // 2, 2, channels]
    return jnp.max(jnp.reshape(even, squares), (2, 4))


def _embedding(layer: Any, weights: Any, x: Array, key: Any) -> Array:
    return weights[0][x]


def _lstm(layer: Any, weights: Any, x: Array, key: Any) -> Array:
    kernel, recurrent, bias = weights
    begin = jnp.zeros([len(x), layer.units], x.dtype)

    def step(carried: tuple[Array, Array], gates: Array) -> Any:
        output, cell = carried
        gates = gates + output @ recurrent
        into, forget, candidate, out = jnp.split(gates, 4, -1)
        cell = jax.nn.sigmoid(forget) * cell
        cell = cell + jax.nn.sigmoid(into) * jnp.tanh(candidate)
        output = jax.nn.sigmoid(out) * jnp.tanh(cell)
        return (output, cell), output

    # Products with the inputs do not depend on each other: one of all positions.
    every = jnp.swapaxes(x @ kernel + bias, 0, 1)
    _, outputs = lax.scan(step, (begin, begin), every)
    return jnp.swapaxes(outputs, 0, 1)


# Function of a layer, its weights, a batch and a key, by the layer's class.
_APPLY: dict[type, Callable[[Any, Any, Array, Any], Array]] = {
    networks.Convolution: _convolution,
    networks.Dense: _dense,
    networks.Dropout: _dropout,
    networks.Embedding: _embedding,
    networks.Flatten: _flatten,
    networks.LSTM: _lstm,
    networks.MaxPool: _max_pool,
}


def model(network: Network) -> JaxParts:
    """The functions of a network, with its weights as a list in Keras's order."""

    def init(seed: int) -> list[Array]:
        return [jnp.asarray(each) for each in network.initial_weights(seed)]

    return JaxParts(init, functools.partial(apply, network))


def template(own: JaxParts) -> Any:
    """The shapes and dtypes of a model's parameters; nothing is computed.

    Raises:
      TypeError: If they are not a pytree of float32 arrays.
    """
    made = jax.eval_shape(lambda: own.init(0))
    for path, leaf in jax.tree.leaves_with_path(made):
        if leaf.dtype != jnp.float32:
            name = f"the parameter {jax.tree_util.keystr(path)} that init returns"
            raise TypeError(checks.message(name, "float32", leaf.dtype))
    return made


def dimension(own: JaxParts) -> int:
    """Number of parameters of a model, d."""
    return sum(leaf.size for leaf in jax.tree.leaves(template(own)))


def names(params: Any) -> list[str]:
    """The places of parameters in their pytree."""
    paths = [path for path, _ in jax.tree.leaves_with_path(params)]
    return [jax.tree_util.keystr(p, simple=True, separator="/") for p in paths]
