# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""What an aggregator costs, without the training around it.

  dpfl-benchmark --rows=aggregation,fourier,rotations,masks

prints the rows of `ROWS`. The row "values alone" is what making the clients' vectors
costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from dpfl import aggregators, mechanisms
from dpfl.vectors import masks, rotation

from . import harness
from .harness import Row, Settings, compare


def aggregation(settings: Settings) -> list[Row]:
    """Measures TFF's aggregators and ours on vectors; needs a running worker."""
    n = settings.clients
    factories: dict[str, Any] = {
        "aggregate: TFF mean": tff.aggregators.UnweightedMeanFactory(),
        "aggregate: TFF gaussian_fixed": (
            tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(1.0, n, 1.0)
        ),
        "aggregate: none": aggregators.build(mechanisms.NoMechanism(n)),
        "aggregate: gaussian": aggregators.build(mechanisms.Gaussian(n, 1.0, 1.0)),
    }
    for keep_fraction in (1.0, 0.1, 0.01):
        factories[f"aggregate: csgm hadamard {keep_fraction:g}"] = aggregators.build(
            mechanisms.L2Csgm(n, 1.0, 1.0, keep_fraction)
        )
    alone = harness.vectors_alone(settings.dimension, n)
    functions = {"aggregate: values alone": alone}
    for name, factory in factories.items():
        functions[name] = harness.aggregation(factory, settings.dimension, n)
    return compare(functions, "aggregate: TFF mean", settings.repeats)


def fourier(settings: Settings) -> list[Row]:
    """Measures the DFT rotation, on a tenth of the clients; needs a running worker."""
    n = max(1, settings.clients // 10)
    factories: dict[str, Any] = {
        "aggregate tenth: TFF mean": tff.aggregators.UnweightedMeanFactory()
    }
    for keep_fraction in (1.0, 0.1, 0.01):
        factories[f"aggregate tenth: csgm dft {keep_fraction:g}"] = aggregators.build(
            mechanisms.L2Csgm(n, 1.0, 1.0, keep_fraction, rotation="dft")
        )
    functions = {
        name: harness.aggregation(factory, settings.dimension, n)
        for name, factory in factories.items()
    }
    return compare(functions, "aggregate tenth: TFF mean", min(3, settings.repeats))


def rotations(settings: Settings) -> list[Row]:
    """Measures one vector's rotation: our Hadamard transform, TFF's, and the DFT."""
    dimension = settings.dimension
    length = mechanisms.L2Csgm(1, 1.0, 1.0, 1.0).rotated_dimension(dimension)
    vector = tf.random.stateless_normal([length], [1, 2])
    even = vector[: dimension + dimension % 2]
    seed = tf.constant([3, 4], tf.int64)
    ours = rotation.HadamardRotation(length)
    dft = rotation.FourierRotation(len(even))
    signs, phases = ours.expand(seed), dft.expand(seed)

    def tff_hadamard() -> Any:
        signed = (vector * signs)[tf.newaxis, :]
        return tff.aggregators.hadamard.fast_walsh_hadamard_transform(signed)

    functions = {
        "rotate: TFF hadamard": tf.function(tff_hadamard),
        "rotate: hadamard": tf.function(lambda: ours.rotate(vector, signs)),
        "rotate: dft": tf.function(lambda: dft.rotate(even, phases)),
    }
    return compare(functions, "rotate: TFF hadamard", settings.repeats)


def mask_draws(settings: Settings) -> list[Row]:
    """Measures one mask at 1%: by gaps between kept coordinates, and by coordinate."""
    length, keep_fraction = settings.dimension, 0.01
    seed = tf.constant([3, 4], tf.int64)
    vector = tf.random.stateless_normal([length], seed)
    mask = masks.build_mask(length, keep_fraction)

    def dense() -> Any:
        draws = tf.random.stateless_uniform([length], seed)
        return tf.boolean_mask(vector, draws < keep_fraction)

    functions = {
        "mask: a draw per coordinate": tf.function(dense),
        "mask: gaps": tf.function(lambda: mask.gather(vector, seed)),
    }
    return compare(functions, "mask: a draw per coordinate", settings.repeats)


FULL = Settings()
QUICK = Settings(1000, 3)

ROWS: dict[str, Callable[[Settings], list[Row]]] = {
    "aggregation": aggregation,
    "fourier": fourier,
    "rotations": rotations,
    "masks": mask_draws,
}
