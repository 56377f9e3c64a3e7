# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A metric of runs' final models by the client that test examples belong to.

found = client_metrics.by_client(runs, "accuracy", "tff")
text = client_metrics.csv_of(found, [run.name for run in runs])
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpfl import checks, files, reading, tasks
from dpfl.tasks import metrics
from dpfl.training import engine

from .run_folders import DIGEST, RunFolder

# Percentiles of a metric over clients.
PERCENTS = (10, 50, 90)


def by_client(
    runs: Sequence[RunFolder], metric: str, engine_name: str
) -> metrics.ByClient:
    """A metric of the final model of each run by the client that test examples are of.

    Args:
      runs: Runs of one task and split.
      metric: Name of a metric, such as "accuracy".
      engine_name: The engine that computes it, whichever trained.

    Raises:
      ValueError: If the test examples belong to no client, the metric is not one of
        dpfl's, or data or model of a run are missing, damaged or others.
    """
    found: dict[str, metrics.ByClient] = {}
    loaded: dict[str, tuple[Any, Any]] = {}
    models = [_weights(run) for run in runs]
    for run, weights in zip(runs, models):
        options = run.summary.get("task_options") or {}
        key = json.dumps([run.summary["task"], options])
        if key not in loaded:
            task = tasks.load_task(run.summary["task"], **options)
            _check_clients(task, run, metric)
            loaded[key] = task, engine.logits_of(engine_name, task)
        task, logits = loaded[key]
        model = functools.partial(logits, weights)
        try:
            found[run.name] = metrics.by_client(task, metric, [model])
        except (TypeError, ValueError) as error:
            raise _without_model(run, error) from error
    first, *_ = found.values()
    sums = np.concatenate([one.sums for one in found.values()])
    return first._replace(sums=sums)


def _weights(run: RunFolder) -> list[np.ndarray]:
    """The weights of a run's final model."""
    try:
        with reading.opened(run.folder / engine.MODEL) as file:
            return [*reading.arrays_in(file).values()]
    except (OSError, ValueError) as error:
        raise _without_model(run, error) from error


def _without_model(run: RunFolder, error: Exception) -> ValueError:
    wanted = f"a folder with the run's {engine.MODEL}"
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    found = f"{run.folder} ({reason})"
    return ValueError(checks.message("RUN", wanted, found))


def _check_clients(task: Any, run: RunFolder, metric: str) -> None:
    """Raises ValueError if a task has other data than a run, or no clients' examples.

    Args:
      task: The task.
      run: The run.
      metric: Name of a metric.
    """
    digest = str(run.summary.get(DIGEST, task.fingerprint))
    wanted = f"of the data that it names, {task.fingerprint[:8]}"
    checks.require(digest == task.fingerprint, "RUN", wanted, digest[:8])
    wanted = "of a task whose test examples belong to clients"
    checks.require(task.test_owners is not None, "RUN", wanted, task.name)
    known = [] if task.keras else [one.name for one in task.objective.metrics]
    wanted = f"of a task of dpfl's metric {metric}"
    checks.require(metric in known, "RUN", wanted, f"{task.name} with {known}")


def csv_of(found: metrics.ByClient, names: Sequence[str]) -> str:
    """The text of a CSV file with a row a client and a column a run.

    Args:
      found: The metric by client.
      names: Names of the runs.
    """
    sums = ([f"{each:.9g}" for each in own] for own in found.sums.T)
    columns = ["client", "examples", *names]
    lines = zip(found.names, found.counts, sums)
    rows = [dict(zip(columns, (name, n, *own))) for name, n, own in lines]
    return files.csv_text(columns, rows)


def percentiles(found: metrics.ByClient, metric: str) -> list[dict[str, Any]]:
    """For each run the number of clients, and percentiles of the metric over them.

    Args:
      found: The metric by client.
      metric: Its name.
    """
    of_client = found.sums / found.counts
    names = {f"client_{metric}_{percent}": percent for percent in PERCENTS}
    return [
        {
            "clients": len(own),
            **{name: float(np.percentile(own, p)) for name, p in names.items()},
        }
        for own in of_client
    ]
