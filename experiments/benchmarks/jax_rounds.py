# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Costs of rounds in JAX: of mechanisms alone, and of the whole engine.

    settings = harness.settings(quick=True, repeats=2)
    rows = harness.measure("jax_aggregation", settings)
    round_, weights, examples, processor_seconds, others = loop(work)

It runs where TensorFlow Federated is not installed. `JAX_PLATFORMS=cpu` chooses the
processor where there is a card.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pathlib
import statistics
import tempfile
import time
from typing import Any

import numpy as np

import dpfl
from dpfl import mechanisms
from dpfl.tasks import clients as clients_lib
from dpfl.tasks import load_task, networks

from . import harness, peers, programs
from .harness import Call, Row, Settings
from .peers import RoundWork

_FLOAT_BYTES = 4
# Passes over all weights and gradients in a step: weights are read forward and
# backward, gradients written and read, and weights read and written.
_WEIGHT_PASSES = 6
# Passes over the patches of a convolution: they are written, and read forward and
# backward. Their gradient, where there is one, is written and read.
_PATCH_PASSES, _PATCH_GRADIENT_PASSES = 3, 2
# Bytes of a copy that measures the device's speed, and the number of copies.
_COPIED_BYTES, _COPIES = 1 << 28, 9
# Rounds of a run, for each timed round.
_RUN_ROUNDS = 10
# Clients below which matrices are small too.
_FEW = 10


def jax_aggregation(settings: Settings) -> list[Row]:
    """Encodes, adds up and releases vectors that lie on the device.

    Each function is compiled once, and each round has the state of the round before.
    The baseline is the mechanism `none`. Sparse recovery has no row: its sketch is a
    matrix with a row of the model's length for each measurement.
    """
    import jax

    device = jax.devices()[0].device_kind
    shape = [settings.clients, settings.model]
    updates = jax.random.normal(jax.random.key(0), shape)
    calls = {
        f"{device}: {name}": _round(mechanism, updates)
        for name, mechanism in measured_mechanisms(settings).items()
    }
    return harness.compare(calls, settings.repeats, processor_seconds=time.process_time)


def measured_mechanisms(settings: Settings) -> dict[str, mechanisms.Mechanism]:
    """The mechanisms by the names of their rows."""
    return harness.mechanisms_of("jax_aggregation", settings)


def mechanism(work: RoundWork) -> mechanisms.Mechanism:
    """The mechanism of a round, which is the first of its `mechanisms`."""
    settings = harness.settings(work.cohort < _FEW, 1, clients=work.cohort)
    return measured_mechanisms(settings)[work.mechanisms[0]]


def synthetic_task(model: str, clients: int, examples: int, **options: Any) -> Any:
    """The task `synthetic`.

    Args:
      model: One of its models.
      clients: Number of clients.
      examples: Examples of each.
      **options: Other options of the task.
    """
    options |= {"model": model, "num_clients": clients, "num_test_examples": 1}
    return load_task("synthetic", examples_per_client=examples, **options)


def round_task(model: str, clients: int, examples: int) -> Any:
    """The task of a round, without dropout; see `synthetic_task`.

    Args:
      model: As for `synthetic_task`.
      clients: As for `synthetic_task`.
      examples: As for `synthetic_task`.
    """
    task = synthetic_task(model, clients, examples, shuffle_seed=None)
    own: Any = task.network
    kept = tuple(x for x in own.layers if not isinstance(x, networks.Dropout))
    return dataclasses.replace(task, network=dataclasses.replace(own, layers=kept))


def loop(work: RoundWork) -> tuple[Any, ...]:
    """The fields of a `peers.PeerLoop` of the engine, whose examples are in memory.

    Every round has all clients, since one program serves no more than it has had.
    """
    import jax

    from dpfl.training import engine as engine_lib

    folder = pathlib.Path(tempfile.mkdtemp())
    plan = _plan(work, folder)
    setup = engine_lib.Setup(folder, 1, 1, lambda said: None, engine_lib.LastProcess())
    # The process ends after its measurements.
    opened = engine_lib.opened("jax", plan, setup)
    trainer = contextlib.ExitStack().enter_context(opened)
    state = trainer.initialize()
    every = range(work.cohort)

    def round_(clients: int) -> None:
        nonlocal state
        state = jax.block_until_ready(trainer.round(state, every).state)

    def others() -> dict[str, float]:
        if work.mechanisms[0] != "none":
            return {}
        moved = moved_bytes(plan.task.network, peers.BATCH)
        steps = work.cohort * -(-work.examples // peers.BATCH)
        return {
            "a round of a run": _seconds_in_a_run(plan, folder, trainer),
            "bytes at copy speed": moved * steps / copy_speed(),
        }

    def weights() -> list[np.ndarray]:
        return trainer.weights(state)

    return round_, weights, work.examples, time.process_time, others


def _plan(work: RoundWork, folder: pathlib.Path) -> Any:
    """The plan of a run whose rounds have all clients."""
    task = round_task(work.model, work.cohort, work.examples)
    plan = programs.make_plan(
        folder,
        _RUN_ROUNDS * work.rounds,
        checkpoint_every=_RUN_ROUNDS,
        mechanism="none",
        noise_multiplier=None,
        task_config=task.config,
        cohort_size=work.cohort,
        participation="fixed",
        client_lr=peers.CLIENT_RATE,
        server_lr=peers.SERVER_RATE,
        server_momentum=0.0,
        engine="jax",
    )
    x, y = task.clients.read(np.arange(work.cohort))
    held = clients_lib.ArrayClients(x, y, task.clients.sizes)
    task = dataclasses.replace(task, clients=held)
    return dataclasses.replace(plan, task=task, mechanism=mechanism(work))


def _seconds_in_a_run(plan: Any, folder: pathlib.Path, trainer: Any) -> float:
    """Seconds of a round in the loop of a run, with checkpoints and evaluations."""
    trainer.evaluate(trainer.initialize(), True)
    at: list[float] = []
    programs.run_stub(
        plan, folder, lambda done, of: at.append(time.perf_counter()), trainer
    )
    # The first round may begin late.
    return (at[-1] - at[1]) / (len(at) - 2)


def moved_bytes(network: networks.Network, batch: int) -> int:
    """Bytes that a client's step at least reads and writes, if no cache holds them.

    They are the passes over weights, gradients and patches that are listed above; a
    recurrent kernel is read forward and backward at each position.

    Args:
      network: The network.
      batch: Examples of a batch.
    """
    numbers = _WEIGHT_PASSES * sum(map(math.prod, network.weight_shapes))
    for place, (layer, shape) in enumerate(network.with_shapes()):
        if isinstance(layer, networks.Convolution):
            positions = math.prod(layer.output_shape(shape)[:2])
            passes = _PATCH_PASSES + _PATCH_GRADIENT_PASSES * (place > 0)
            numbers += passes * batch * positions * layer.size**2 * shape[2]
        if isinstance(layer, networks.LSTM):
            again = 2 * (shape[0] - 1)
            numbers += again * math.prod(layer.weight_shapes(shape)[1])
    return numbers * _FLOAT_BYTES


def copy_speed() -> float:
    """Bytes that the device reads and writes in a second of copying."""
    import jax

    copy = jax.jit(lambda x: x + 1)
    own = jax.numpy.zeros([_COPIED_BYTES // _FLOAT_BYTES])
    taken = []
    for _ in range(_COPIES):
        begin = time.perf_counter()
        jax.block_until_ready(copy(own))
        taken.append(time.perf_counter() - begin)
    return 2 * _COPIED_BYTES / statistics.median(taken)


def _round(mechanism: mechanisms.Mechanism, updates: object) -> Call:
    """A function that executes the next round of a mechanism."""
    import jax

    aggregator = dpfl.jax_aggregator(mechanism, jax.eval_shape(lambda x: x[0], updates))
    update = jax.jit(aggregator.update)
    state = aggregator.init()

    def run() -> None:
        nonlocal state
        mean, state, _ = update(state, updates, None, aggregator.entropy())
        jax.block_until_ready((mean, state))

    return run
