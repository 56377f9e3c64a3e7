# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""What sketches and integer noise under secure aggregation cost.

  dpfl-benchmark --rows=sketch_aggregation,sketches,integer_noise

prints the rows of `ROWS`. What making the clients' vectors costs is the row "values
alone"; it is part of every other row of an aggregation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow_federated.python.aggregators import distributed_dp

from dpfl import aggregators, mechanisms
from dpfl.vectors import count_sketch, integer_noise, rotation, rounding

from . import harness
from .harness import Row, Settings

# TFF's own, and what is enough.
_BITS, _FEW_BITS = 16, 7
_RATES = (1.0, 10.0, 100.0)


def aggregation(settings: Settings) -> list[Row]:
    """Measures secure sums with integer noise; TFF's aggregator is the baseline.

    Needs a worker whose context can sum securely.
    """
    n = settings.clients
    stock = "secure: TFF discrete Gaussian"
    factories: dict[str, Any] = {
        stock: distributed_dp.DistributedDpSumFactory(
            noise_multiplier=1.0,
            expected_clients_per_round=n,
            bits=_BITS,
            l2_clip=1.0,
            mechanism="distributed_dgauss",
            rotation_type="hd",
        ),
    }
    configs: dict[str, Any] = {
        "discrete Gaussian": mechanisms.DistributedDiscreteGaussian(n, 1.0, 1.0, _BITS),
        f"discrete Gaussian, {_FEW_BITS} bits": (
            mechanisms.DistributedDiscreteGaussian(n, 1.0, 1.0, _FEW_BITS)
        ),
        "Skellam": mechanisms.DistributedSkellam(n, 1.0, 1.0, _BITS),
    }
    for rate in _RATES[1:]:
        configs[f"sketched {rate:g}"] = mechanisms.SketchedDdg(
            n, 1.0, 1.0, _BITS, compression_rate=rate
        )
    configs[f"sketched 10, {_FEW_BITS} bits"] = mechanisms.SketchedDdg(
        n, 1.0, 1.0, _FEW_BITS, compression_rate=10.0
    )
    for name, config in configs.items():
        factories[f"secure: {name}"] = aggregators.build(config)
    alone = harness.vectors_alone(settings.dimension, n)
    functions = {"secure: values alone": alone}
    for name, factory in factories.items():
        functions[name] = harness.aggregation(factory, settings.dimension, n)
    repeats = min(3, settings.repeats)
    return harness.compare(functions, stock, repeats)


def sketches(settings: Settings) -> list[Row]:
    """Measures one vector's sketch and its decoding, beside one plain rotation."""
    dimension = settings.dimension
    seed = tf.constant([3, 4], tf.int64)
    plain = rotation.HadamardRotation(1 << (dimension - 1).bit_length())
    signs = plain.expand(seed)
    vector = tf.random.stateless_normal([plain.length], [1, 2])
    functions: dict[str, Callable[[], Any]] = {
        "sketch: plain rotation": tf.function(lambda: plain.rotate(vector, signs))
    }
    kinds = [("shifts", rate) for rate in _RATES] + [("hashes", 10.0)]
    for kind, rate in kinds:
        sketch = count_sketch.build_sketch(dimension, rate, kind=kind)
        functions.update(_both_ways(sketch, f"{kind} {rate:g}", seed))
    return harness.compare(functions, "sketch: plain rotation", settings.repeats)


def integers(settings: Settings) -> list[Row]:
    """Measures rounding and noise of a tenth of the coordinates, and plain noise."""
    length = max(1, settings.dimension // 10)
    seed = tf.constant([3, 4], tf.int64)
    vector = 50 * tf.random.stateless_normal([length], [1, 2])
    noise = {
        "integers: discrete Gaussian": integer_noise.discrete_gaussian_noise(20.0),
        "integers: Skellam": integer_noise.skellam_noise(20.0),
        "integers: small discrete Gaussian": integer_noise.discrete_gaussian_noise(1.5),
    }
    baseline = "integers: float32 Gaussian"
    functions: dict[str, Callable[[], Any]] = {
        baseline: tf.function(lambda: tf.random.stateless_normal([length], seed)),
        "integers: rounding": tf.function(
            lambda: rounding.randomized_round(vector, seed, 1e6, 1e5)
        ),
        "integers: conditional rounding": tf.function(
            lambda: rounding.conditional_round(vector, seed, 1 << 60, 1 << 20)
        ),
    }
    for name, sampler in noise.items():
        functions[name] = _sample(sampler, seed, length)
    return harness.compare(functions, baseline, settings.repeats)


FULL = Settings(dimension=1_018_174)
# The highest rate of 16 rows divides it.
QUICK = Settings(3200, 3)

ROWS: dict[str, Callable[[Settings], list[Row]]] = {
    "sketch_aggregation": aggregation,
    "sketches": sketches,
    "integer_noise": integers,
}


def _both_ways(sketch: Any, name: str, seed: tf.Tensor) -> dict[str, Callable]:
    expanded = sketch.expand(seed)
    vector = tf.random.stateless_normal([sketch.input_length], [1, 2])
    encoded = sketch.encode(vector, expanded)
    return {
        f"sketch: encode {name}": tf.function(lambda: sketch.encode(vector, expanded)),
        f"sketch: decode {name}": tf.function(lambda: sketch.decode(encoded, expanded)),
    }


def _sample(sampler: integer_noise.Sampler, seed: tf.Tensor, length: int) -> Callable:
    return tf.function(lambda: sampler.sample(seed, length))
