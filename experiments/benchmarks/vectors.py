# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What aggregators, rotations, masks, sketches and integer noise cost.

What making the clients' vectors costs is the row "values alone"; it is part of every
other row of an aggregation. Rounds of DOME take the state that the round before gave,
whose way to Python and back makes up much of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.python.aggregators import distributed_dp

from dpfl import aggregators, mechanisms
from dpfl.vectors import (
    adaptive_sketch,
    count_sketch,
    integer_noise,
    masks,
    rotation,
    rounding,
)

from . import harness
from .harness import Row, Sizes, compare

# Bits of TFF's own sums, and what is enough.
_BITS, _FEW_BITS = 16, 7
_RATES = (1.0, 10.0, 100.0)
_SEED = (3, 4)


def _aggregations(
    prefix: str,
    factories: Mapping[str, Any],
    configs: Mapping[str, Any],
    dimension: int,
    clients: int,
    repeats: int,
    **options: Any,
) -> list[Row]:
    """Measures factories, of which the first is the baseline, and configurations."""
    every = {**factories, **{n: aggregators.build(c) for n, c in configs.items()}}
    functions = {
        f"{prefix}: {name}": harness.aggregation(factory, dimension, clients, **options)
        for name, factory in every.items()
    }
    return compare(functions, next(iter(functions)), repeats)


def _in_graphs(functions: Mapping[str, Callable[[], Any]], repeats: int) -> list[Row]:
    """Measures functions of TensorFlow, of which the first is the baseline."""

    def graph(call: Callable[[], Any]) -> Callable[[], Any]:
        return tf.function(lambda: call())

    calls = {name: graph(call) for name, call in functions.items()}
    return compare(calls, next(iter(calls)), repeats)


def aggregation(sizes: Sizes) -> list[Row]:
    """Measures TFF's aggregators and ours on vectors; needs a running worker."""
    n = sizes.clients
    stock = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(1.0, n, 1.0)
    configs: dict[str, Any] = {
        "none": mechanisms.NoMechanism(n),
        "gaussian": mechanisms.Gaussian(n, 1.0, 1.0),
    }
    for keep in (1.0, 0.1, 0.01):
        configs[f"csgm hadamard {keep:g}"] = mechanisms.L2Csgm(n, 1.0, 1.0, keep)
    return _aggregations(
        "aggregate",
        {
            "TFF mean": tff.aggregators.UnweightedMeanFactory(),
            "TFF gaussian_fixed": stock,
        },
        configs,
        *(sizes.dimension, n, sizes.repeats),
    ) + compare(
        {"aggregate: values alone": harness.vectors_alone(sizes.dimension, n)},
        "aggregate: values alone",
        sizes.repeats,
    )


def fourier(sizes: Sizes) -> list[Row]:
    """Measures the DFT rotation, on a tenth of the clients; needs a running worker."""
    n = max(1, sizes.clients // 10)
    configs = {
        f"csgm dft {keep:g}": mechanisms.L2Csgm(n, 1.0, 1.0, keep, rotation="dft")
        for keep in (1.0, 0.1, 0.01)
    }
    mean = {"TFF mean": tff.aggregators.UnweightedMeanFactory()}
    repeats = min(3, sizes.repeats)
    return _aggregations("aggregate tenth", mean, configs, sizes.dimension, n, repeats)


def sketch_aggregation(sizes: Sizes) -> list[Row]:
    """Measures secure sums with integer noise; TFF's aggregator is the baseline.

    Needs a worker whose context can sum securely.
    """
    n = sizes.clients
    stock = distributed_dp.DistributedDpSumFactory(
        noise_multiplier=1.0,
        expected_clients_per_round=n,
        bits=_BITS,
        l2_clip=1.0,
        mechanism="distributed_dgauss",
        rotation_type="hd",
    )

    def ddg(bits: int) -> Any:
        return mechanisms.DistributedDiscreteGaussian(n, 1.0, 1.0, bits)

    def sketched(bits: int, rate: float) -> Any:
        return mechanisms.SketchedDdg(n, 1.0, 1.0, bits, compression_rate=rate)

    configs = {
        "discrete Gaussian": ddg(_BITS),
        f"discrete Gaussian, {_FEW_BITS} bits": ddg(_FEW_BITS),
        "Skellam": mechanisms.DistributedSkellam(n, 1.0, 1.0, _BITS),
        **{f"sketched {rate:g}": sketched(_BITS, rate) for rate in _RATES[1:]},
        f"sketched 10, {_FEW_BITS} bits": sketched(_FEW_BITS, 10.0),
    }
    repeats = min(3, sizes.repeats)
    return _aggregations(
        "secure", {"TFF discrete Gaussian": stock}, configs, sizes.model, n, repeats
    )


def dome_rounds(sizes: Sizes) -> list[Row]:
    """Measures DOME at each size, and TFF's mean; needs a running worker."""
    n, middle = sizes.dome_clients, sizes.sketch_sizes[1]
    configs: dict[str, Any] = {
        f"k={size}": mechanisms.Dome(n, 1.0, 1.0, size) for size in sizes.sketch_sizes
    }
    configs[f"k={middle}, integers"] = mechanisms.DomeDdg(n, 1.0, 1.0, middle)
    return _aggregations(
        "dome",
        {"TFF mean": tff.aggregators.UnweightedMeanFactory()},
        configs,
        *(sizes.model, n, min(5, sizes.repeats)),
        scale=1e-3,
        keep_state=True,
    )


def rotations(sizes: Sizes) -> list[Row]:
    """Measures one vector's rotation: our Hadamard transform, TFF's, and the DFT."""
    dimension = sizes.dimension
    length = mechanisms.L2Csgm(1, 1.0, 1.0, 1.0).rotated_dimension(dimension)
    vector = tf.random.stateless_normal([length], [1, 2])
    even = vector[: dimension + dimension % 2]
    seed = tf.constant(_SEED, tf.int64)
    ours = rotation.HadamardRotation(length)
    dft = rotation.FourierRotation(len(even))
    signs, phases = ours.expand(seed), dft.expand(seed)

    def tff_hadamard() -> Any:
        signed = (vector * signs)[tf.newaxis, :]
        return tff.aggregators.hadamard.fast_walsh_hadamard_transform(signed)

    functions = {
        "rotate: TFF hadamard": tff_hadamard,
        "rotate: hadamard": lambda: ours.rotate(vector, signs),
        "rotate: dft": lambda: dft.rotate(even, phases),
    }
    return _in_graphs(functions, sizes.repeats)


def mask_draws(sizes: Sizes) -> list[Row]:
    """Measures one mask at 1%: by gaps between kept coordinates, and by coordinate."""
    length, keep_fraction = sizes.dimension, 0.01
    seed = tf.constant(_SEED, tf.int64)
    vector = tf.random.stateless_normal([length], seed)
    mask = masks.build_mask(length, keep_fraction)

    def dense() -> Any:
        draws = tf.random.stateless_uniform([length], seed)
        return tf.boolean_mask(vector, draws < keep_fraction)

    functions = {
        "mask: a draw per coordinate": dense,
        "mask: gaps": lambda: mask.gather(vector, seed),
    }
    return _in_graphs(functions, sizes.repeats)


def sketches(sizes: Sizes) -> list[Row]:
    """Measures one vector's sketch and its decoding, beside one plain rotation."""
    seed = tf.constant(_SEED, tf.int64)
    plain = rotation.HadamardRotation(1 << (sizes.model - 1).bit_length())
    signs = plain.expand(seed)
    vector = tf.random.stateless_normal([plain.length], [1, 2])
    functions: dict[str, Callable[[], Any]] = {
        "sketch: plain rotation": lambda: plain.rotate(vector, signs)
    }
    for kind, rate in [("shifts", rate) for rate in _RATES] + [("hashes", 10.0)]:
        sketch = count_sketch.build_sketch(sizes.model, rate, kind=kind)
        expanded = sketch.expand(seed)
        own = tf.random.stateless_normal([sketch.input_length], [1, 2])
        encoded = sketch.encode(own, expanded)
        name = f"{kind} {rate:g}"
        functions[f"sketch: encode {name}"] = partial(sketch.encode, own, expanded)
        functions[f"sketch: decode {name}"] = partial(sketch.decode, encoded, expanded)
    return _in_graphs(functions, sizes.repeats)


def integers(sizes: Sizes) -> list[Row]:
    """Measures rounding and noise of a tenth of the coordinates, and plain noise."""
    length = max(1, sizes.model // 10)
    seed = tf.constant(_SEED, tf.int64)
    vector = 50 * tf.random.stateless_normal([length], [1, 2])
    gaussian = integer_noise.discrete_gaussian_noise
    functions: dict[str, Callable[[], Any]] = {
        "float32 Gaussian": lambda: tf.random.stateless_normal([length], seed),
        "rounding": lambda: rounding.randomized_round(vector, seed, 1e6, 1e5),
        "conditional rounding": lambda: rounding.conditional_round(
            vector, seed, 1 << 60, 1 << 20
        ),
        "discrete Gaussian": partial(gaussian(20.0).sample, seed, length),
        "Skellam": partial(integer_noise.skellam_noise(20.0).sample, seed, length),
        "small discrete Gaussian": partial(gaussian(1.5).sample, seed, length),
    }
    return _in_graphs(
        {f"integers: {name}": call for name, call in functions.items()}, sizes.repeats
    )


def dome_updates(sizes: Sizes) -> list[Row]:
    """Measures the sketch's own steps, and Householder's QR of a matrix of its size."""
    rows: list[Row] = []
    for size in sizes.sketch_sizes[:2]:
        sketch = adaptive_sketch.AdaptiveSketch(
            sizes.model, size, max_rank=size // 4, energy_fraction=0.99
        )
        state = sketch.initial_state()
        seed = tf.constant([1, 2], tf.int64)
        kept = tf.zeros([0, sizes.model])
        basis = tf.function(sketch.expand)(kept, seed)
        rows_of = tf.function(adaptive_sketch.dense)(basis)
        kept = rows_of[: size // 4]
        basis = tf.function(sketch.expand)(kept, seed)
        gradient = rows_of[0] + rows_of[1]
        column = tf.transpose(rows_of)
        latest = (basis, state["strengths"], state["rank"], gradient)
        functions = {
            f"sketch: QR, k={size}": partial(tf.linalg.qr, column),
            f"sketch: expand, k={size}": partial(sketch.expand, kept, seed),
            f"sketch: update, k={size}": partial(sketch.update, *latest),
            f"sketch: project, k={size}": partial(
                adaptive_sketch.project, basis, gradient
            ),
        }
        rows += _in_graphs(functions, min(3, sizes.repeats))
    return rows


ROWS: dict[str, Callable[[Sizes], list[Row]]] = {
    "aggregation": aggregation,
    "fourier": fourier,
    "rotations": rotations,
    "masks": mask_draws,
    "sketch_aggregation": sketch_aggregation,
    "sketches": sketches,
    "integer_noise": integers,
    "dome_rounds": dome_rounds,
    "dome_updates": dome_updates,
}
