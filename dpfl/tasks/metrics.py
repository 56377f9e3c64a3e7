# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Evaluation of dpfl's tasks: their metrics, and the one that judges their runs.

Progress bar, metrics.csv, TensorBoard, summary.json, report.html, dpfl-search and
dpfl-compare take names and order from here. A new metric is one line in the list of
its tasks, and a task that is judged by it one line in `HEADLINES`:

    TOP_5 = TaskMetric("top_5", "test top-5 accuracy")
    HEADLINES = {"docs": LOSS, "digits": TOP_5}

TensorFlow is imported only when metrics are made.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from dpfl.fields import Checked

if TYPE_CHECKING:
    import tensorflow as tf


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


def image_metrics() -> list[tf.keras.metrics.Metric]:
    """'loss' and 'accuracy' over examples."""
    import tensorflow as tf

    return [
        tf.keras.metrics.SparseCategoricalCrossentropy(name="loss", from_logits=True),
        tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
    ]


def next_word_metrics(tokens: Any) -> list[tf.keras.metrics.Metric]:
    """The metrics of the literature's next-word tasks.

    These are 'loss' per token, padding left out, and 'accuracy' over the words of the
    vocabulary: labels that are padding, unknown or the end of the sentence do not
    count.

    Args:
      tokens: The numbering of the tokens, a `text.Tokens`.
    """
    from dpfl.tasks import models

    unscored = [tokens.padding, tokens.unknown, tokens.end]
    return [
        models.MaskedLoss([tokens.padding], name="loss"),
        models.MaskedAccuracy(unscored, name="accuracy"),
    ]
