# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What a round costs besides its training steps, and what a large cohort does.

`digits_rounds`: the rounds that `dpfl-train` does on digits by default, beside the same
steps in one tf.function, with all threads that this process has. `cohorts`: the peak
memory of TFF's worker after rounds of a small cohort and of a large one, and its memory
early and late in a run whose cohorts are never of the same size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from . import harness, memory, rounds
from .harness import Row


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes.

    Attributes:
      cohort: Clients of a round of digits.
      mechanisms: Names of those that such a round is done with.
      small: Clients of a small cohort of the model with a million parameters.
      large: Clients of a large one.
      early: A round of the run with cohorts of all sizes.
      late: A later one.
      repeats: Turns of each compared function.
    """

    cohort: int = 50
    mechanisms: tuple[str, ...] = ("none", "gaussian", "l2_csgm")
    small: int = 10
    large: int = 1000
    early: int = 10
    late: int = 60
    repeats: int = 9


FULL = Settings()
QUICK = Settings(2, ("l2_csgm",), small=2, large=4, early=2, late=3)


def digits_rounds(settings: Settings) -> list[Row]:
    """Returns rows about rounds of digits."""
    from dpfl import aggregators, mechanisms
    from dpfl.tasks import load_task

    task, cohort = load_task("digits"), settings.cohort
    clients = list(range(cohort))

    def one_round(mechanism: Any) -> Callable[[], Any]:
        factory = aggregators.build(mechanism, seed=1)
        fed = rounds.fed_process(task, factory)
        state = fed.initialize()
        return lambda: fed.next(state, clients)

    known = {
        "none": mechanisms.NoMechanism(cohort),
        "gaussian": mechanisms.Gaussian(cohort, 0.1, 1.0),
        "l2_csgm": mechanisms.L2Csgm(cohort, 0.1, 1.0, 0.1),
    }
    functions = {"digits: steps alone": steps_alone(task, cohort)}
    for name in settings.mechanisms:
        functions[f"digits: {name}"] = one_round(known[name])
    return harness.compare(functions, "digits: steps alone", settings.repeats, 2)


def steps_alone(task: Any, cohort: int) -> Callable[[], Any]:
    """Returns the local steps of the first clients, and their mean, in one function.

    Args:
      task: One whose `dataset_from_index` is an `IndexedClients`.
      cohort: How many clients.
    """
    import tensorflow as tf

    model, loss = task.build_keras_model(0), task.loss()
    variables = model.trainable_variables
    first = [tf.constant(v.numpy()) for v in variables]
    clients = task.dataset_from_index

    @tf.function
    def round_() -> Any:
        total = [tf.zeros_like(w) for w in first]
        for i in tf.range(cohort):
            for variable, weight in zip(variables, first):
                variable.assign(weight)
            examples = clients.examples(i, 0)
            for begin in tf.range(0, tf.size(examples.rows), clients.batch_size):
                x, y = examples.take(begin, begin + clients.batch_size)
                with tf.GradientTape() as tape:
                    value = loss(y, model(x, training=True))
                for variable, gradient in zip(
                    variables, tape.gradient(value, variables)
                ):
                    variable.assign_sub(0.1 * gradient)
            total = [t + w - v for t, w, v in zip(total, first, variables)]
        return [w - t / cohort for t, w in zip(total, first)]

    # Traced now: Keras refuses models that are older than what TFF traces.
    round_()
    return lambda: [w.numpy() for w in round_()]


def cohorts(settings: Settings) -> list[Row]:
    """Returns rows about the worker's memory; its processes are those of this one."""
    from dpfl import aggregators, mechanisms
    from dpfl.tasks import load_task

    task = load_task(
        "synthetic",
        model="cnn",
        num_clients=settings.large,
        examples_per_client=20,
        num_test_examples=1,
    )
    mechanism = mechanisms.L2Csgm(settings.small, 1.0, 1.0, 0.01)
    fed = rounds.fed_process(task, aggregators.build(mechanism, seed=1))
    state = fed.initialize()
    rows: list[Row] = []
    worker = memory.Process.worker()
    for cohort in (settings.small, settings.large):
        fed.next(state, list(range(cohort)))
        fed.next(state, list(range(cohort)))
        rows.append(_memory_row(f"peak at n={cohort}", worker.peak(), rows))
    resident: list[Row] = []
    for number in range(1, settings.late + 1):
        cohort = settings.small + number % settings.small
        state = fed.next(state, list(range(cohort))).state
        if number in (settings.early, settings.late):
            name = f"after {number} rounds of other sizes"
            resident.append(_memory_row(name, worker.resident(), resident))
    return rows + resident


def _memory_row(name: str, size: int, before: list[Row]) -> Row:
    """Returns a row; its ratio is to the first one before it."""
    row = {
        "name": f"worker: {name}",
        "bytes": size,
        "description": "memory of TFF's worker",
    }
    if before:
        row["baseline"] = before[0]["name"]
        row["ratio"] = size / before[0]["bytes"]
    return row


ROWS = {"digits_rounds": digits_rounds, "cohorts": cohorts}
