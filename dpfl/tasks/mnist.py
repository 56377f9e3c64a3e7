# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""MNIST, a client per writer: 70,000 real digits by 836 people.

MNIST is drawn from NIST's forms (Special Database 19). Who wrote which digit was found
by Yadav and Bottou (2019, 'Cold Case: The Lost MNIST Digits'); `mnist_writers.npz` has
their answer, in MNIST's order. MNIST's own training and test set have no writer in
common, so here all digits of a writer are put together, and a share is held out of
each writer's, as in F-EMNIST. No accuracy compares with that on MNIST's test set.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import os
import pathlib
import zipfile
import zlib

import numpy as np
import tensorflow as tf

from dpfl.tasks import data_files, models
from dpfl.tasks import task as task_lib
from dpfl.tasks.configs import MnistConfig

ARCHIVE = "mnist.npz"
URL = f"https://storage.googleapis.com/tensorflow/tf-keras-datasets/{ARCHIVE}"
# Of the download, as Keras has it.
_ARCHIVE_SHA256 = "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"
# Of all 70,000 images, a byte a pixel.
_PIXELS_SHA256 = "5b92582eb909c82a9bfefcd44acbe9233be3eb5b419a44cf211022ad2bf4bf96"
_UNREADABLE = (OSError, ValueError, KeyError, EOFError)
_IDX_MAGIC = {1: 2049, 3: 2051}
# Names of the parts of the archive, and of the files, for images and labels.
_PARTS = {
    "train": ("x_train", "y_train", "train-images", "train-labels"),
    "test": ("x_test", "y_test", "t10k-images", "t10k-labels"),
}

DEFAULTS = task_lib.TrainingDefaults(
    client_lr=0.1, server_lr=0.5, clip_norm=0.3, cohort_size=100, rounds=100
)


@dataclasses.dataclass(frozen=True)
class Writers:
    """Who wrote what, in MNIST's order, its training set first.

    Attributes:
      writers: int [examples], numbers of the writers.
      labels: int [examples], by which a copy's order is checked.
      training: How many of them are MNIST's training set.
      sha256: Hexadecimal digest of all pixels in that order, a byte each.
    """

    writers: np.ndarray
    labels: np.ndarray
    training: int
    sha256: str


def published_writers() -> Writers:
    """Those of MNIST."""
    path = pathlib.Path(__file__).with_name("mnist_writers.npz")
    with np.load(path) as facts:
        return Writers(
            np.concatenate([facts["train_writer"], facts["test_writer"]]),
            np.concatenate([facts["train_label"], facts["test_label"]]),
            len(facts["train_label"]),
            _PIXELS_SHA256,
        )


def _idx(path: str, axes: int) -> np.ndarray:
    """The bytes of an idx file, unpacked if it is packed."""
    with open(path, "rb") as file:
        content = file.read()
    try:
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise data_files.damaged(path, str(error)) from error
    head = 4 * (1 + axes)
    words = np.frombuffer(content[:head].ljust(head, b"\0"), ">u4")
    if words[0] != _IDX_MAGIC[axes]:
        raise data_files.damaged(path, "it does not begin like an idx file")
    shape = tuple(int(word) for word in words[1:])
    if len(content) - head != np.prod(shape, dtype=np.int64):
        raise data_files.damaged(path, f"{len(content)} bytes for {shape}")
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


def _idx_path(folder: str, stem: str, axes: int) -> str:
    """The path of an idx file under one of its usual names, or the first."""
    names = [f"{stem}{dot}idx{axes}-ubyte{end}" for dot in "-." for end in ("", ".gz")]
    paths = [os.path.join(folder, name) for name in names]
    return next((path for path in paths if os.path.exists(path)), paths[0])


def _archive(path: str) -> list[np.ndarray]:
    """Images and labels of both sets, from Keras's archive."""
    try:
        with np.load(path) as parts:
            return [parts[name] for two in _PARTS.values() for name in two[:2]]
    except (*_UNREADABLE, TypeError, zlib.error, zipfile.BadZipFile) as error:
        raise data_files.damaged(path, str(error)) from error


def read_images(config: MnistConfig, facts: Writers) -> tuple[np.ndarray, np.ndarray]:
    """All images and labels in MNIST's order: uint8 [examples, 28, 28] and int32.

    Raises:
      DataFileError: If they are missing, damaged, or in another order.
    """
    folder = data_files.data_folder(config)
    path = os.path.join(folder, ARCHIVE)
    stems = [stem for part in _PARTS.values() for stem in part[2:]]
    axes = (3, 1, 3, 1)
    idx_paths = [_idx_path(folder, *two) for two in zip(stems, axes)]
    has_idx = all(map(os.path.exists, idx_paths))
    if not has_idx and not os.path.exists(path):
        if not config.download:
            raise data_files.DataFileError(
                "data_dir must have the images of MNIST, as four idx files or "
                f"{ARCHIVE}, found neither in {folder}; --download fetches them"
            )
        data_files.fetch(path, URL, _archive, _ARCHIVE_SHA256)
    source = folder if has_idx else path
    parts = [_idx(*two) for two in zip(idx_paths, axes)] if has_idx else _archive(path)
    images = np.concatenate([parts[0], parts[2]])
    labels = np.concatenate([parts[1], parts[3]])
    is_in_order = len(parts[1]) == facts.training and np.array_equal(
        labels, facts.labels
    )
    if not is_in_order:
        raise data_files.damaged(source, "its labels are not those of MNIST in order")
    if hashlib.sha256(images.tobytes()).hexdigest() != facts.sha256:
        raise data_files.damaged(source, "its images are not those of MNIST")
    return images, labels.astype(np.int32)


def split(
    writers: np.ndarray, config: MnistConfig
) -> tuple[list[np.ndarray], np.ndarray]:
    """What each writer trains on, by number, and all that is evaluated on.

    These are sorted positions in `writers`, of which a share of each writer's is held
    out; a validation set may take the place of the test set.
    """
    rng = np.random.RandomState(config.partition_seed)
    training, held_out = [], []
    for writer in np.unique(writers):
        positions = rng.permutation(np.flatnonzero(writers == writer))
        test, rest = _cut(positions, config.test_fraction)
        if config.validation_fraction:
            test, rest = _cut(rest, config.validation_fraction)
        training.append(np.sort(rest))
        held_out.append(test)
    return training, np.sort(np.concatenate(held_out))


def _cut(positions: np.ndarray, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """A share of some positions, at least one of them, and the others."""
    count = max(1, int(round(fraction * len(positions))))
    return positions[:count], positions[count:]


def _to_float(pixels: tf.Tensor) -> tf.Tensor:
    """The images as float32 [batch, 28, 28, 1] in [0, 1]."""
    return tf.cast(pixels, tf.float32)[..., tf.newaxis] / 255.0


def load(config: MnistConfig, facts: Writers | None = None) -> task_lib.Task:
    """The task `mnist`, of a client per writer.

    x is float32 [batch, 28, 28, 1] in [0, 1] with ink at 1, y is int32 [batch]. Other
    facts than MNIST's are for tests.

    Raises:
      DataFileError: If the images are missing, damaged, or not those of MNIST.
      ValueError: If a writer has no digit left to train on.
    """
    facts = facts or published_writers()
    images, labels = read_images(config, facts)
    parts, test = split(facts.writers, config)
    sizes = np.array([len(part) for part in parts], np.int64)
    name = "validation_fraction" if config.validation_fraction else "test_fraction"
    task_lib.check_split(name, getattr(config, name), int(sizes.min()), len(test))
    rows = np.concatenate(parts)
    digest = hashlib.sha256(b"mnist 1")
    for array in (images, labels, rows, sizes, test):
        digest.update(array.tobytes())

    def evaluation_dataset() -> tf.data.Dataset:
        examples = task_lib.evaluation_batches(images[test], labels[test])()
        return examples.map(lambda pixels, label: (_to_float(pixels), label))

    return task_lib.Task(
        name="mnist",
        description="Handwritten digits, a client per writer.",
        client_ids=tuple(f"writer_{n:04d}" for n in np.unique(facts.writers)),
        dataset_from_index=task_lib.in_memory_datasets(
            images[rows], labels[rows], sizes, config, _to_float
        ),
        evaluation_dataset=evaluation_dataset,
        defaults=DEFAULTS,
        config=config,
        fingerprint=digest.hexdigest(),
        # A share of each writer's own digits is held out.
        clients_hold_test_examples=True,
        **models.image_pieces(config.model, num_classes=10),
    )
