# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The Keras models, with seeded initial weights, and their losses.

    model = models.small_cnn(num_classes=10, seed=0)
    loss = models.image_loss()

Every model is a plain stack of Keras's own layers that ends in logits, so that a
saved model loads without dpfl.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Optional

import tensorflow as tf

from dpfl.tasks import metrics

_IMAGE_SHAPE = (28, 28, 1)


# Distinct seeds of the layers of a model.
_Seeds = Iterator[int]


def _seeds(seed: int) -> _Seeds:
    return itertools.count(1000 * seed + 1)


def _dense(
    units: int, seeds: _Seeds, activation: Optional[str] = None
) -> tf.keras.layers.Layer:
    kernel = tf.keras.initializers.GlorotUniform(next(seeds))
    return tf.keras.layers.Dense(units, activation, kernel_initializer=kernel)


def _convolution(
    filters: int, size: int, strides: int, seeds: _Seeds
) -> tf.keras.layers.Layer:
    kernel = tf.keras.initializers.GlorotUniform(next(seeds))
    return tf.keras.layers.Conv2D(
        filters, size, strides, activation="relu", kernel_initializer=kernel
    )


def _of_images(*layers: tf.keras.layers.Layer) -> tf.keras.Model:
    return tf.keras.Sequential([tf.keras.layers.Input(_IMAGE_SHAPE), *layers])


def small_cnn(num_classes: int, seed: int, filters: int = 24) -> tf.keras.Model:
    """A network of one convolution without dropout; one of `IMAGE_MODELS`.

    5x5x24 with stride 3, then dense: 15,994 parameters with 10 classes, just under
    the power of two that a Hadamard rotation pads to. Few parameters mean little
    noise: a private mean of n updates carries noise of variance d (z C / n)^2 in all.

    Args:
      num_classes: Number of logits.
      seed: Seed of the initial weights.
      filters: Filters of the convolution.
    """
    seeds = _seeds(seed)
    return _of_images(
        _convolution(filters, 5, 3, seeds),
        tf.keras.layers.Flatten(),
        _dense(num_classes, seeds),
    )


def cnn(num_classes: int, seed: int) -> tf.keras.Model:
    """The convolutional network of the F-EMNIST experiments, with dropout.

    3x3x32, 2x2 maximum, 3x3x64, dropout 0.25, dense 128, dropout 0.5, dense:
    1,018,174 parameters with 62 classes, 1,011,466 with 10. (Chen et al. 2022,
    'The Fundamental Price of Secure Aggregation', and its successors.)
    """
    seeds = _seeds(seed)
    return _of_images(
        _convolution(32, 3, 1, seeds),
        tf.keras.layers.MaxPool2D(),
        _convolution(64, 3, 1, seeds),
        tf.keras.layers.Dropout(0.25),
        tf.keras.layers.Flatten(),
        _dense(128, seeds, "relu"),
        tf.keras.layers.Dropout(0.5),
        _dense(num_classes, seeds),
    )


def two_layer(num_classes: int, seed: int, units: int = 200) -> tf.keras.Model:
    """Two dense layers of 200 units (McMahan et al. 2017, '2NN').

    209,662 parameters with 62 classes, 199,210 with 10. With 2767 units and 62 classes
    it has 10,002,767.

    Args:
      num_classes: Number of logits.
      seed: Seed of the initial weights.
      units: Units of each dense layer.
    """
    seeds = _seeds(seed)
    return _of_images(
        tf.keras.layers.Flatten(),
        _dense(units, seeds, "relu"),
        _dense(units, seeds, "relu"),
        _dense(num_classes, seeds),
    )


# Function from the number of logits and the seed of the initial weights to an
# uncompiled model from float32 [batch, 28, 28, 1] to [batch, num_classes].
IMAGE_MODELS: dict[str, Callable[..., tf.keras.Model]] = {
    "small_cnn": small_cnn,
    # A model of 3,340 parameters with 10 classes, to compare a small model with a large
    # one whose updates are compressed fivefold.
    "tiny_cnn": functools.partial(small_cnn, filters=5),
    "cnn": cnn,
    "2nn": two_layer,
}


def lstm(
    vocab_size: int,
    sequence_length: int,
    embedding_size: int,
    lstm_size: int,
    seed: int,
) -> tf.keras.Model:
    """The recurrent next-word model of Reddi et al. 2021.

    Embedding, one LSTM, a dense layer back to the embedding's width, dense to logits:
    4,050,748 parameters with 10,000 words and 4 special tokens, width 96 and 670
    units. The embedding masks nothing: padding comes after the sentence, an LSTM does
    not look ahead, and loss and metrics leave padding out, so the mask would cost
    time and change no gradient. Unrolled, a step takes half the time on a CPU.

    Args:
      vocab_size: Number of tokens, the special ones included.
      sequence_length: Number of positions.
      embedding_size: Width of the embedding.
      lstm_size: Units of the LSTM.
      seed: Seed of the initial weights.

    Returns:
      An uncompiled model from integers [batch, sequence_length] to
      [batch, sequence_length, vocab_size].
    """
    seeds = _seeds(seed)
    initial = tf.keras.initializers
    words = tf.keras.layers.Embedding(
        vocab_size,
        embedding_size,
        embeddings_initializer=initial.RandomUniform(seed=next(seeds)),
    )
    recurrent = tf.keras.layers.LSTM(
        lstm_size,
        return_sequences=True,
        unroll=True,
        kernel_initializer=initial.GlorotUniform(next(seeds)),
        recurrent_initializer=initial.Orthogonal(seed=next(seeds)),
    )
    last = _dense(embedding_size, seeds), _dense(vocab_size, seeds)
    tokens = tf.keras.layers.Input((sequence_length,), dtype=tf.int32)
    return tf.keras.Sequential([tokens, words, recurrent, *last])


def image_loss() -> tf.keras.losses.Loss:
    """The cross entropy of logits, mean over the batch."""
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def image_pieces(model: str, num_classes: int, **sizes: int) -> dict[str, Any]:
    """The arguments of `Task` for the model, loss and metrics of images.

    Args:
      model: A key of `IMAGE_MODELS`.
      num_classes: Number of logits.
      **sizes: Sizes of the model that differ from its defaults.
    """
    return dict(
        element_spec=(
            tf.TensorSpec([None, *_IMAGE_SHAPE], tf.float32),
            tf.TensorSpec([None], tf.int32),
        ),
        model_builder=lambda seed: IMAGE_MODELS[model](num_classes, seed, **sizes),
        loss=image_loss,
        metrics=metrics.image_metrics,
    )


def _weights(
    y_true: tf.Tensor,
    masked_tokens: Sequence[int],
    sample_weight: Optional[tf.Tensor],
) -> tf.Tensor:
    """The given weights, or 1 without any, and 0 for masked labels."""
    weights = tf.ones_like(y_true, tf.float32)
    for token in masked_tokens:
        weights *= tf.cast(tf.not_equal(y_true, token), tf.float32)
    if sample_weight is not None:
        weights *= tf.cast(sample_weight, tf.float32)
    return weights


class MaskedCrossentropy(tf.keras.losses.Loss):
    """Cross entropy of logits, mean over the tokens that are not masked.

    A batch in which every token is masked has loss zero.
    """

    def __init__(self, masked_tokens: Sequence[int], name: str = "crossentropy"):
        super().__init__(name=name)
        self._masked_tokens = tuple(masked_tokens)

    def __call__(
        self,
        y_true: tf.Tensor,
        y_pred: tf.Tensor,
        sample_weight: Optional[tf.Tensor] = None,
    ) -> tf.Tensor:
        """The loss, a scalar; replaces Keras's reduction over all positions.

        Args:
          y_true: int [batch, positions], labels.
          y_pred: float [batch, positions, tokens], logits.
          sample_weight: Weights of the positions; None for 1.
        """
        weights = _weights(y_true, self._masked_tokens, sample_weight)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y_true, y_pred)
        return tf.math.divide_no_nan(
            tf.reduce_sum(losses * weights), tf.reduce_sum(weights)
        )

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"masked_tokens": self._masked_tokens, "name": self.name}


class _MaskedMean(tf.keras.metrics.Mean):
    """Mean of `_values` over the tokens that are not masked."""

    def __init__(self, masked_tokens: Sequence[int], name: str):
        super().__init__(name=name)
        self._masked_tokens = tuple(masked_tokens)

    def _values(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        raise NotImplementedError

    def update_state(
        self,
        y_true: tf.Tensor,
        y_pred: tf.Tensor,
        sample_weight: Optional[tf.Tensor] = None,
    ) -> Any:
        weights = _weights(y_true, self._masked_tokens, sample_weight)
        return super().update_state(self._values(y_true, y_pred), weights)

    def get_config(self) -> dict[str, Any]:
        return {"masked_tokens": self._masked_tokens, "name": self.name}


class MaskedAccuracy(_MaskedMean):
    """Accuracy over the tokens that are not masked."""

    def _values(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        hits = tf.equal(tf.argmax(y_pred, -1), tf.cast(y_true, tf.int64))
        return tf.cast(hits, tf.float32)


class MaskedLoss(_MaskedMean):
    """Mean cross entropy of the tokens that are not masked, as a metric."""

    def _values(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(y_true, y_pred)
