# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Tokens of the next-word tasks: numbering and padding.

tokens = text.Tokens(config.vocab_size)
pieces = text.next_word_pieces(config)    # arguments of `Task`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpfl.tasks import models
from dpfl.tasks.metrics import Objective


class Tokens:
    """The numbering of tokens for a vocabulary, as in TFF's Stack Overflow task.

    Word k of the vocabulary is token k + 1.

    Attributes:
      padding: Fills a sequence after its sentence; never scored.
      unknown: Any word outside the vocabulary.
      begin: First token of every input.
      end: Follows the last word of a sentence that was not cut.
      total: Number of tokens, the four special ones included.
    """

    def __init__(self, vocab_size: int):
        self.padding = 0
        self.unknown = vocab_size + 1
        self.begin = vocab_size + 2
        self.end = vocab_size + 3
        self.total = vocab_size + 4

    def rows(self, sentences: Sequence[Sequence[int]], length: int) -> np.ndarray:
        """Sentences of tokens as rows, int32 [sentences, length + 1].

        A row has begin, the words, end if there is room, and padding.

        Args:
          sentences: The tokens of the words of each.
          length: Most words of a row.
        """
        found = np.full((len(sentences), length + 1), self.padding, np.int32)
        for row, words in zip(found, sentences):
            whole = [self.begin, *words, self.end][: length + 1]
            row[: len(whole)] = whole
        return found


def evaluated(rows: np.ndarray, config: Any) -> np.ndarray:
    """The rows to evaluate on, as many as the options ask for, in their order.

    Args:
      rows: All rows of the set.
      config: Has `max_test_examples`, `partition_seed`.
    """
    most = config.max_test_examples
    if most is None or most >= len(rows):
        return rows
    rng = np.random.RandomState(config.partition_seed)
    return rows[np.sort(rng.permutation(len(rows))[:most])]


def pairs(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The inputs and labels of rows of tokens, labels a token ahead."""
    return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])


def next_word_pieces(config: Any) -> dict[str, Any]:
    """The arguments of `Task` for the model and objective of a next-word task.

    Args:
      config: Has `vocab_size`, `sequence_length`, `embedding_size`, `lstm_size`.
    """
    tokens = Tokens(config.vocab_size)
    length = config.sequence_length
    return dict(
        network=models.lstm(
            tokens.total, length, config.embedding_size, config.lstm_size
        ),
        objective=Objective(
            unlearned=(tokens.padding,),
            unscored=(tokens.padding, tokens.unknown, tokens.end),
        ),
        label_shape=(length,),
    )
