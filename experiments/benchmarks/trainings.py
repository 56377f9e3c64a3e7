# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What a round costs besides its steps, with more clients, models, workers and DOME.

`digits_rounds`: the rounds that `dpfl-train` does on digits by default, beside the same
steps in one tf.function. `cohorts`: the peak memory of TFF's worker after rounds of a
small cohort and of a large one, and its memory early and late in a run whose cohorts
are never of the same size. `sizes`: cohorts and models of several sizes, L2-CSGM at
100-fold compression, a local step of 20 examples a client. `workers`: rounds of a
million parameters that are spread over one worker and over two, each with a processor
of its own, which it shares with what `dpfl-train` does itself. `dome_training`: rounds
with large states in shared memory, and as many directions kept as can be.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import psutil
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import aggregators, machine, mechanisms
from dpfl.tasks import load_task, shared_array
from dpfl.training import config, remote_workers
from dpfl.training import worker as worker_lib
from dpfl.vectors import adaptive_sketch

from . import harness, rounds
from .harness import Row, Sizes


def digits_rounds(sizes: Sizes) -> list[Row]:
    """Measures rounds of digits."""
    n = sizes.cohort
    task = load_task("digits")
    functions = {"digits: steps alone": _steps_alone(task, n)}
    for mechanism in (
        mechanisms.NoMechanism(n),
        mechanisms.Gaussian(n, 0.1, 1.0),
        mechanisms.L2Csgm(n, 0.1, 1.0, 0.1),
    ):
        fed = rounds.fed_process(task, aggregators.build(mechanism, seed=1))
        functions[f"digits: {mechanism.name}"] = _round(fed, n)
    return harness.compare(functions, "digits: steps alone", sizes.repeats, 2)


def _steps_alone(task: Any, cohort: int) -> Callable[[], Any]:
    """The local steps of the first clients, and their mean, in one function."""
    clients = task.dataset_from_index

    def local(i: Any, step: Callable[[Any, Any], None]) -> None:
        examples = clients.examples(i, 0)
        for begin in tf.range(0, tf.size(examples.rows), clients.batch_size):
            step(*examples.take(begin, begin + clients.batch_size))

    round_ = rounds.steps_alone(task, cohort, local)
    # Traced now: Keras refuses models that are older than what TFF traces.
    round_()
    return round_


def cohorts(sizes: Sizes) -> list[Row]:
    """Rows about the worker's memory; its processes are those of this one."""
    small, large = sizes.cohorts[0], sizes.cohorts[-1]
    fed = rounds.fed_process(_task(sizes.models[-1], large, 20), _factory(small))
    state = fed.initialize()
    worker = harness.largest_child()
    peaks: list[Row] = []
    for cohort in (small, large):
        for _ in range(2):
            fed.next(state, list(range(cohort)))
        size = machine.peak_bytes(worker.pid) or 0
        name = f"worker: peak at n={cohort}"
        peaks.append(harness.memory_row(name, size, peaks[0] if peaks else None))
    later: list[Row] = []
    for number in range(1, sizes.late_round + 1):
        state = fed.next(state, list(range(small + number % small))).state
        if number in (max(1, sizes.late_round // 6), sizes.late_round):
            name = f"worker: after {number} rounds of other sizes"
            size = worker.memory_info().rss
            later.append(harness.memory_row(name, size, later[0] if later else None))
    return peaks + later


def sizes_of_rounds(sizes: Sizes) -> list[Row]:
    """Rows about rounds, those of a model beside that of the least cohort."""
    rows: list[Row] = []
    for model in sizes.models:
        largest = max(sizes.cohorts)
        fed = rounds.fed_process(_task(model, largest, 20), _factory(largest))
        functions = {f"{model}, n={n}": _round(fed, n) for n in sizes.cohorts}
        rows += harness.compare(functions, next(iter(functions)), sizes.repeats, 2)
    return rows


def workers(sizes: Sizes) -> list[Row]:
    """Rows about rounds with one worker, and with two."""
    n = sizes.cohorts[1]
    task = _task(sizes.models[-1], n, 100)
    cores = sorted(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        ports = []
        for number in range(2):
            # A start makes the new worker's context the default.
            started = stack.enter_context(
                worker_lib.start(concurrency=1, groups=True, isolation="loopback")
            )
            _pin(started.pid, cores[number % len(cores)])
            ports.append(started.port or 0)
        local = stack.enter_context(worker_lib.start(groups=True))
        tff.framework.set_default_context(local.context(secure_sums=True))
        with shared_array.in_graphs():
            process = rounds.fed_averaging(task, _factory(n), 1)
        functions = {
            f"workers: {len(some)}": _spread(stack, process, task, local, some)
            for some in (ports[:1], ports)
        }
        rows = harness.compare(functions, "workers: 1", sizes.repeats, 2)
    return rows


def _task(model: str, clients: int, examples: int, **options: Any) -> Any:
    return load_task(
        "synthetic",
        model=model,
        num_clients=clients,
        examples_per_client=examples,
        num_test_examples=1,
        **options,
    )


def _factory(cohort: int) -> Any:
    mechanism = mechanisms.L2Csgm(cohort, 1.0, 1.0, rounds.KEEP_FRACTION)
    return aggregators.build(mechanism, seed=1)


def _round(fed: Any, cohort: int) -> Callable[[], Any]:
    state, clients = fed.initialize(), list(range(cohort))
    return lambda: fed.next(state, clients)


def _spread(
    stack: contextlib.ExitStack,
    process: Any,
    task: Any,
    local: Any,
    ports: Sequence[int],
) -> Callable[[], Any]:
    places = [config.Address("127.0.0.1", port) for port in ports]
    pool = remote_workers.workers_at(places, task, print)
    stack.callback(pool.close)
    fed = remote_workers.RemoteProcess(process, lambda state: state, None, pool, local)
    state, clients = fed.initialize(), list(range(task.population))
    return lambda: fed.next(state, clients)


def _pin(pid: int, core: int) -> None:
    """Keeps a process and all of its threads on one processor."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), {core})


def dome_training(sizes: Sizes) -> list[Row]:
    """Measures rounds of `dpfl-train` with its largest sketch and without DOME."""
    clients = min(10, sizes.dome_clients)
    task = _large_task(sizes.large_model, clients)
    without = "dome: training, gaussian"
    config = mechanisms.Dome(clients, 1.0, 1.0, sizes.sketch_sizes[-1])
    functions = {
        without: _training(task, mechanisms.Gaussian(clients, 1.0, 1.0)),
        f"dome: training, k={config.sketch_size}": _training(task, config),
    }
    rows = harness.compare(functions, without, min(5, sizes.repeats))
    found = {
        "worker: peak with dome": machine.peak_bytes(harness.largest_child().pid),
        "python: peak with dome": machine.peak_bytes(os.getpid()),
        "python: with dome": psutil.Process().memory_info().rss,
    }
    return rows + [harness.memory_row(name, size or 0) for name, size in found.items()]


def _large_task(dimension: int, clients: int) -> Any:
    """A task whose model has about so many parameters."""
    task = _task("2nn", clients, 16, batch_size=16, shuffle_seed=None)
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
    """A round after the round before, the first with all directions kept."""
    process = rounds.fed_process(task, aggregators.build(mechanism, seed=1))
    state = process.initialize()
    if isinstance(mechanism, mechanisms.Dome):
        state = attrs.evolve(state, aggregator=_all_kept(state.aggregator))
    clients = list(range(task.population))

    def run() -> None:
        nonlocal state
        state = process.next(state, clients).state

    return run


def _all_kept(state: Any) -> Any:
    """A state of DOME with as many random directions as it can have."""
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


ROWS: dict[str, Callable[[Sizes], list[Row]]] = {
    "digits_rounds": digits_rounds,
    "cohorts": cohorts,
    "sizes": sizes_of_rounds,
    "workers": workers,
    "dome_training": dome_training,
}
