# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The handwritten digits of scikit-learn, as a federated data set.

    task = digits.load(configs.DigitsConfig(num_clients=10))

1797 real 8x8 images (the test part of 'Optical Recognition of Handwritten Digits',
UCI), scaled to 28x28 and split over clients by their labels.
"""

from __future__ import annotations

import functools

import numpy as np

from dpfl import checks, missing
from dpfl.tasks import models
from dpfl.tasks import task as task_lib
from dpfl.tasks.clients import ArrayClients
from dpfl.tasks.configs import DigitsConfig

NUM_CLASSES = 10
IMAGE_SIZE = 28

# Settings found by search at epsilon 8, delta 1e-3 and 100-fold compressed L2-CSGM.
DEFAULTS = task_lib.TrainingDefaults(
    client_lr=0.1, server_lr=0.5, clip_norm=0.1, cohort_size=50, rounds=60
)


def interpolation_matrix(size: int, new_size: int) -> np.ndarray:
    """The linear interpolation of a row of `size` pixels, with aligned pixel centres.

    The result is a float64 matrix W of shape [new_size, size], whose rows sum to one:
    `W @ image @ W.T` is the bilinear scaling of a square image.
    """
    centre = (np.arange(new_size) + 0.5) * size / new_size - 0.5
    centre = np.clip(centre, 0, size - 1)
    left = np.minimum(centre.astype(int), size - 2)
    matrix = np.zeros((new_size, size))
    rows = np.arange(new_size)
    matrix[rows, left] = left + 1 - centre
    matrix[rows, left + 1] = centre - left
    return matrix


def split_by_label(
    labels: np.ndarray, test_fraction: float, rng: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Splits examples into training and held-out positions, both sorted.

    The same share of every label is held out, rounded for each.

    Args:
      labels: int [examples].
      test_fraction: Share of each label that is held out.
      rng: Generator of the split.
    """
    held_out = []
    for label in np.unique(labels):
        positions = rng.permutation(np.flatnonzero(labels == label))
        held_out.append(positions[: int(round(test_fraction * len(positions)))])
    test = np.sort(np.concatenate(held_out))
    return np.setdiff1d(np.arange(len(labels)), test), test


def dirichlet_partition(
    labels: np.ndarray, num_clients: int, alpha: float, rng: np.random.RandomState
) -> list[np.ndarray]:
    """Positions of each client's examples; sizes differ by at most one.

    Each client draws a label distribution from a symmetric Dirichlet of concentration
    `alpha` and then its examples one by one without replacement; a label that has run
    out is dropped and the rest renormalised (Hsu et al. 2019, 'Measuring the Effects
    of Non-Identical Data Distribution', section 3; Reddi et al. 2021, appendix C).

    Args:
      labels: int [examples].
      num_clients: Number of clients.
      alpha: Concentration of the Dirichlet distribution.
      rng: Generator of the partition.

    Raises:
      ValueError: If there are fewer examples than clients.
    """
    wanted = f"at most {len(labels)}, the number of training examples"
    checks.require(num_clients <= len(labels), "num_clients", wanted, num_clients)
    classes = np.unique(labels)
    left = [list(rng.permutation(np.flatnonzero(labels == c))) for c in classes]
    sizes = [len(part) for part in np.array_split(labels, num_clients)]
    parts = []
    for size in sizes:
        distribution = rng.dirichlet([alpha] * len(classes))
        taken = []
        for _ in range(size):
            available = np.array([bool(positions) for positions in left])
            # The floor lets a client draw on when all labels that it prefers have run
            # out.
            weights = (distribution + 1e-12) * available
            label = rng.choice(len(left), p=weights / weights.sum())
            taken.append(left[label].pop())
        parts.append(np.array(taken))
    return parts


@functools.cache
def _read_images() -> tuple[np.ndarray, np.ndarray]:
    """Integer images [1797, 8, 8] with values 0-16, and labels [1797]."""
    with missing.explained("task 'digits'", "task 'synthetic' needs no data"):
        from sklearn import datasets

    data = datasets.load_digits()
    return data.images.astype(np.uint8), data.target.astype(np.int32)


def _scale(images: np.ndarray) -> np.ndarray:
    """Images as float32 [n, 28, 28, 1] with values in [0, 1]."""
    matrix = interpolation_matrix(images.shape[1], IMAGE_SIZE)
    scaled = matrix @ (images / 16.0) @ matrix.T
    return np.clip(scaled, 0.0, 1.0)[..., np.newaxis].astype(np.float32)


def load(config: DigitsConfig) -> task_lib.Task:
    """The task `digits`, with `config.num_clients` clients of equal size.

    x is float32 [batch, 28, 28, 1] in [0, 1] with ink at 1, y is int32 [batch].

    Raises:
      ValueError: If there are more clients than training images, or no image is left
        for training or for testing.
    """
    images, labels = _read_images()
    rng = np.random.RandomState(config.partition_seed)
    train, test = split_by_label(labels, config.test_fraction, rng)
    name = "test_fraction"
    if config.validation_fraction:
        name = "validation_fraction"
        rest, held_out = split_by_label(labels[train], config.validation_fraction, rng)
        train, test = train[rest], train[held_out]
    task_lib.check_split(name, getattr(config, name), len(train), len(test))
    parts = dirichlet_partition(
        labels[train], config.num_clients, config.dirichlet_alpha, rng
    )
    rows = train[np.concatenate(parts)]
    sizes = np.array([len(part) for part in parts], np.int64)
    data = (images, labels, rows.astype(np.int64), sizes, test.astype(np.int64))
    x = _scale(images)
    return task_lib.Task(
        name="digits",
        description="8x8 handwritten digits scaled to 28x28, split by label.",
        client_ids=task_lib.client_names(config.num_clients),
        clients=ArrayClients(x[rows], labels[rows], sizes),
        test_examples=lambda: (x[test], labels[test]),
        network=models.IMAGE_MODELS[config.model](NUM_CLASSES),
        defaults=DEFAULTS,
        config=config,
        fingerprint=task_lib.fingerprint("digits", *data, with_shapes=False),
        # Held-out images are drawn before the others are dealt, and belong to no
        # client.
        clients_hold_test_examples=False,
    )
