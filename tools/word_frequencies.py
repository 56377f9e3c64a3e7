# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What guessing words by their frequency comes to, on the task `docs`.

  python -m tools.word_frequencies docs/results/docs_frequencies.csv

The guess is the same for every word of a sentence: the share that a token has among
those that clients train on. Loss and accuracy are the task's own, on its test set, the
accuracy that of the most frequent word. A model that does no better has learned nothing
from the words before.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from dpfl.tasks import docs, task, text
from dpfl.tasks.configs import DocsConfig
from experiments import flag_files, tables
from experiments.papers import medium


def config_of(flags: Mapping[str, str]) -> DocsConfig:
    """The task's options that a flag file has, the others at their defaults."""
    wanted = {field.name for field in dataclasses.fields(DocsConfig)} & set(flags)
    numbers = {name: int(flags[name]) for name in wanted if flags[name].isdigit()}
    return DocsConfig(**{**{name: flags[name] for name in wanted}, **numbers})


def frequencies(learned: task.Task, tokens: text.Tokens) -> np.ndarray:
    """The shares of tokens in what clients train on, float64[tokens.total], none 0."""
    counts = np.ones(tokens.total)
    clients = tf.data.Dataset.range(learned.population)
    # One graph for all clients.
    batches = clients.flat_map(lambda client: learned.dataset_from_index(client, 0))
    for _, labels in batches:
        counts += np.bincount(labels.numpy().ravel(), minlength=tokens.total)
    counts[tokens.padding] = 1
    return np.asarray(counts / counts.sum())


def measures(learned: task.Task, shares: np.ndarray) -> dict[str, float]:
    """The task's metrics, by name, of guessing by shares on its test set."""
    logits = np.log(shares).astype(np.float32)
    metrics = learned.metrics()
    for _, labels in learned.evaluation_dataset():
        guesses = np.broadcast_to(logits, (*labels.shape, len(logits)))
        for metric in metrics:
            metric.update_state(labels, guesses)
    return {metric.name: float(metric.result()) for metric in metrics}


def row_of(learned: task.Task, tokens: text.Tokens) -> dict[str, float]:
    """Clients, test sentences and what guessing comes to on them."""
    shares = frequencies(learned, tokens)
    # Labels that are no words do not count, so that it is no use to guess one.
    words = shares.copy()
    words[[tokens.padding, tokens.unknown, tokens.begin, tokens.end]] = shares.min()
    return {
        "clients": learned.population,
        "test_examples": sum(len(x) for x, _ in learned.evaluation_dataset()),
        "loss": measures(learned, shares)["loss"],
        "accuracy": measures(learned, words)["accuracy"],
    }


def main(argv: Sequence[str]) -> None:
    """Writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, help="the CSV file to write")
    path = parser.parse_args(argv).table
    # What the medium scale of the figures trains and evaluates on.
    shared = {name: str(value) for name, value in medium.FLAGS[medium.DOCS].items()}
    config = config_of({**flag_files.values(shared["flagfile"]), **shared})
    found = row_of(docs.load(config), text.Tokens(config.vocab_size))
    tables.write_columns(path, {name: [value] for name, value in found.items()})


if __name__ == "__main__":
    main(sys.argv[1:])
