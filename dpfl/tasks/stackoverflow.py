# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Next-word prediction on Stack Overflow, a client per user (Reddi et al. 2021).

task = stackoverflow.load(configs.StackOverflowConfig(data_dir=folder))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from dpfl import checks
from dpfl.tasks import data_files, text
from dpfl.tasks import task as task_lib
from dpfl.tasks.configs import StackOverflowConfig

_BUCKET = "https://storage.googleapis.com/tff-datasets-public"

FILE = data_files.SqlFile(
    name="stackoverflow.sqlite",
    url=f"{_BUCKET}/stackoverflow.sqlite.lzma",
    splits={"train": (342_477, 135_818_730), "test": (204_088, 16_586_035)},
)
WORD_COUNTS = data_files.PackedText(
    name="datasets/stackoverflow.word_count.tar.bz2",
    url=f"{_BUCKET}/stackoverflow.word_count.tar.bz2",
    member="stackoverflow.word_count",
    sha256="1dc00256d6e527c54b9756d968118378ae14e6692c0b3b6cad470cdd3f0c519c",
)

_WORD_COUNT = re.compile(r"[ \t]*([^ \t\r]+)[ \t]+[0-9]+[ \t]*\r?")

# Chen et al. 2022, appendix.
DEFAULTS = task_lib.TrainingDefaults(
    client_lr=0.3, server_lr=1.78, clip_norm=0.1, cohort_size=100, rounds=1500
)


def read_vocabulary(
    config: StackOverflowConfig, file: data_files.PackedText = WORD_COUNTS
) -> list[str]:
    """The `config.vocab_size` most frequent words, from the published counts.

    Raises:
      DataFileError: If the file is missing or refused, or has fewer words, or a line
        that is not a word of its own and its count.
    """
    lines = data_files.read_packed_text(file, config)
    if len(lines) < config.vocab_size:
        raise data_files.DataFileError(
            f"vocab_size must be at most {len(lines)}, the number of words in "
            f"{file.name}, found {config.vocab_size}"
        )
    vocabulary: dict[str, None] = {}
    for number, line in enumerate(lines[: config.vocab_size], 1):
        pair = _WORD_COUNT.fullmatch(line)
        if pair is None or pair[1] in vocabulary:
            wanted = "a word that no earlier line has, and its count"
            name = f"line {number} of {file.name}"
            raise data_files.DataFileError(checks.message(name, wanted, line[:60]))
        vocabulary[pair[1]] = None
    return list(vocabulary)


def batch_parser(
    vocabulary: Sequence[str], sequence_length: int
) -> Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """The graph function from serialised examples to batches of tokens.

    It takes a string vector to (x, y), each int32 [batch, sequence_length], y one token
    ahead; the tokens are TFF's, as `text.Tokens` numbers them. The words of the
    vocabulary must be distinct.
    """
    tokens = text.Tokens(len(vocabulary))
    width = sequence_length + 1
    # No lookup table is used, since a table is a resource, to be initialised wherever
    # it is traced; a search among sorted 62-bit hashes is plain graph. Two of the known
    # words must not share a hash, which is checked; an unknown word hits one with
    # probability 1e4 / 4e18.
    hashes = _hash(tf.constant(list(vocabulary))).numpy()
    order = np.argsort(hashes)
    if len(np.unique(hashes)) < len(vocabulary):
        raise ValueError("vocabulary must have distinct words, found a duplicate")

    def look_up(words: tf.Tensor) -> tf.Tensor:
        wanted = _hash(words)
        sorted_hashes = tf.constant(hashes[order])
        place = tf.searchsorted(sorted_hashes, wanted)
        place = tf.minimum(place, len(vocabulary) - 1)
        known = tf.equal(tf.gather(sorted_hashes, place), wanted)
        number = tf.gather(tf.constant(order + 1, tf.int32), place)
        return tf.where(known, number, tokens.unknown)

    def parse_batch(records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        feature = {"tokens": tf.io.FixedLenFeature((), tf.string)}
        posts = tf.io.parse_example(records, feature)["tokens"]
        words = tf.strings.split(posts, sep=" ")
        numbers = tf.ragged.map_flat_values(look_up, words)
        edge = tf.ones([tf.size(posts, tf.int64), 1], tf.int32)
        rows = tf.concat([edge * tokens.begin, numbers, edge * tokens.end], axis=1)
        rows = rows.to_tensor(tokens.padding, shape=[None, width])
        return rows[:, :-1], rows[:, 1:]

    return parse_batch


def _hash(words: tf.Tensor) -> tf.Tensor:
    return tf.strings.to_hash_bucket_fast(words, 2**62)


def load(
    config: StackOverflowConfig,
    file: data_files.SqlFile = FILE,
    word_counts: data_files.PackedText = WORD_COUNTS,
) -> task_lib.Task:
    """The task `stackoverflow`, of a client per user.

    Clients are those of the split 'train', and the evaluation set is the split 'test';
    x and y are int32 [batch, sequence_length].

    Args:
      config: Options of the task.
      file: The file of examples; tests pass another one than the published.
      word_counts: The file of word counts; tests pass another one than the published.

    Raises:
      DataFileError: If a file is missing, damaged or not the one expected.
    """
    path = data_files.find_sql_file(file, config)
    vocabulary = read_vocabulary(config, word_counts)
    parse_batch = batch_parser(vocabulary, config.sequence_length)
    return task_lib.Task(
        name="stackoverflow",
        description="Next word in Stack Overflow posts, a client per user.",
        defaults=DEFAULTS,
        config=config,
        fingerprint=data_files.fingerprint(path, file, *vocabulary),
        # The split is by date: 'test' has later posts, also of users in 'train'.
        clients_hold_test_examples=True,
        **data_files.sql_pieces(path, file, parse_batch, config),
        **text.next_word_pieces(config),
    )
