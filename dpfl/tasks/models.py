# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The networks of dpfl's tasks, as tables of layers that end in logits.

network = models.small_cnn(num_classes=10)
network.dimension, network.initial_weights(seed=0)
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from dpfl.tasks.networks import (
    LSTM,
    Convolution,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    Layer,
    MaxPool,
    Network,
)

IMAGE_SHAPE = (28, 28, 1)


def _of_images(*layers: Layer) -> Network:
    return Network(IMAGE_SHAPE, np.float32, layers)


def small_cnn(num_classes: int, filters: int = 24) -> Network:
    """A network of one convolution without dropout; one of `IMAGE_MODELS`.

    5x5x24 with stride 3, then dense: 15,994 parameters with 10 classes, just under
    the power of two that a Hadamard rotation pads to. Few parameters mean little
    noise: a private mean of n updates carries noise of variance d (z C / n)^2 in all.

    Args:
      num_classes: Number of logits.
      filters: Filters of the convolution.
    """
    return _of_images(Convolution(filters, 5, 3), Flatten(), Dense(num_classes))


def cnn(num_classes: int) -> Network:
    """The convolutional network of the F-EMNIST experiments, with dropout.

    3x3x32, 2x2 maximum, 3x3x64, dropout 0.25, dense 128, dropout 0.5, dense:
    1,018,174 parameters with 62 classes, 1,011,466 with 10. (Chen et al. 2022,
    'The Fundamental Price of Secure Aggregation', and its successors.)
    """
    return _of_images(
        Convolution(32, 3),
        MaxPool(),
        Convolution(64, 3),
        Dropout(0.25),
        Flatten(),
        Dense(128, "relu"),
        Dropout(0.5),
        Dense(num_classes),
    )


def two_layer(num_classes: int, units: int = 200) -> Network:
    """Two dense layers of 200 units (McMahan et al. 2017, '2NN').

    209,662 parameters with 62 classes, 199,210 with 10. With 2767 units and 62 classes
    it has 10,002,767.

    Args:
      num_classes: Number of logits.
      units: Units of each dense layer.
    """
    hidden = Dense(units, "relu")
    return _of_images(Flatten(), hidden, hidden, Dense(num_classes))


# Functions from the number of logits to a network of float32 [28, 28, 1].
IMAGE_MODELS: dict[str, Callable[..., Network]] = {
    "small_cnn": small_cnn,
    # A model of 3,340 parameters with 10 classes, to compare a small model with a large
    # one whose updates are compressed fivefold.
    "tiny_cnn": functools.partial(small_cnn, filters=5),
    "cnn": cnn,
    "2nn": two_layer,
}


def lstm(
    vocab_size: int, sequence_length: int, embedding_size: int, lstm_size: int
) -> Network:
    """The recurrent next-word model of Reddi et al. 2021.

    Embedding, one LSTM, a dense layer back to the embedding's width, dense to logits:
    4,050,748 parameters with 10,000 words and 4 special tokens, width 96 and 670
    units. The embedding masks nothing: padding comes after the sentence, an LSTM does
    not look ahead, and loss and metrics leave padding out, so the mask would cost
    time and change no gradient.

    Args:
      vocab_size: Number of tokens, the special ones included.
      sequence_length: Number of positions.
      embedding_size: Width of the embedding.
      lstm_size: Units of the LSTM.

    Returns:
      A network from integers [sequence_length] to [sequence_length, vocab_size].
    """
    layers = (
        Embedding(vocab_size, embedding_size),
        LSTM(lstm_size),
        Dense(embedding_size),
        Dense(vocab_size),
    )
    return Network((sequence_length,), np.int32, layers)
