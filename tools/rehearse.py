# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Makes learnable data files in the formats of F-EMNIST and Stack Overflow.

  python -m tools.rehearse emnist /tmp/data --clients=3400 --examples=198
  dpfl-train --flagfile=configs/tasks/emnist.flags --data_dir=/tmp/data
      --allow_partial_data

A training can be rehearsed at the size of a paper, its time, memory and disk, where the
published files are not at hand. The examples are made up: strokes of a class that are
moved and blurred by noise, and words that mostly follow from the one before. What is
learned of them says nothing about the published data.

Examples are drawn, packed and written client by client, so that a file of any size
takes little memory. The file gets its name when it is whole.
"""

from __future__ import annotations

import argparse
import bz2
import io
import sqlite3
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpfl import files
from experiments import start

_CLASSES = 62
_SIDE = 28
_STROKES = 3
_WORDS_OF_A_POST = 12
# How often a word follows from the one before.
_CERTAINTY = 0.7
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

_OF_ALL_POSTS = {
    **{"creation_date": "2026-01-01 00:00:00 UTC", "score": 1, "tags": "rehearsal"},
    **{"title": "rehearsal", "type": "question"},
}

# From a generator and a number of examples to so many serialized ones.
Examples = Callable[[np.random.Generator, int], Iterator[bytes]]


def _example(**features: Any) -> bytes:
    """A serialized `tf.train.Example` of texts, whole numbers and lists of floats."""
    import tensorflow as tf

    example = tf.train.Example()
    for name, value in features.items():
        feature = example.features.feature[name]
        if isinstance(value, str):
            feature.bytes_list.value.append(value.encode())
        elif isinstance(value, int):
            feature.int64_list.value.append(value)
        else:
            feature.float_list.value.extend(value)
    return example.SerializeToString(deterministic=True)


def _emnist_examples(drawn: np.random.Generator) -> Examples:
    """What draws handwriting: a class is a few strokes of its own, which are drawn."""
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
            yield _example(label=int(label), pixels=np.clip(pixels, 0, 1).ravel())

    return examples


def _post_examples(drawn: np.random.Generator, words: Sequence[str]) -> Examples:
    """What draws posts, in which most words follow from the one before.

    The words have the most frequent first.
    """
    follower = drawn.permutation(len(words))
    frequency = 1 / np.arange(1, len(words) + 1)
    ends = np.cumsum(frequency / frequency.sum())

    def examples(own: np.random.Generator, count: int) -> Iterator[bytes]:
        lengths = 1 + own.poisson(_WORDS_OF_A_POST - 1, count)
        for length in lengths:
            free = np.minimum(np.searchsorted(ends, own.random(length)), len(words) - 1)
            follows = own.random(length) < _CERTAINTY
            post = [int(free[0])]
            for place in range(1, length):
                post.append(int(follower[post[-1]] if follows[place] else free[place]))
            text = " ".join(words[word] for word in post)
            yield _example(tokens=text, **_OF_ALL_POSTS)

    return examples


def _write_sql(
    path: Path, examples: Examples, splits: Mapping[str, tuple[int, int]], seed: int
) -> None:
    """Writes a file as TFF's loaders read it, with an index of its clients.

    A split has a number of clients and of examples each, on average: clients have half
    as many to half as many again.
    """
    with files.replacing(path) as partial:
        connection = sqlite3.connect(partial)
        connection.executescript(_BEGIN)
        for number, (split, (clients, size)) in enumerate(splits.items()):
            for client in range(clients):
                own = np.random.default_rng([seed, number, client])
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


def _write_word_counts(path: Path, words: Sequence[str]) -> None:
    """Writes the archive of word counts that Stack Overflow's task reads."""
    text = "".join(f"{word} {len(words) - i}\n" for i, word in enumerate(words))
    content, packed = text.encode(), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("stackoverflow.word_count")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    path.parent.mkdir(exist_ok=True)
    files.write_atomically(path, bz2.compress(packed.getvalue()))


def write_emnist(folder: Path, clients: int, examples: int, seed: int = 0) -> None:
    """Writes F-EMNIST's file; an eighth as many examples are for testing."""
    few = max(1, examples // 8)
    splits = {"all_train": (clients, examples), "all_test": (clients, few)}
    drawn = _emnist_examples(np.random.default_rng(seed))
    _write_sql(folder / "emnist_all.sqlite", drawn, splits, seed)


def write_stackoverflow(
    folder: Path, clients: int, examples: int, seed: int = 0, words: int = 10_000
) -> None:
    """Writes Stack Overflow's two files, with up to 100 clients for testing."""
    some = (min(100, clients), examples)
    splits = {"train": (clients, examples), "heldout": some, "test": some}
    known = [f"w{number}" for number in range(words)]
    drawn = _post_examples(np.random.default_rng(seed), known)
    _write_sql(folder / "stackoverflow.sqlite", drawn, splits, seed)
    _write_word_counts(folder / "datasets/stackoverflow.word_count.tar.bz2", known)


WRITE = {"emnist": write_emnist, "stackoverflow": write_stackoverflow}


def main(argv: Sequence[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("task", choices=WRITE)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clients", type=int, default=3400)
    averaged = "of a client, on average"
    parser.add_argument("--examples", type=int, default=198, help=averaged)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(argv)
    for name, least in (("clients", 1), ("examples", 1), ("seed", 0)):
        found = getattr(asked, name)
        if found < least:
            parser.error(f"--{name} must be at least {least}, found {found}")
    start.import_tensorflow()
    try:
        asked.folder.mkdir(parents=True, exist_ok=True)
        WRITE[asked.task](asked.folder, asked.clients, asked.examples, asked.seed)
    except OSError as error:
        parser.error(f"{asked.folder} cannot be written: {error.strerror}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
