# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Makes a learnable data file in the format of F-EMNIST.

  python -m tools.rehearse /tmp/data --clients=3400 --examples=198
  dpfl-train --flagfile=configs/tasks/emnist.flags --data_dir=/tmp/data
      --allow_partial_data

It rehearses a training at the size of a paper, with its time, memory and disk, without
the published file. The examples are synthetic: strokes of a class, moved and blurred by
noise. Results on them say nothing about the published data.

Examples are drawn, packed and written client by client, so that a file of any size
takes little memory. The file is renamed once it is complete.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from dpfl import checks, files
from experiments import start

_CLASSES = 62
_SIDE = 28
_STROKES = 3
_BEGIN = """
-- What is half written has another name, and is thrown away.
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE examples (split_name TEXT NOT NULL, client_id TEXT NOT NULL,
  serialized_example_proto BLOB NOT NULL);
CREATE TABLE client_metadata (client_id TEXT NOT NULL, split_name TEXT NOT NULL,
  num_examples INTEGER NOT NULL);
"""
_INDEX = "CREATE INDEX by_client ON examples (client_id, split_name)"

# Function from a generator and a number of examples to serialized examples.
Examples = Callable[[np.random.Generator, int], Iterator[bytes]]


def _emnist_examples(drawn: np.random.Generator) -> Examples:
    """The function that draws handwriting, in which a class is a few random strokes."""
    import tensorflow as tf

    grid = np.mgrid[:_SIDE, :_SIDE].astype(np.float32)
    ends = drawn.uniform(4, _SIDE - 4, (_CLASSES, _STROKES, 2, 2)).astype(np.float32)
    steps = np.linspace(0, 1, 12, dtype=np.float32)[:, np.newaxis]
    shapes = np.empty([_CLASSES, _SIDE, _SIDE], np.float32)
    for shape, strokes in zip(shapes, ends):
        dots = np.concatenate([a + steps * (b - a) for a, b in strokes])
        offsets = grid[:, np.newaxis] - dots.T[:, :, np.newaxis, np.newaxis]
        distance = np.square(offsets).sum(0).min(0)
        # Ink is 0, the background 1.
        shape[:] = 1 - np.exp(-distance / 2)

    def examples(own: np.random.Generator, count: int) -> Iterator[bytes]:
        # A writer has some classes more often than others.
        labels = own.choice(_CLASSES, count, p=own.dirichlet(np.full(_CLASSES, 0.5)))
        moves = own.integers(-2, 3, (count, 2))
        noise = own.normal(0, 0.1, (count, _SIDE, _SIDE)).astype(np.float32)
        for label, move, blur in zip(labels, moves, noise):
            pixels = np.roll(shapes[label], tuple(move), (0, 1)) + blur
            example = tf.train.Example()
            feature = example.features.feature
            feature["label"].int64_list.value.append(int(label))
            feature["pixels"].float_list.value.extend(np.clip(pixels, 0, 1).ravel())
            yield example.SerializeToString(deterministic=True)

    return examples


def _write_sql(
    path: Path, examples: Examples, splits: Mapping[str, tuple[int, int]]
) -> None:
    """Writes a file for TFF's loaders, with an index of its clients.

    A split has a number of clients and a mean number of examples each: clients have
    between half and one and a half times as many.
    """
    with files.replacing(path) as partial:
        connection = sqlite3.connect(partial)
        connection.executescript(_BEGIN)
        for number, (split, (clients, size)) in enumerate(splits.items()):
            for client in range(clients):
                own = np.random.default_rng([0, number, client])
                count = int(own.integers(size - size // 2, size + size // 2 + 1))
                name = f"f{client:07d}"
                rows = ((split, name, each) for each in examples(own, count))
                connection.executemany("INSERT INTO examples VALUES (?, ?, ?)", rows)
                sizes = "INSERT INTO client_metadata VALUES (?, ?, ?)"
                connection.execute(sizes, (name, split, count))
            connection.commit()
        connection.execute(_INDEX)
        connection.commit()
        connection.close()


def write_emnist(folder: Path, clients: int, examples: int) -> None:
    """Writes F-EMNIST's file; the test split has an eighth of the examples.

    Args:
      folder: Folder of the file.
      clients: Number of clients.
      examples: Mean number of training examples of a client.
    """
    path = folder / "emnist_all.sqlite"
    if path.exists():
        # The existing file may be the published one.
        raise ValueError(f"folder must have no {path.name}, found {path}")
    few = max(1, examples // 8)
    splits = {"all_train": (clients, examples), "all_test": (clients, few)}
    drawn = _emnist_examples(np.random.default_rng(0))
    _write_sql(path, drawn, splits)


def main(argv: Sequence[str]) -> int:
    """Writes the file; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clients", type=int, default=3400)
    averaged = "of a client, on average"
    parser.add_argument("--examples", type=int, default=198, help=averaged)
    asked = parser.parse_args(argv)
    try:
        checks.integer("--clients", asked.clients)
        checks.integer("--examples", asked.examples)
        start.import_tensorflow()
        asked.folder.mkdir(parents=True, exist_ok=True)
        write_emnist(asked.folder, asked.clients, asked.examples)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
