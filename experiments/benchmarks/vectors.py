# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Costs of aggregators, rotations, masks, sketches and a recurrent model.

    settings = harness.settings(quick=True, repeats=2)
    rows = harness.measure("rotations", settings)

Clients' vectors are made in TFF's worker, since sending them costs far more than
aggregating them. The row "values alone" is the cost of making them, which is part of
every other row of an aggregation. If an aggregator's state is kept, its transfer to
Python and back is much of the round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.python.aggregators import distributed_dp

from dpfl import aggregators, mechanisms
from dpfl.codecs.sketch import make_sketch
from dpfl.engines.tff import keras_models
from dpfl.tasks import models
from dpfl.vectors import masks as masks_lib
from dpfl.vectors import rotation

from ..papers.hash_sketch import HashSketch
from . import harness
from .harness import Call, Settings

# Bits of TFF's own sums.
_BITS = 16
_RATES = (1.0, 10.0, 100.0)
_HADAMARDS = ("hadamard", "block_hadamard")
_BATCH = 20
_SEED = np.array([3, 4], np.int64)


def aggregation(settings: Settings) -> dict[str, Call]:
    """Times aggregators of TFF and dpfl on vectors."""
    n = settings.clients
    stock = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(1.0, n, 1.0)
    made: dict[str, Any] = {
        "TFF mean": tff.aggregators.UnweightedMeanFactory(),
        "TFF gaussian_fixed": stock,
        **harness.mechanisms_of("aggregation", settings),
        "values alone": None,
    }
    return _aggregations("aggregate", made, settings.dimension, n)


def sketch_aggregation(settings: Settings) -> dict[str, Call]:
    """Secure sums with integer noise; TFF's aggregator is the baseline."""
    n = settings.clients
    stock = distributed_dp.DistributedDpSumFactory(
        noise_multiplier=1.0,
        expected_clients_per_round=n,
        bits=_BITS,
        l2_clip=1.0,
        mechanism="distributed_dgauss",
        rotation_type="hd",
    )
    made = {
        "TFF discrete Gaussian": stock,
        **harness.mechanisms_of("sketch_aggregation", settings),
        "values alone": None,
    }
    return _aggregations("secure", made, settings.model, n)


def dome_rounds(settings: Settings) -> dict[str, Call]:
    """Times rounds of DOME at each size, with TFF's mean as the baseline."""
    n, middle = settings.dome_clients, settings.sketch_sizes[1]
    made: dict[str, Any] = {"TFF mean": tff.aggregators.UnweightedMeanFactory()}
    for size in settings.sketch_sizes:
        made[f"k={size}"] = mechanisms.Dome(n, 1.0, 1.0, size)
    made[f"k={middle}, integers"] = mechanisms.DomeDdg(n, 1.0, 1.0, middle)
    return _aggregations("dome", made, settings.model, n, 1e-3, keep_state=True)


def _aggregations(
    prefix: str, made: Mapping[str, Any], *sizes: Any, **options: Any
) -> dict[str, Call]:
    """Times rounds of TFF's factories and of dpfl's mechanisms."""
    calls = {}
    for name, each in made.items():
        is_ours = isinstance(each, mechanisms.Mechanism)
        factory = aggregators.build(each) if is_ours else each
        calls[f"{prefix}: {name}"] = _aggregation(factory, *sizes, **options)
    return calls


def _aggregation(
    factory: Any,
    dimension: int,
    clients: int,
    scale: float = 1.0,
    *,
    keep_state: bool = False,
) -> Call:
    """A function that runs one round of an unweighted aggregator.

    Every coordinate of a client's vector is `scale`; without a factory the vectors are
    made, and one number of each is added. With `keep_state` a round takes the state of
    the round before, which is sent to Python and back, else each round is the first.
    """
    type_ = tff.TensorType(np.float32, [dimension])
    scales_type = tff.FederatedType(np.float32, tff.CLIENTS)
    first = tff.tensorflow.computation(lambda vector: vector[0], type_)
    make = tff.tensorflow.computation(lambda x: tf.fill([dimension], x), np.float32)
    if factory is None:

        @tff.federated_computation(scales_type)
        def alone(scales: Any) -> Any:
            made = tff.federated_map(make, scales)
            return tff.federated_sum(tff.federated_map(first, made))

        return lambda: alone([scale] * clients)
    process = factory.create(type_)

    @tff.federated_computation(process.initialize.type_signature.result, scales_type)
    def one_round(state: Any, scales: Any) -> Any:
        output = process.next(state, tff.federated_map(make, scales))
        # The result stays in the worker: only its first coordinate comes back.
        return output.state, tff.federated_map(first, output.result)

    latest = process.initialize()

    def run() -> None:
        nonlocal latest
        after, _ = one_round(latest, [scale] * clients)
        if keep_state:
            latest = after

    return run


def _in_graphs(functions: Mapping[str, Call]) -> dict[str, Call]:
    return {n: tf.function(f, autograph=False) for n, f in functions.items()}


def rotations(settings: Settings) -> dict[str, Call]:
    """Times rotations of one vector: TFF's Hadamard transform and dpfl's."""
    vector = tf.random.stateless_normal([2 * settings.dimension], [1, 2])

    def turned(name: str) -> tuple[Any, tf.Tensor, tf.Tensor]:
        csgm = mechanisms.L2Csgm(1, 1.0, 1.0, 1.0, rotation=name)
        turn = rotation.ROTATIONS[name](csgm.rotated_dimension(settings.dimension))
        return turn.rotate, vector[: turn.length], turn.expand(_SEED)

    calls: dict[str, Call] = {
        "rotate: TFF hadamard": partial(_tff_hadamard, *turned("hadamard")[1:])
    }
    for name in (*_HADAMARDS, "dft"):
        calls[f"rotate: {name}"] = partial(*turned(name))
    return _in_graphs(calls)


def _tff_hadamard(vector: tf.Tensor, signs: tf.Tensor) -> tf.Tensor:
    signed = (vector * signs)[tf.newaxis, :]
    return tff.aggregators.hadamard.fast_walsh_hadamard_transform(signed)


def masks(settings: Settings) -> dict[str, Call]:
    """One mask at 1%: by gaps between kept coordinates, and by coordinate."""
    length, keep_fraction = settings.dimension, 0.01
    vector = tf.random.stateless_normal([length], _SEED)
    mask = masks_lib.build_mask(length, keep_fraction)

    def dense() -> Any:
        draws = tf.random.stateless_uniform([length], _SEED)
        return tf.boolean_mask(vector, draws < keep_fraction)

    gaps = partial(mask.gather, vector, _SEED)
    return _in_graphs({"mask: a draw per coordinate": dense, "mask: gaps": gaps})


def sketches(settings: Settings) -> dict[str, Call]:
    """One vector's sketch and its decoding, beside one plain rotation."""
    plain = rotation.HadamardRotation(1 << (settings.model - 1).bit_length())
    vector = tf.random.stateless_normal([plain.length], [1, 2])
    rotate = partial(plain.rotate, vector, plain.expand(_SEED))
    calls: dict[str, Call] = {"sketch: plain rotation": rotate}
    made: dict[str, Any] = {}
    for rate in _RATES:
        config = mechanisms.SketchedDdg(1, 1.0, 1.0, bits=16, compression_rate=rate)
        made[f"shifts {rate:g}"] = make_sketch(config.shape(settings.model))
    width = math.ceil(settings.model / 150)
    made["hashes 10"] = HashSketch(settings.model, 15, width)
    for name, sketch in made.items():
        expanded = sketch.expand(_SEED)
        own = tf.random.stateless_normal([sketch.input_length], [1, 2])
        encoded = sketch.encode(own, expanded)
        calls[f"sketch: encode {name}"] = partial(sketch.encode, own, expanded)
        calls[f"sketch: decode {name}"] = partial(sketch.decode, encoded, expanded)
    return _in_graphs(calls)


def recurrent(settings: Settings) -> dict[str, Call]:
    """A step of the model of Stack Overflow, and its matrix products alone.

    The products' share of the step is its fraction of peak performance. TensorFlow's
    fused kernel of the recurrence has gates in another order, which costs no time.
    """
    tokens, length, width, units = settings.recurrent_sizes
    network = models.lstm(tokens, length, width, units)
    model = keras_models.build(network, seed=0)
    words = tf.random.stateless_uniform(
        [_BATCH, length + 1], _SEED, 0, tokens, tf.int32
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(forward: Callable[..., tf.Tensor]) -> Any:
        with tf.GradientTape() as tape:
            value = loss(words[:, 1:], forward(words[:, :-1]))
        return tape.gradient(value, model.trainable_variables)

    def fused(x: tf.Tensor) -> tf.Tensor:
        embedding, cell, *dense = model.layers
        kernel, recurrent_kernel, bias = cell.weights
        zeros = tf.zeros([_BATCH, units])
        hidden = tf.raw_ops.BlockLSTMV2(
            seq_len_max=tf.constant(length, tf.int64),
            x=embedding(tf.transpose(x)),
            cs_prev=zeros,
            h_prev=zeros,
            w=tf.concat([kernel, recurrent_kernel], 0),
            **dict.fromkeys(("wci", "wcf", "wco"), zeros[0]),
            b=bias,
            cell_clip=0.0,
            use_peephole=False,
        ).h
        for layer in dense:
            hidden = layer(hidden)
        return tf.transpose(hidden, [1, 0, 2])

    rows = _BATCH * length
    shapes = [(rows, width, 4 * units), *length * [(_BATCH, units, 4 * units)]]
    shapes += [(rows, units, width), (rows, width, tokens)]
    pairs = [(tf.random.normal([m, k]), tf.random.normal([k, n])) for m, k, n in shapes]
    gradients = [tf.random.normal([m, n]) for m, _, n in shapes]

    def products() -> list[tf.Tensor]:
        results = []
        for (x, w), g in zip(pairs, gradients):
            results += [x @ w, tf.matmul(x, g, transpose_a=True)]
            results += [tf.matmul(g, w, transpose_b=True)]
        return results

    calls: dict[str, Call] = {
        "lstm: matrix products alone": products,
        "lstm: a step": partial(step, model),
        "lstm: a step, fused kernel": partial(step, fused),
    }
    return _in_graphs(calls)
