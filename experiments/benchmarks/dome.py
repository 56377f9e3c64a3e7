# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""What DOME's sketches cost, without the training around them.

  dpfl-benchmark --rows=dome_rounds,dome_updates

prints the rows of `ROWS`. Each round takes the state that the round before gave: it is
the state's way to Python and back, and the sketch that it holds, that make up much of a
round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from dpfl import aggregators, mechanisms
from dpfl.vectors import adaptive_sketch

from . import harness
from .harness import Row

SKETCH_SIZES = (16, 64, 256)
BASELINE = "dome: TFF mean"


@dataclasses.dataclass(frozen=True)
class Settings(harness.Settings):
    """Sizes of the benchmark: by default a network for F-EMNIST."""

    dimension: int = 1_018_174
    clients: int = 50
    repeats: int = 5


def rounds(settings: harness.Settings) -> list[Row]:
    """Measures aggregations at each size, and TFF's mean; needs a running worker."""
    functions = {
        BASELINE: _aggregation(tff.aggregators.UnweightedMeanFactory(), settings)
    }
    for size in SKETCH_SIZES:
        config = mechanisms.Dome(settings.clients, 1.0, 1.0, size)
        functions[f"dome: k={size}"] = _aggregation(aggregators.build(config), settings)
    integers = mechanisms.DomeDdg(settings.clients, 1.0, 1.0, SKETCH_SIZES[1])
    name = f"dome: k={SKETCH_SIZES[1]}, integers"
    functions[name] = _aggregation(aggregators.build(integers), settings)
    return harness.compare(functions, BASELINE, settings.repeats)


def updates(settings: harness.Settings) -> list[Row]:
    """Measures the sketch's own steps, and Householder's QR of a matrix of its size."""
    dimension, repeats = settings.dimension, min(3, settings.repeats)
    rows: list[Row] = []
    for size in SKETCH_SIZES[:2]:
        sketch = adaptive_sketch.AdaptiveSketch(
            dimension, size, max_rank=size // 4, energy_fraction=0.99
        )
        state = sketch.initial_state()
        seed = tf.constant([1, 2], tf.int64)
        kept = tf.zeros([0, dimension])
        basis = tf.function(sketch.expand)(kept, seed)
        rows_of = tf.function(adaptive_sketch.dense)(basis)
        kept = rows_of[: size // 4]
        basis = tf.function(sketch.expand)(kept, seed)
        gradient = rows_of[0] + rows_of[1]
        column = tf.transpose(rows_of)
        functions = {
            f"sketch: QR, k={size}": tf.function(lambda x=column: tf.linalg.qr(x)),
            f"sketch: expand, k={size}": tf.function(
                lambda s=sketch, u=kept, x=seed: s.expand(u, x)
            ),
            f"sketch: update, k={size}": tf.function(
                lambda s=sketch, b=basis, t=state, g=gradient: s.update(
                    b, t["strengths"], t["rank"], g
                )
            ),
            f"sketch: project, k={size}": tf.function(
                lambda b=basis, g=gradient: adaptive_sketch.project(b, g)
            ),
        }
        baseline = f"sketch: QR, k={size}"
        rows += harness.compare(functions, baseline, repeats)
    return rows


FULL = Settings()
QUICK = Settings(1000, 3)

ROWS: dict[str, Callable[[harness.Settings], list[Row]]] = {
    "dome_rounds": rounds,
    "dome_updates": updates,
}


def _aggregation(factory: Any, settings: harness.Settings) -> Callable[[], Any]:
    return harness.aggregation(
        factory, settings.dimension, settings.clients, scale=1e-3, keep_state=True
    )
