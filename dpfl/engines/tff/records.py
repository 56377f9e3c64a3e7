# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Parsers of records in TensorFlow's graphs, by the kind of the records.

    parse = records.PARSERS[type(record)](record)
    x, y = parse(serialised)

The argument is a vector of strings, and the results are a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl.tasks import emnist, stackoverflow, text

# Graph function from a string vector of serialised examples to batches (x, y).
_Parser = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


def _of_images(record: emnist.ImageRecord) -> _Parser:
    def parse(found: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        features = tf.io.parse_example(
            found,
            {
                "pixels": tf.io.FixedLenFeature((28, 28), tf.float32),
                "label": tf.io.FixedLenFeature((), tf.int64),
            },
        )
        label = features["label"]
        is_class = tf.logical_and(label >= 0, label < emnist.NUM_CLASSES)
        pixels = tf.where(is_class[:, None, None], features["pixels"], np.nan)
        return pixels[..., tf.newaxis], tf.cast(tf.where(is_class, label, 0), tf.int32)

    return parse


def _of_posts(record: stackoverflow.PostRecord) -> _Parser:
    tokens = text.Tokens(len(record.vocabulary))
    # No lookup table is used, since a table is a resource, to be initialised wherever
    # it is traced; a search among sorted 62-bit hashes is plain graph. Two of the known
    # words must not share a hash, which is checked; an unknown word hits one with
    # probability 1e4 / 4e18.
    hashes = _hash(tf.constant(list(record.vocabulary))).numpy()
    order = np.argsort(hashes)
    if len(np.unique(hashes)) < len(hashes):
        raise ValueError("vocabulary must have words of distinct hashes")

    def look_up(words: tf.Tensor) -> tf.Tensor:
        wanted = _hash(words)
        sorted_hashes = tf.constant(hashes[order])
        place = tf.searchsorted(sorted_hashes, wanted)
        place = tf.minimum(place, len(hashes) - 1)
        known = tf.equal(tf.gather(sorted_hashes, place), wanted)
        number = tf.gather(tf.constant(order + 1, tf.int32), place)
        return tf.where(known, number, tokens.unknown)

    def parse(found: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        feature = {"tokens": tf.io.FixedLenFeature((), tf.string)}
        posts = tf.io.parse_example(found, feature)["tokens"]
        words = tf.strings.split(posts, sep=" ")
        numbers = tf.ragged.map_flat_values(look_up, words)
        edge = tf.ones([tf.size(posts, tf.int64), 1], tf.int32)
        rows = tf.concat([edge * tokens.begin, numbers, edge * tokens.end], axis=1)
        shape = [None, record.sequence_length + 1]
        rows = rows.to_tensor(tokens.padding, shape=shape)
        return rows[:, :-1], rows[:, 1:]

    return parse


def _hash(words: tf.Tensor) -> tf.Tensor:
    return tf.strings.to_hash_bucket_fast(words, 2**62)


PARSERS: dict[type, Callable[[Any], _Parser]] = {
    emnist.ImageRecord: _of_images,
    stackoverflow.PostRecord: _of_posts,
}
