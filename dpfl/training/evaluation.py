# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""How good the model of a round is on the task's evaluation set."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from dpfl.tasks.task import Task
from dpfl.training import federated_averaging


class Evaluator:
    """The task's metrics of a state's model on its evaluation set."""

    def __init__(self, task: Task, model_seed: int):
        """Initializes the evaluator.

        Args:
          task: The task.
          model_seed: Seed of the model that the weights are written into.
        """
        self._model = task.build_keras_model(model_seed)
        self._metrics = task.metrics()
        self._dataset = task.evaluation_dataset()

        @tf.function(input_signature=task.element_spec, autograph=False)
        def update(x: tf.Tensor, y: tf.Tensor) -> None:
            output = self._model(x, training=False)
            for metric in self._metrics:
                metric.update_state(y, output)

        self._update = update

    def __call__(
        self, state: federated_averaging.ProcessState, is_due: bool = True
    ) -> dict[str, Any]:
        """Returns the metrics of a state's model.

        Args:
          state: With the model's weights.
          is_due: Whether anything is evaluated.

        Returns:
          Name to scalar; to None if the evaluation is not due.
        """
        if not is_due:
            return {metric.name: None for metric in self._metrics}
        federated_averaging.assign_weights(state, self._model)
        for metric in self._metrics:
            metric.reset_state()
        for x, y in self._dataset:
            self._update(x, y)
        return {metric.name: metric.result().numpy() for metric in self._metrics}
