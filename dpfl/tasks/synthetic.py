# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Made-up examples in the shapes of the other tasks: for benchmarks only.

    task = synthetic.load(dpfl.tasks.make_config("synthetic", num_clients=8))

Every example is noise from a counter-based generator, keyed by the client, so that any
number of clients takes no memory. Accuracies on it are meaningless.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpfl.arrays import Array
from dpfl.tasks import digits, emnist, models, stackoverflow, text
from dpfl.tasks import task as task_lib
from dpfl.tasks.clients import MadeUpClients
from dpfl.tasks.configs import StackOverflowConfig, SyntheticConfig
from dpfl.vectors import randomness

# Clients are numbered from 0 on; the evaluation set is drawn as client -1.
_EVALUATION_INDEX = -1

# Function that draws examples of a kind from a library of arrays, their number and a
# seed, with the other arguments of `Task`.
_Family = tuple[Callable[[Any, int, Array], tuple[Array, Array]], dict[str, Any]]


def _images(
    model: str,
    num_classes: int,
    defaults: task_lib.TrainingDefaults,
    **sizes: int,
) -> _Family:
    def draw(nx: Any, count: int, seed: Array) -> tuple[Array, Array]:
        shape = (count, *models.IMAGE_SHAPE)
        x = nx.float_uniform(seed, math.prod(shape))
        y = nx.below(randomness.fold_in(seed, 0), count, num_classes)
        return nx.reshape(x, shape), nx.asarray(y, np.int32)

    network = models.IMAGE_MODELS[model](num_classes, **sizes)
    return draw, {"network": network, "defaults": defaults}


def _words() -> _Family:
    config = StackOverflowConfig()

    def draw(nx: Any, count: int, seed: Array) -> tuple[Array, Array]:
        shape = (count, config.sequence_length + 1)
        drawn = nx.below(seed, math.prod(shape), config.vocab_size)
        rows = nx.reshape(nx.asarray(drawn, np.int32) + 1, shape)
        return rows[:, :-1], rows[:, 1:]

    pieces = text.next_word_pieces(config)
    return draw, {**pieces, "defaults": stackoverflow.DEFAULTS}


_FAMILIES: dict[str, Callable[[SyntheticConfig], _Family]] = {
    "cnn": lambda _: _images("cnn", emnist.NUM_CLASSES, emnist.DEFAULTS),
    "2nn": lambda own: _images(
        "2nn", emnist.NUM_CLASSES, emnist.DEFAULTS, units=own.hidden_units
    ),
    "small_cnn": lambda _: _images("small_cnn", digits.NUM_CLASSES, digits.DEFAULTS),
    "lstm": lambda _: _words(),
}


def load(config: SyntheticConfig) -> task_lib.Task:
    """The task `synthetic`, marked `benchmark_only`."""
    draw, pieces = _FAMILIES[config.model](config)

    clients = MadeUpClients(config.num_clients, config.examples_per_client, draw)
    tested = MadeUpClients(0, config.num_test_examples, draw)
    shape = [config.model, config.num_clients, config.examples_per_client]
    return task_lib.Task(
        name="synthetic",
        description="Made-up examples in the shapes of the other tasks.",
        client_ids=task_lib.client_names(config.num_clients),
        clients=clients,
        test_examples=lambda: tested.read(np.array([_EVALUATION_INDEX])),
        config=config,
        fingerprint=hashlib.sha256(f"synthetic 2 {shape}".encode()).hexdigest(),
        # The evaluation examples are those of a client that does not exist.
        clients_hold_test_examples=False,
        benchmark_only=True,
        **pieces,
    )
