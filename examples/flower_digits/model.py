# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The digits of dpfl, and its small network with its gradient in numpy."""

import functools

import numpy as np

import dpfl
from dpfl.tasks import clients

NAMES = ("kernel", "bias", "dense_kernel", "dense_bias")
LEARNING_RATE = 0.1


@functools.cache
def task():
    return dpfl.load_task("digits")


def patches(images):
    """The 5x5 patches of images at steps of 3, [images, 64, 25]."""
    windows = np.lib.stride_tricks.sliding_window_view(images[..., 0], (5, 5), (1, 2))
    return windows[:, ::3, ::3].reshape(len(images), 64, 25)


def forward(weights, images):
    """The patches, the hidden layer and the logits."""
    kernel, bias, dense_kernel, dense_bias = weights
    seen = patches(images)
    hidden = np.maximum(seen @ kernel.reshape(25, -1) + bias, 0)
    return seen, hidden, hidden.reshape(len(images), -1) @ dense_kernel + dense_bias


def gradient(weights, images, labels):
    """The gradient of the mean cross entropy, in the order of the weights."""
    kernel, _, dense_kernel, _ = weights
    seen, hidden, logits = forward(weights, images)
    likely = np.exp(logits - logits.max(1, keepdims=True))
    likely /= likely.sum(1, keepdims=True)
    slope = (likely - np.eye(10, dtype=np.float32)[labels]) / len(images)
    back = (slope @ dense_kernel.T).reshape(hidden.shape) * (hidden > 0)
    return [
        np.einsum("npi,npo->io", seen, back).reshape(kernel.shape),
        back.sum((0, 1)),
        hidden.reshape(len(images), -1).T @ slope,
        slope.sum(0),
    ]


def trained(weights, client, number):
    """The weights after a client's five passes over its digits.

    Args:
      weights: The model's.
      client: The client, from 0 on.
      number: The number of rounds before this one.
    """
    own = np.array([client])
    images, labels = task().clients.read(own)
    config = task().config
    [order] = clients.local_orders(task().clients.sizes, own, number, config)
    for begin in range(0, len(order), config.batch_size):
        batch = order[begin : begin + config.batch_size]
        slopes = gradient(weights, images[batch], labels[batch])
        weights = [w - LEARNING_RATE * slope for w, slope in zip(weights, slopes)]
    return [w.astype(np.float32) for w in weights]


def accuracy(weights):
    images, labels = task().test_examples()
    return float(np.mean(forward(weights, images)[2].argmax(1) == labels))
