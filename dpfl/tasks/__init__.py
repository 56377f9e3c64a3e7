# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Data sets and models: `load_task(name, **options)` returns a `base.Task`."""

from dpfl.tasks.registry import (
    load_config,
    load_task,
    make_config,
    task_names,
    task_options,
)

__all__ = ["load_config", "load_task", "make_config", "task_names", "task_options"]
