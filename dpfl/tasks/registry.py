# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The table of tasks: their names, options and modules.

    config = registry.make_config("digits", num_clients=10)
    task = registry.load_config("digits", config)

TensorFlow is imported only when a task is loaded.
"""

from __future__ import annotations

import dataclasses
import importlib
import typing
from typing import Any

from dpfl import checks, plugins
from dpfl.fields import Checked, required
from dpfl.tasks import configs, metrics
from dpfl.tasks.metrics import TaskMetric

if typing.TYPE_CHECKING:
    from dpfl.tasks.task import Task


def _config_class(name: str, value: Any) -> type[configs.TaskConfig]:
    if not (isinstance(value, type) and issubclass(value, configs.TaskConfig)):
        raise TypeError(checks.message(name, "a dpfl.TaskConfig", value))
    return value


@dataclasses.dataclass(frozen=True)
class TaskEntry(Checked):
    """A row of the table.

    Attributes:
      config_class: Dataclass of the task's options.
      module: Module with the function `load(config)`.
      dimension: d, the trainable parameters of the default model.
      metric: Metric by which the task's runs are judged.
    """

    config_class: type[configs.TaskConfig] = required(None, check=_config_class)
    module: str = required(None)
    dimension: int = required(None, check=checks.dimension)
    metric: TaskMetric = metrics.ACCURACY

    def lower_is_better(self, name: str) -> bool:
        """Whether smaller values of a metric are better; known of two metrics alone."""
        if name == self.metric.name:
            return self.metric.lower_is_better
        return name == metrics.LOSS.name


TASKS: dict[str, TaskEntry] = {}


def register(name: str, entry: TaskEntry) -> None:
    """Adds a task to the table, from which `dpfl-train` takes its flags.

    Args:
      name: Name of the task.
      entry: Its row of the table.

    Raises:
      TypeError: If the entry or one of its values has a wrong type.
      ValueError: If another task has its name, or `dpfl-train` cannot define its flags;
        see `dpfl.plugins.check`.
    """
    plugins.check_name(name)
    if not isinstance(entry, TaskEntry):
        raise TypeError(checks.message("entry", "a dpfl.TaskEntry", entry))
    known = TASKS.get(name, entry).module
    wanted = f"another than that of the task of {known}"
    checks.require(known == entry.module, "name", wanted, name)
    config = entry.config_class
    plugins.check(config)
    unknown = {each.name for each in dataclasses.fields(config)}
    unknown -= set(plugins.field_types(config))
    if unknown:
        wanted = "a number, a bool or a text"
        raise TypeError(checks.message(sorted(unknown)[0], wanted, config))
    TASKS[name] = entry


for _name, _module, _class, _dimension in (
    ("court", "court", configs.CourtConfig, 4_050_748),
    ("digits", "digits", configs.DigitsConfig, 15_994),
    ("docs", "docs", configs.DocsConfig, 157_172),
    ("emnist", "emnist", configs.EmnistConfig, 1_018_174),
    ("fashion", "mnist", configs.FashionConfig, 15_994),
    ("femnist", "femnist", configs.FemnistConfig, 1_018_174),
    ("mnist", "mnist", configs.MnistConfig, 15_994),
    ("stackoverflow", "stackoverflow", configs.StackOverflowConfig, 4_050_748),
    ("synthetic", "synthetic", configs.SyntheticConfig, 1_018_174),
):
    _metric = metrics.HEADLINES.get(_name, metrics.ACCURACY)
    register(_name, TaskEntry(_class, f"dpfl.tasks.{_module}", _dimension, _metric))


def task_names() -> tuple[str, ...]:
    """The names of all tasks."""
    return tuple(TASKS)


def task_entry(name: str) -> TaskEntry:
    """A task's row of the table; the task is not loaded.

    Raises:
      ValueError: If there is no such task.
    """
    return TASKS[checks.choice("task", name, TASKS)]


def task_options(name: str) -> tuple[dataclasses.Field, ...]:
    """The options of a task, which are the fields of its dataclass.

    Raises:
      ValueError: If there is no such task.
    """
    return dataclasses.fields(task_entry(name).config_class)


def make_config(name: str, **options: Any) -> configs.TaskConfig:
    """The config of a task from some options, with defaults for the others.

    The options are checked; nothing is loaded.

    Raises:
      TypeError: If an option has a wrong type.
      ValueError: If there is no such task or option, or a value is out of range.
    """
    known = [option.name for option in task_options(name)]
    for option in options:
        wanted = f"one of {', '.join(known)}"
        checks.require(option in known, f"the option of {name}", wanted, option)
    return task_entry(name).config_class(**options)


def load_config(name: str, config: configs.TaskConfig) -> Task:
    """Loads a task from a config of `make_config`.

    Raises:
      ValueError: If the task's metrics lack 'loss' or the row's, if two have one
        name, or a name is not one for a file and a column.
    """
    entry = task_entry(name)
    task = importlib.import_module(entry.module).load(config)
    names = [plugins.check_name(name) for name in task.metric_names]
    has_all = len({*names}) == len(names) and {"loss", entry.metric.name} <= {*names}
    wanted = f"distinct and include 'loss' and {entry.metric.name!r}"
    checks.require(has_all, f"metrics of {name}", wanted, names)
    return task


def load_task(name: str, **options: Any) -> Task:
    """Loads a task with some options, the others at their defaults.

    Args:
      name: Name of the task.
      **options: Options of the task, by name.

    Raises:
      TypeError: If an option has a wrong type.
      ValueError: If there is no such task or option, a value is out of range, or the
        data are missing or damaged.
    """
    return load_config(name, make_config(name, **options))
