# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What a round takes with more clients, a larger model and more workers.

`sizes`: rounds of cohorts and models of several sizes, L2-CSGM at 100-fold compression,
a local step of 20 examples a client. `workers`: rounds of a million parameters that are
spread over one worker and over two, each with a processor of its own, which it shares
with what `dpfl-train` does itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

from . import harness, rounds
from .harness import Row


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes.

    Attributes:
      models: Names of models of the task `synthetic`.
      cohorts: Clients of a round, for each model.
      spread_model: The model of rounds that are spread over workers.
      spread_cohort: Clients of such a round.
      spread_examples: Examples of each of them.
      repeats: Turns of each compared function.
    """

    models: tuple[str, ...] = ("small_cnn", "2nn", "cnn")
    cohorts: tuple[int, ...] = (10, 100, 1000)
    spread_model: str = "cnn"
    spread_cohort: int = 100
    spread_examples: int = 100
    repeats: int = 9


FULL = Settings()
QUICK = Settings(("small_cnn",), (2, 3), "small_cnn", 4, 20)


def sizes(settings: Settings) -> list[Row]:
    """Returns rows about rounds, those of a model beside that of the least cohort."""
    rows: list[Row] = []
    for model in settings.models:
        largest = max(settings.cohorts)
        task = _task(model, largest, 20)
        fed = rounds.fed_process(task, _factory(largest))
        functions = {
            f"{model}, n={cohort}": _round(fed, cohort) for cohort in settings.cohorts
        }
        rows += harness.compare(functions, next(iter(functions)), settings.repeats, 2)
    return rows


def workers(settings: Settings) -> list[Row]:
    """Returns rows about rounds with one worker, and with two."""
    from dpfl.tasks import shared_array
    from dpfl.training import worker as worker_lib

    task = _task(
        settings.spread_model, settings.spread_cohort, settings.spread_examples
    )
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
        _use(local)
        with shared_array.in_graphs():
            process = rounds.fed_averaging(task, _factory(settings.spread_cohort), 1)
        functions = {
            f"workers: {len(some)}": _spread(stack, process, task, local, some)
            for some in (ports[:1], ports)
        }
        rows = harness.compare(functions, "workers: 1", settings.repeats, 2)
    return rows


def _task(model: str, clients: int, examples: int) -> Any:
    from dpfl.tasks import load_task

    return load_task(
        "synthetic",
        model=model,
        num_clients=clients,
        examples_per_client=examples,
        num_test_examples=1,
    )


def _factory(cohort: int) -> Any:
    from dpfl import aggregators, mechanisms

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
    from dpfl.training import config, remote_workers

    places = [config.Address("127.0.0.1", port) for port in ports]
    pool = remote_workers.pool(places, task, print)
    stack.callback(pool.close)
    fed = remote_workers.RemoteProcess(process, lambda state: state, None, pool, local)
    state, clients = fed.initialize(), list(range(task.population))
    return lambda: fed.next(state, clients)


def _use(worker: Any) -> None:
    import tensorflow_federated as tff

    tff.framework.set_default_context(worker.context(secure_sums=True))


def _pin(pid: int, core: int) -> None:
    """Keeps a process and all of its threads on one processor."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), {core})


ROWS = {"sizes": sizes, "workers": workers}
