# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Data sets and models: `load_task(name, **options)` returns a `task.Task`.

    task = load_task("digits", num_clients=50)
    task.client_dataset(task.client_ids[0])   # the batches (x, y) of a client

A worker builds a client's batches in its own graph, from the client's index.
"""

from dpfl import plugins
from dpfl.tasks.configs import TaskConfig
from dpfl.tasks.metrics import TaskMetric
from dpfl.tasks.registry import (
    TaskEntry,
    load_config,
    load_task,
    make_config,
    register,
    task_entry,
    task_names,
    task_options,
)

__all__ = [
    "TaskMetric",
    "TaskConfig",
    "TaskEntry",
    "load_config",
    "load_task",
    "make_config",
    "register",
    "task_entry",
    "task_names",
    "task_options",
]

# Last, since they import this package.
plugins.load(plugins.TASKS)
