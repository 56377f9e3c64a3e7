# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Made-up examples in the shapes of the other tasks: for benchmarks only.

    task = synthetic.load(dpfl.tasks.make_config("synthetic", num_clients=8))

Every example is noise from a counter-based generator, keyed by the client, so that any
number of clients takes no memory. Accuracies on it are meaningless.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from dpfl.tasks import digits, emnist, models, stackoverflow, text
from dpfl.tasks import task as task_lib
from dpfl.tasks.configs import StackOverflowConfig, SyntheticConfig

_DATA_SEED = 0
# Clients are numbered from 0 on; the evaluation set is drawn as client -1.
_EVALUATION_INDEX = -1

# Function that draws examples of a kind from their number and a seed, with the other
# arguments of `Task`.
_Family = tuple[Callable[[int, tf.Tensor], tuple[tf.Tensor, tf.Tensor]], dict[str, Any]]


def _images(
    model: str,
    num_classes: int,
    defaults: task_lib.TrainingDefaults,
    **sizes: int,
) -> _Family:
    def draw(count: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        x = tf.random.stateless_uniform([count, 28, 28, 1], seed)
        y = tf.random.stateless_uniform(
            [count], task_lib.fold_seed(0, seed[0], seed[1]), 0, num_classes, tf.int32
        )
        return x, y

    pieces = models.image_pieces(model, num_classes, **sizes)
    return draw, {**pieces, "defaults": defaults}


def _words(own: SyntheticConfig) -> _Family:
    del own
    config = StackOverflowConfig()

    def draw(count: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        shape = [count, config.sequence_length + 1]
        top = config.vocab_size + 1
        rows = tf.random.stateless_uniform(shape, seed, 1, top, tf.int32)
        return rows[:, :-1], rows[:, 1:]

    pieces = text.next_word_pieces(config)
    return draw, {**pieces, "defaults": stackoverflow.DEFAULTS}


def _two_layer(config: SyntheticConfig) -> _Family:
    sizes = {"units": config.hidden_units}
    return _images("2nn", emnist.NUM_CLASSES, emnist.DEFAULTS, **sizes)


_FAMILIES: dict[str, Callable[[SyntheticConfig], _Family]] = {
    "cnn": lambda _: _images("cnn", emnist.NUM_CLASSES, emnist.DEFAULTS),
    "2nn": _two_layer,
    "small_cnn": lambda _: _images("small_cnn", digits.NUM_CLASSES, digits.DEFAULTS),
    "lstm": _words,
}


def load(config: SyntheticConfig) -> task_lib.Task:
    """The task `synthetic`, marked `benchmark_only`."""
    draw, pieces = _FAMILIES[config.model](config)

    def examples(index: Any, round_index: Any) -> task_lib.Examples:
        count = config.examples_per_client
        x, y = draw(count, task_lib.fold_seed(_DATA_SEED, index))
        order = task_lib.local_order(count, config, index, round_index)
        return task_lib.Examples(x, y, order)

    def evaluation_dataset() -> tf.data.Dataset:
        seed = task_lib.fold_seed(_DATA_SEED, _EVALUATION_INDEX)
        examples = draw(config.num_test_examples, seed)
        return tf.data.Dataset.from_tensor_slices(examples).batch(256)

    shape = [config.model, config.num_clients, config.examples_per_client]
    return task_lib.Task(
        name="synthetic",
        description="Made-up examples in the shapes of the other tasks.",
        client_ids=task_lib.client_names(config.num_clients),
        dataset_from_index=task_lib.IndexedClients(examples, config.batch_size),
        evaluation_dataset=evaluation_dataset,
        config=config,
        fingerprint=hashlib.sha256(f"synthetic 1 {shape}".encode()).hexdigest(),
        # The evaluation examples are those of a client that does not exist.
        clients_hold_test_examples=False,
        benchmark_only=True,
        **pieces,
    )
