# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""What DOME's sketches cost, without training around them and with it.

  dpfl-benchmark --rows=dome_rounds,dome_updates,dome_training

prints the rows of `ROWS`. Each round takes the state that the round before gave. In
`dome_rounds` that is the state's way to Python and back, which makes up much of a
round; `dome_training` does rounds as `dpfl-train` does, where large states stay in
shared memory, with a large model and as many directions kept as can be.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import aggregators, mechanisms
from dpfl.tasks import load_task
from dpfl.vectors import adaptive_sketch

from . import harness, memory
from . import rounds as rounds_lib
from .harness import Row

SKETCH_SIZES = (16, 64, 256)
BASELINE = "dome: TFF mean"


@dataclasses.dataclass(frozen=True)
class Settings(harness.Settings):
    """Sizes of the benchmark: by default networks for F-EMNIST and Stack Overflow.

    Attributes:
      training_dimension: Parameters of the model in `dome_training`, about.
      training_clients: Clients there, of 16 examples each.
    """

    dimension: int = 1_018_174
    clients: int = 50
    repeats: int = 5
    training_dimension: int = 4_050_748
    training_clients: int = 10


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


def training(settings: Settings) -> list[Row]:
    """Measures rounds of `dpfl-train` with its largest sketch and without DOME."""
    clients = settings.training_clients
    task = _large_task(settings.training_dimension, clients)
    without = "dome: training, gaussian"
    config = mechanisms.Dome(clients, 1.0, 1.0, SKETCH_SIZES[-1])
    functions = {
        without: _training(task, mechanisms.Gaussian(clients, 1.0, 1.0)),
        f"dome: training, k={config.sketch_size}": _training(task, config),
    }
    rows = harness.compare(functions, without, settings.repeats)
    python, worker = memory.Process(), memory.Process.worker()
    sizes = {
        "worker: peak with dome": (worker.peak(), "most of TFF's worker so far"),
        "python: peak with dome": (python.peak(), "most of Python so far"),
        "python: with dome": (python.resident(), "Python between rounds"),
    }
    return rows + [
        {"name": name, "bytes": size, "description": description}
        for name, (size, description) in sizes.items()
    ]


FULL = Settings()
QUICK = Settings(1000, 3, training_dimension=2000, training_clients=3)

ROWS: dict[str, Callable[[Any], list[Row]]] = {
    "dome_rounds": rounds,
    "dome_updates": updates,
    "dome_training": training,
}


def _aggregation(factory: Any, settings: harness.Settings) -> Callable[[], Any]:
    return harness.aggregation(
        factory, settings.dimension, settings.clients, scale=1e-3, keep_state=True
    )


def _large_task(dimension: int, clients: int) -> Any:
    """Returns a task whose model has about so many parameters."""
    task = load_task(
        "synthetic",
        model="2nn",
        num_clients=clients,
        examples_per_client=16,
        batch_size=16,
        num_test_examples=1,
        shuffle_seed=None,
    )
    pixels, classes = 28 * 28, 62
    units = max(1, (dimension - classes) // (pixels + 1 + classes))

    def build(seed: int) -> tf.keras.Model:
        layers = tf.keras.layers
        kernels = [tf.keras.initializers.GlorotUniform(seed + i) for i in range(2)]
        return tf.keras.Sequential(
            [
                layers.Input((28, 28, 1)),
                layers.Flatten(),
                layers.Dense(units, activation="relu", kernel_initializer=kernels[0]),
                layers.Dense(classes, kernel_initializer=kernels[1]),
            ]
        )

    return dataclasses.replace(task, model_builder=build)


def _training(task: Any, mechanism: Any) -> Callable[[], Any]:
    """Returns a round after the round before, the first with all directions kept."""
    process = rounds_lib.fed_process(task, aggregators.build(mechanism, seed=1))
    state = process.initialize()
    if isinstance(mechanism, mechanisms.Dome):
        state = attrs.evolve(state, aggregator=_all_kept(state.aggregator))
    latest, clients = [state], list(range(task.population))

    def run() -> None:
        latest[0] = process.next(latest[0], clients).state

    return run


def _all_kept(state: Any) -> Any:
    """Returns a state of DOME with as many random directions as it can have."""
    rank, dimension = np.shape(state["basis"])
    basis = np.empty([rank, dimension], np.int16)
    for i in range(rank):
        row = tf.random.stateless_normal([dimension], [i, 0]) / dimension**0.5
        basis[i] = adaptive_sketch.pack(row)
    return collections.OrderedDict(
        state,
        basis=basis,
        strengths=np.linspace(2, 1, rank, dtype=np.float32),
        rank=np.int32(rank),
    )
