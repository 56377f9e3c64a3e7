# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Networks as tables of layers, from which Keras's and JAX's models are built.

    network = Network((28, 28, 1), np.float32, (Flatten(), Dense(10)))
    weights = network.initial_weights(seed=0)    # in Keras's order

Every engine begins with the same weights: they are drawn here, by numpy, with the
distributions of Keras's defaults and, but for recurrent kernels, with their bits.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Optional

import numpy as np

from dpfl import arrays

_NX = arrays.named("numpy")
Shape = tuple[int, ...]
# Distinct seeds of a network's kernels.
Seeds = Iterator[int]


class Layer:
    """A row of a network's table; without weights, and of a shape that stays, at first.

    Attributes:
      weight_names: The names of the layer's weights.
    """

    weight_names: ClassVar[tuple[str, ...]] = ()

    def output_shape(self, shape: Shape) -> Shape:
        """The shape of an example after the layer."""
        return shape

    def weight_shapes(self, shape: Shape) -> tuple[Shape, ...]:
        """The shapes of the layer's weights for examples of a shape."""
        return ()

    def initial_weights(self, shape: Shape, seeds: Seeds) -> list[np.ndarray]:
        """The first weights, float32, for examples of a shape."""
        return []


class _WithBias(Layer):
    """A layer of a kernel, drawn by Glorot's rule, and a bias of zeros."""

    weight_names: ClassVar[tuple[str, ...]] = ("kernel", "bias")

    def initial_weights(self, shape: Shape, seeds: Seeds) -> list[np.ndarray]:
        """See base class."""
        kernel, bias = self.weight_shapes(shape)
        return [glorot_uniform(kernel, next(seeds)), np.zeros(bias, np.float32)]


@dataclasses.dataclass(frozen=True)
class Convolution(_WithBias):
    """A convolution of square filters without padding, and the positive part of it."""

    filters: int
    size: int
    strides: int = 1

    def output_shape(self, shape: Shape) -> Shape:
        """See base class."""
        places = ((side - self.size) // self.strides + 1 for side in shape[:2])
        return (*places, self.filters)

    def weight_shapes(self, shape: Shape) -> tuple[Shape, ...]:
        """See base class."""
        return (self.size, self.size, shape[2], self.filters), (self.filters,)


@dataclasses.dataclass(frozen=True)
class Dense(_WithBias):
    """An affine map of the last axis, then an activation: 'relu' or None."""

    units: int
    activation: Optional[str] = None

    def output_shape(self, shape: Shape) -> Shape:
        """See base class."""
        return (*shape[:-1], self.units)

    def weight_shapes(self, shape: Shape) -> tuple[Shape, ...]:
        """See base class."""
        return (shape[-1], self.units), (self.units,)


@dataclasses.dataclass(frozen=True)
class Dropout(Layer):
    """Dropout of a share `rate` of the values in training."""

    rate: float


@dataclasses.dataclass(frozen=True)
class Flatten(Layer):
    """All axes of an example as one."""

    def output_shape(self, shape: Shape) -> Shape:
        """See base class."""
        return (math.prod(shape),)


@dataclasses.dataclass(frozen=True)
class MaxPool(Layer):
    """The maximum of each square of 2x2; an odd last row or column is dropped."""

    def output_shape(self, shape: Shape) -> Shape:
        """See base class."""
        return (shape[0] // 2, shape[1] // 2, shape[2])


@dataclasses.dataclass(frozen=True)
class Embedding(Layer):
    """A vector for each token, drawn uniformly from [-0.05, 0.05]."""

    weight_names: ClassVar[tuple[str, ...]] = ("embeddings",)
    tokens: int
    width: int

    def output_shape(self, shape: Shape) -> Shape:
        """See base class."""
        return (*shape, self.width)

    def weight_shapes(self, shape: Shape) -> tuple[Shape, ...]:
        """See base class."""
        return ((self.tokens, self.width),)

    def initial_weights(self, shape: Shape, seeds: Seeds) -> list[np.ndarray]:
        """See base class."""
        return [uniform((self.tokens, self.width), 0.05, next(seeds))]


@dataclasses.dataclass(frozen=True)
class LSTM(Layer):
    """A recurrent layer with Keras's gates, in the order input, forget, cell, output.

    The kernel is drawn by Glorot's rule, the recurrent kernel is orthogonal, and the
    bias of the forget gate is 1.
    """

    weight_names: ClassVar[tuple[str, ...]] = ("kernel", "recurrent_kernel", "bias")
    units: int

    def output_shape(self, shape: Shape) -> Shape:
        """See base class."""
        return (*shape[:-1], self.units)

    def weight_shapes(self, shape: Shape) -> tuple[Shape, ...]:
        """See base class."""
        gates = 4 * self.units
        return (shape[-1], gates), (self.units, gates), (gates,)

    def initial_weights(self, shape: Shape, seeds: Seeds) -> list[np.ndarray]:
        """See base class."""
        kernel, recurrent, _ = self.weight_shapes(shape)
        bias = np.repeat(np.array([0, 1, 0, 0], np.float32), self.units)
        return [
            glorot_uniform(kernel, next(seeds)),
            orthogonal(recurrent, next(seeds)),
            bias,
        ]


@dataclasses.dataclass(frozen=True)
class Network:
    """A stack of layers from a batch of examples to logits.

    Attributes:
      input_shape: Shape of an example.
      input_dtype: Its dtype.
      layers: The layers in order.
    """

    input_shape: Shape
    input_dtype: Any
    layers: tuple[Layer, ...]

    def with_shapes(self) -> Iterator[tuple[Layer, Shape]]:
        """Yields each layer with the shape of the examples that it is given."""
        shape = self.input_shape
        for layer in self.layers:
            yield layer, shape
            shape = layer.output_shape(shape)

    @property
    def weight_shapes(self) -> tuple[Shape, ...]:
        """The shapes of all weights, in Keras's order."""
        each = (layer.weight_shapes(shape) for layer, shape in self.with_shapes())
        return tuple(itertools.chain.from_iterable(each))

    @property
    def weight_names(self) -> list[str]:
        """Layer and name of each weight; several may have the same."""
        return [
            f"{type(layer).__name__.lower()}/{name}"
            for layer in self.layers
            for name in layer.weight_names
        ]

    @property
    def dimension(self) -> int:
        """Number of trainable parameters, d."""
        return sum(map(math.prod, self.weight_shapes))

    @property
    def draws_in_training(self) -> bool:
        """Whether training draws random numbers, as dropout does."""
        return any(isinstance(layer, Dropout) for layer in self.layers)

    def initial_weights(self, seed: int) -> list[np.ndarray]:
        """The first weights of a seed, float32, in Keras's order."""
        seeds = itertools.count(1000 * seed + 1)
        each = (layer.initial_weights(at, seeds) for layer, at in self.with_shapes())
        return list(itertools.chain.from_iterable(each))


def uniform(shape: Sequence[int], limit: float, seed: int) -> np.ndarray:
    """float32[shape], uniform in [-limit, limit), with the bits of Keras's draws.

    Args:
      shape: Shape of the array.
      limit: The bound.
      seed: Seed of the draws.
    """
    words = np.array([seed, 0], np.int64)
    drawn = _NX.float_uniform(words, math.prod(shape)).reshape(shape)
    low, high = np.float32(-limit), np.float32(limit)
    return drawn * (high - low) + low


def glorot_uniform(shape: Sequence[int], seed: int) -> np.ndarray:
    """A kernel [..., inputs, outputs] by the rule of Glorot and Bengio (2010)."""
    field = math.prod(shape[:-2])
    inputs, outputs = (field * size for size in shape[-2:])
    return uniform(shape, math.sqrt(3 / max(1.0, (inputs + outputs) / 2)), seed)


def orthogonal(shape: Shape, seed: int) -> np.ndarray:
    """A matrix of orthonormal rows or columns, uniform among those (Saxe et al. 2014).

    It is the factor Q of a matrix of normals, whose factor R has a positive diagonal.
    """
    rows, columns = max(shape), min(shape)
    # The method of Box and Muller (1958).
    first, second = _NX.uniform(
        np.array([seed, 0], np.int64), 2 * rows * columns
    ).reshape(2, rows, columns)
    normals = np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second)
    q, r = np.linalg.qr(normals)
    q = q * np.sign(np.diag(r))
    return (q if shape[0] >= shape[1] else q.T).astype(np.float32)
