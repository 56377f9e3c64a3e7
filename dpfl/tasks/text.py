# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Tokens of the next-word tasks: numbering, padding, and what is scored."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from dpfl.tasks import models


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The numbering of tokens for a vocabulary, as in TFF's Stack Overflow task.

    Attributes:
      vocab_size: Number of words; word k of the vocabulary is token k + 1.
    """

    vocab_size: int

    @property
    def padding(self) -> int:
        """Fills a sequence after its sentence; never scored."""
        return 0

    @property
    def unknown(self) -> int:
        """Any word outside the vocabulary."""
        return self.vocab_size + 1

    @property
    def begin(self) -> int:
        """First token of every input."""
        return self.vocab_size + 2

    @property
    def end(self) -> int:
        """Follows the last word of a sentence that was not cut."""
        return self.vocab_size + 3

    @property
    def total(self) -> int:
        """Number of tokens, the four special ones included."""
        return self.vocab_size + 4


def next_word_loss(tokens: Tokens) -> tf.keras.losses.Loss:
    """Returns the cross entropy per token, padding left out."""
    return models.MaskedCrossentropy([tokens.padding])


def next_word_metrics(tokens: Tokens) -> list[tf.keras.metrics.Metric]:
    """Returns the metrics of the literature's next-word tasks.

    Args:
      tokens: The numbering of tokens.

    Returns:
      'loss' per token, padding left out, and 'accuracy' over the words of the
      vocabulary: labels that are padding, unknown or the end of the sentence do not
      count.
    """
    unscored = [tokens.padding, tokens.unknown, tokens.end]
    return [
        models.MaskedLoss([tokens.padding], name="loss"),
        models.MaskedAccuracy(unscored, name="accuracy"),
    ]


def next_word_pieces(config: Any) -> dict[str, Any]:
    """Returns model, loss and metrics of a next-word `Task`.

    Args:
      config: Has `vocab_size`, `sequence_length`, `embedding_size`, `lstm_size`.

    Returns:
      The arguments `model_builder`, `loss`, `metrics` and `element_spec` of `Task`.
    """
    tokens = Tokens(config.vocab_size)

    def model_builder(seed: int) -> tf.keras.Model:
        return models.lstm(
            tokens.total,
            config.sequence_length,
            config.embedding_size,
            config.lstm_size,
            seed,
        )

    spec = tf.TensorSpec([None, config.sequence_length], tf.int32)
    return dict(
        model_builder=model_builder,
        loss=lambda: next_word_loss(tokens),
        metrics=lambda: next_word_metrics(tokens),
        element_spec=(spec, spec),
    )
