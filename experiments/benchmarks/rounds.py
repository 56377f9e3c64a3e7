# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Whole rounds of federated averaging, by clients and models.

    settings = harness.settings(quick=True, repeats=2, round_rows=["plain", "none"])
    rows = harness.measure("rounds", settings)

`TIMED` lists the rows of a round.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import numpy as np
import psutil
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import aggregators, machine, mechanisms
from dpfl.engines.tff import federated_averaging, grouped
from dpfl.engines.tff import local_worker as worker_lib
from dpfl.tasks import load_task
from dpfl.training import server_optimizers

from . import jax_rounds
from .harness import MEMORY_ROWS, Call, Row, Settings, compare, row

_KEEP_FRACTION = 0.01


class TimedRound(NamedTuple):
    """A row of a round: a function that builds it from the task, and its clients."""

    build: Callable[[Any, int], Call]
    baseline: Optional[str]
    description: str
    # Whether clients are in groups, and not one by one as in TFF.
    grouped: bool = False


def round_task(settings: Settings) -> Any:
    """The task of a round, with the last of the models, without dropout."""
    return jax_rounds.round_task(
        settings.models[-1], settings.cohort, settings.examples
    )


def steps_alone(task: Any, cohort: int) -> Call:
    """The local steps of the first clients, and their mean, in one tf.function.

    A loop over the clients, and one over the batches of each, is in the graph.
    """
    model, loss, data = task.build_keras_model(0), task.loss(), task.dataset_from_index
    variables = model.trainable_variables
    first = [tf.constant(v.numpy()) for v in variables]

    @tf.function
    def round_() -> Any:
        total = [tf.zeros_like(w) for w in first]
        for i in tf.range(cohort):
            for variable, weight in zip(variables, first):
                variable.assign(weight)
            examples = data.examples(i, 0)
            for begin in tf.range(0, tf.size(examples.rows), data.batch_size):
                x, y = examples.take(begin, begin + data.batch_size)
                with tf.GradientTape() as tape:
                    value = loss(y, model(x, training=True))
                gradients = tape.gradient(value, variables)
                for variable, gradient in zip(variables, gradients):
                    variable.assign_sub(0.1 * gradient)
            total = [t + w - v for t, w, v in zip(total, first, variables)]
        return [w - t / cohort for t, w in zip(total, first)]

    # Traced now: Keras refuses models that are older than what TFF traces.
    round_()
    return lambda: [w.numpy() for w in round_()]


def tff_process(task: Any, *, iterator: bool) -> Any:
    """TFF's process on data that TFF builds in the worker too.

    Its model is functional in an iterator's loop, or Keras's as in tutorials.
    """

    def keras_model() -> Any:
        return tff.learning.models.from_keras_model(
            task.build_keras_model(0),
            loss=task.loss(),
            input_spec=task.element_spec,
            metrics=task.metrics(),
        )

    @tff.tensorflow.computation(np.int64)
    def dataset(index: Any) -> Any:
        return task.dataset_from_index(index, 0)

    options: dict[str, Any] = {"model_fn": keras_model}
    if iterator:
        loop = tff.learning.LoopImplementation.DATASET_ITERATOR
        options = {"model_fn": task.functional_model(0), "loop_implementation": loop}
    options["client_optimizer_fn"] = tff.learning.optimizers.build_sgdm(0.1)
    return tff.simulation.compose_dataset_computation_with_learning_process(
        dataset, tff.learning.algorithms.build_unweighted_fed_avg(**options)
    )


def training_process(task: Any, mechanism: Any) -> Any:
    """dpfl's process, as `dpfl-train` runs it, its noise all drawn in TFF's worker."""
    rounds = grouped.GroupedRounds(
        task,
        task.functional_model(0),
        aggregators.build(mechanism, seed=1),
        *(0.1, server_optimizers.build_server_optimizer("sgd", 1.0)),
        machine.processors(),
    )
    return federated_averaging.GroupedProcess(
        rounds, lambda state: state, lambda client: (0, client)
    )


def _round(process: Any, cohort: int) -> Call:
    """A function that runs the first round of a process."""
    state, clients = process.initialize(), list(range(cohort))
    return lambda: process.next(state, clients)


def _ours(make: Callable[[int], Any]) -> Callable[[Any, int], Call]:
    return lambda task, n: _round(training_process(task, make(n)), n)


def _gaussian(cohort: int) -> Any:
    return mechanisms.Gaussian(cohort, 1.0, 1.0)


def _csgm(cohort: int) -> Any:
    return mechanisms.L2Csgm(cohort, 1.0, 1.0, _KEEP_FRACTION)


TIMED = {
    "plain": TimedRound(steps_alone, None, "the steps in one tf.function"),
    "tff_default": TimedRound(
        lambda task, n: _round(tff_process(task, iterator=False), n),
        *("plain", "TFF, Keras model, reduce loop"),
    ),
    "tff_iterator": TimedRound(
        lambda task, n: _round(tff_process(task, iterator=True), n),
        *("plain", "TFF, functional, iterator loop"),
    ),
    "none": TimedRound(
        _ours(mechanisms.NoMechanism), "plain", "dpfl's process, none", True
    ),
    "gaussian": TimedRound(_ours(_gaussian), "none", "dpfl's process, gaussian", True),
    "csgm": TimedRound(
        _ours(_csgm), "none", f"dpfl's process, l2_csgm, gamma={_KEEP_FRACTION}", True
    ),
}


def rounds(settings: Settings) -> list[Row]:
    """The rows of a round that are asked for, measured in turns."""
    task = round_task(settings)
    asked = [name for name in settings.round_rows if name in TIMED]
    calls, baselines = {}, {name: TIMED[name].baseline for name in asked}
    with worker_lib.start() as one_by_one:
        for name in asked:
            context = (settings.worker if TIMED[name].grouped else one_by_one).context()
            tff.framework.set_default_context(context)
            call = TIMED[name].build(task, settings.cohort)
            calls[name] = functools.partial(_in_context, context, call)
        results = compare(
            calls, settings.repeats, baselines, min(1, settings.most_warm_ups)
        )
    for each in results:
        each["description"] = TIMED[each["name"]].description
    for name, pid in zip(MEMORY_ROWS, (os.getpid(), settings.worker.pid)):
        if name in settings.round_rows:
            results.append(row(name, "bytes", machine.peak_bytes(pid) or 0))
    return results


def _in_context(context: Any, call: Call) -> Any:
    tff.framework.set_default_context(context)
    return call()


def digits_rounds(settings: Settings) -> dict[str, Call]:
    """The rounds of `dpfl-train` on digits by default, and the local steps alone."""
    n = settings.cohort
    task = load_task("digits")
    release = (n, 0.1, 1.0)
    made: tuple[Any, ...] = (
        *(mechanisms.NoMechanism(n), mechanisms.Gaussian(*release)),
        mechanisms.L2Csgm(*release, 0.1),
    )
    ours = {f"digits: {m.name}": _round(training_process(task, m), n) for m in made}
    return {"digits: steps alone": steps_alone(task, n), **ours}


def cohorts(settings: Settings) -> list[Row]:
    """Rows about the worker's memory, of L2-CSGM with one step of 20 examples a client.

    They are its peak after rounds of a small and of a large cohort, and its memory
    early and late in a run whose cohorts vary in size.
    """
    small, large = settings.cohorts[0], settings.cohorts[-1]
    task = jax_rounds.synthetic_task(settings.models[-1], large, 20)
    process = training_process(task, _csgm(small))
    state, pid = process.initialize(), settings.worker.pid
    peaks: list[Row] = []
    for cohort in (small, large):
        for _ in range(2):
            process.next(state, list(range(cohort)))
        peak = machine.peak_bytes(pid) or 0
        peaks.append(row(f"worker: peak at n={cohort}", "bytes", peak, *peaks))
    later: list[Row] = []
    last = settings.late_round
    for number in range(1, last + 1):
        state = process.next(state, list(range(small + number % small))).state
        if number in (max(1, last // 6), last):
            name = f"worker: after {number} rounds of other sizes"
            size = psutil.Process(pid).memory_info().rss
            later.append(row(name, "bytes", size, *later))
    return peaks + later


def sizes(settings: Settings) -> list[Row]:
    """Rows about cohorts and models of several sizes, a step of 20 examples a client.

    The mechanism is L2-CSGM at 100-fold compression. The baseline of the largest cohort
    is as many clients in several rounds; that of the others is the smallest cohort.
    """
    results: list[Row] = []
    largest = max(settings.cohorts)
    for model in settings.models:
        task = jax_rounds.synthetic_task(model, largest, 20)
        process = training_process(task, _csgm(largest))
        calls = {f"{model}, n={n}": _round(process, n) for n in settings.cohorts}
        middle = settings.cohorts[1]
        times = largest // middle
        several = f"{model}, {times} rounds of n={middle}"
        calls[several] = functools.partial(_again, calls[f"{model}, n={middle}"], times)
        least = f"{model}, n={settings.cohorts[0]}"
        beside = {**dict.fromkeys(calls, least), f"{model}, n={largest}": several}
        results += compare(calls, settings.repeats, beside, settings.most_warm_ups)
    return results


def _again(call: Call, times: int) -> None:
    for _ in range(times):
        call()
