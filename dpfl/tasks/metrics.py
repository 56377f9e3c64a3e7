# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Evaluation of dpfl's tasks: their metrics, and the one that judges their runs.

Progress bar, metrics.csv, TensorBoard, summary.json, report.html, dpfl-search and
dpfl-compare take names and order from here. A new metric is one row of `Objective`'s
metrics, and a task that is judged by it one line in `HEADLINES`:

    TOP_5 = TaskMetric("top_5", "test top-5 accuracy")
    HEADLINES = {"docs": LOSS, "digits": TOP_5}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from dpfl import arrays
from dpfl.arrays import Array
from dpfl.fields import Checked

# Bound on a client's metrics in training, so that float32 holds the sum over the
# largest cohort, 1e11 clients, whatever they report.
LARGEST_SUM = 1e24
# Examples that are evaluated at once.
_BATCH = 256


@dataclasses.dataclass(frozen=True)
class TaskMetric(Checked):
    """Metric by which the runs of a task are judged, on its evaluation set.

    Attributes:
      name: Name of one of the task's metrics.
      label: Words for an axis or a table.
      lower_is_better: Whether a smaller value is the better one.
    """

    name: str
    label: str
    lower_is_better: bool = False

    @property
    def column(self) -> str:
        """The metric's column in a run's metrics.csv."""
        return f"eval_{self.name}"

    @property
    def final_column(self) -> str:
        """The metric's key in a run's summary.json and column in tables of runs."""
        return f"final_{self.name}"


ACCURACY = TaskMetric("accuracy", "test accuracy")
LOSS = TaskMetric("loss", "test loss", lower_is_better=True)
# The metrics that judge the runs of tasks, where it is not accuracy. A few words of
# docs are so frequent that accuracy jumps between them while the loss falls.
HEADLINES = {"docs": LOSS}


def _cross_entropy(nx: Any, logits: Array, y: Array) -> Array:
    return nx.cross_entropy(logits, y)


def _hits(nx: Any, logits: Array, y: Array) -> Array:
    return nx.asarray(nx.equal(nx.last_argmax(logits), y), np.float32)


@dataclasses.dataclass(frozen=True)
class LabelMetric:
    """Mean over labels, in every engine.

    Attributes:
      name: The metric's name.
      values: Function of a library of arrays, logits [..., classes] and int32 labels
        [...] to float32 values [...].
      ignored: Name of the field of an `Objective` with the labels that do not count.
    """

    name: str
    values: Callable[[Any, Array, Array], Array]
    ignored: str


@dataclasses.dataclass(frozen=True)
class Objective:
    """The objective of a task: cross entropy, and the metrics of its runs.

    The loss is the mean cross entropy of a batch's labels that are learned; 0 if there
    are none. The literature's next-word tasks learn all but padding, and score the
    words of the vocabulary alone.

    Attributes:
      unlearned: Labels without loss, as padding.
      unscored: Labels without accuracy, as padding and unknown words.
      metrics: The metrics, on training batches and on the test set.
    """

    unlearned: tuple[int, ...] = ()
    unscored: tuple[int, ...] = ()
    metrics: tuple[LabelMetric, ...] = (
        LabelMetric("loss", _cross_entropy, "unlearned"),
        LabelMetric("accuracy", _hits, "unscored"),
    )

    def values(
        self, metric: LabelMetric, nx: Any, logits: Array, y: Array
    ) -> tuple[Array, Array]:
        """A metric's values of labels, 0 where one is ignored; and 1 or 0 for each.

        Args:
          metric: One of the metrics.
          nx: The library of arrays.
          logits: Float array [..., classes].
          y: int32[...], labels.
        """
        counts = nx.ones_like(y, dtype=np.float32)
        for label in getattr(self, metric.ignored):
            counts = nx.where(nx.equal(y, label), np.float32(0), counts)
        return metric.values(nx, logits, y) * counts, counts


class ByClient(NamedTuple):
    """A metric of models by the client that the examples of the test set belong to.

    Attributes:
      names: The names of the clients whose labels count, sorted.
      counts: int64[clients], the labels of each that count.
      sums: float64[models, clients], sums of the metric over them; of the accuracy the
        number of right ones.
    """

    names: np.ndarray
    counts: np.ndarray
    sums: np.ndarray


def by_client(
    task: Any, name: str, models: Iterable[Callable[[np.ndarray], np.ndarray]]
) -> ByClient:
    """Evaluates models on the test set of each client.

    Args:
      task: A task with `test_owners`.
      name: Name of a metric of its objective.
      models: Functions from inputs, as the task stores them, to logits.
    """
    metric = next(one for one in task.objective.metrics if one.name == name)
    nx = arrays.named("numpy")
    x, y = task.test_examples()
    names, places = np.unique(task.test_owners(), return_inverse=True)
    sums, counts = [], np.zeros([len(names)], np.int64)
    for model in models:
        parts = []
        for begin in range(0, len(y), _BATCH):
            own = slice(begin, begin + _BATCH)
            found = task.objective.values(metric, nx, model(x[own]), y[own])
            parts.append([each.reshape(len(each), -1).sum(1) for each in found])
        values, labels = (np.concatenate(part) for part in zip(*parts))
        sums.append(np.bincount(places, values, len(names)))
        counts = np.bincount(places, labels, len(names)).astype(np.int64)
    kept = counts > 0
    return ByClient(names[kept], counts[kept], np.array(sums)[:, kept])
