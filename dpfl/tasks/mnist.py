# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""MNIST, a client per writer, and Fashion-MNIST, dealt to clients by its labels.

    task = mnist.load(configs.MnistConfig(data_dir=folder))

MNIST's 70,000 digits are drawn from NIST's forms (Special Database 19). Their writers
were found by Yadav and Bottou (2019, 'Cold Case: The Lost MNIST Digits');
`mnist_writers.npz` has them, in MNIST's order. MNIST's own training and test set have
no writer in common, so here all digits of a writer are joined, and a share of each
writer's is held out, as in F-EMNIST. Accuracies are not comparable with those on
MNIST's test set.

Fashion-MNIST (Xiao et al. 2017) has 70,000 pictures of clothes in MNIST's format, which
have no owners. Its training set is dealt to clients, and its test set is the published
one.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
import os
import pathlib
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dpfl import arrays, files
from dpfl.arrays import Array
from dpfl.tasks import configs, data_files, digits, downloads, models, prepared
from dpfl.tasks import task as task_lib
from dpfl.tasks.clients import ArrayClients
from dpfl.tasks.configs import FashionConfig, MnistConfig

ARCHIVE = "mnist.npz"
URL = f"https://storage.googleapis.com/tensorflow/tf-keras-datasets/{ARCHIVE}"
# Digest of the download, from Keras.
_ARCHIVE_SHA256 = "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"
_IDX_MAGIC = {1: 2049, 3: 2051}
# Names of the parts of the archive, and of the files, for images and labels.
_PARTS = {
    "train": ("x_train", "y_train", "train-images", "train-labels"),
    "test": ("x_test", "y_test", "t10k-images", "t10k-labels"),
}


class Split(NamedTuple):
    """Assignment of example indices to clients.

    Attributes:
      client_ids: Identifiers of the clients, sorted.
      parts: Indices of each client's training examples.
      held_out: Indices of the evaluation examples, sorted.
      owners: Identifiers of the clients that those belong to; None for no client.
    """

    client_ids: tuple[str, ...]
    parts: list[np.ndarray]
    held_out: np.ndarray
    owners: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class ImageSet:
    """A published set of images in MNIST's format, and its use as a task.

    Attributes:
      name: Name of the task.
      title: Name of the set.
      description: Description of the task.
      training: Number of images in the training set, which comes first.
      labels_sha256: Hexadecimal digest of all labels in that order, a byte each.
      pixels_sha256: Hexadecimal digest of all pixels.
      folder: Name of a folder in `data_dir` that may have the files.
      has_archive: Whether Keras's archive may be used, which can be downloaded.
      split: Function of the labels, `training` and the task's options to a `Split`.
      defaults: Training defaults of the task.
    """

    name: str
    title: str
    description: str
    training: int
    labels_sha256: str
    pixels_sha256: str
    folder: str
    has_archive: bool
    split: Callable[[np.ndarray, int, Any], Split]
    defaults: task_lib.TrainingDefaults


@functools.cache
def published_writers() -> np.ndarray:
    """The number of each digit's writer, int [70000], in MNIST's order."""
    path = pathlib.Path(__file__).with_name("mnist_writers.npz")
    with np.load(path) as facts:
        return np.concatenate([facts["train_writer"], facts["test_writer"]])


def _idx(path: str, axes: int) -> np.ndarray:
    """The content of an idx file, decompressed if needed."""
    content = files.read_bytes(path)
    try:
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise data_files.damaged(path, str(error)) from error
    head = 4 * (1 + axes)
    words = np.frombuffer(content[:head].ljust(head, b"\0"), ">u4")
    if words[0] != _IDX_MAGIC[axes]:
        raise data_files.damaged(path, "it does not begin as an idx file")
    shape = tuple(int(word) for word in words[1:])
    if len(content) - head != np.prod(shape, dtype=np.int64):
        raise data_files.damaged(path, f"{len(content)} bytes for {shape}")
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


def _idx_path(folder: str, stem: str, axes: int) -> str:
    """The path of an idx file under one of its usual names, or the first."""
    path = os.path.join(folder, f"{stem}-idx{axes}-ubyte")
    paths = [path, f"{path}.gz"]
    return next((path for path in paths if os.path.exists(path)), paths[0])


def _archive(path: str) -> list[np.ndarray]:
    """Reads the images and labels of both sets from Keras's archive."""
    names = [name for two in _PARTS.values() for name in two[:2]]
    return prepared.archived(path, names)


def read_images(
    config: MnistConfig | FashionConfig, of: ImageSet
) -> tuple[np.ndarray, np.ndarray]:
    """Reads all images and labels in order: uint8 [examples, 28, 28] and int32.

    Raises:
      DataFileError: If they are missing, damaged, or in another order.
    """
    folder = data_files.data_folder(config)
    inner = os.path.join(folder, of.folder)
    folder = inner if os.path.isdir(inner) else folder
    path = os.path.join(folder, ARCHIVE)
    stems = [stem for part in _PARTS.values() for stem in part[2:]]
    axes = (3, 1, 3, 1)
    idx_paths = [_idx_path(folder, *two) for two in zip(stems, axes)]
    has_idx = all(map(os.path.exists, idx_paths))
    if not has_idx:
        _find_archive(path, config, of)
    source = folder if has_idx else path
    parts = [_idx(*two) for two in zip(idx_paths, axes)] if has_idx else _archive(path)
    images = np.concatenate([parts[0], parts[2]])
    labels = np.concatenate([parts[1], parts[3]])
    is_in_order = len(parts[1]) == of.training and _digest(labels) == of.labels_sha256
    if not is_in_order:
        raise data_files.damaged(source, f"its labels differ from {of.title}'s")
    if _digest(images) != of.pixels_sha256:
        raise data_files.damaged(source, f"its images differ from {of.title}'s")
    return images, labels.astype(np.int32)


def _find_archive(path: str, config: Any, of: ImageSet) -> None:
    """Ensures that Keras's archive exists, downloading it if allowed."""
    if of.has_archive and os.path.exists(path):
        return
    if of.has_archive and config.download:
        downloads.fetch(path, URL, _archive, _ARCHIVE_SHA256)
        return
    folder = os.path.dirname(path)
    wanted = f"data_dir must have the images of {of.title}, as four idx files"
    if of.has_archive:
        wanted += f" or {ARCHIVE}, found neither in {folder}; --download fetches them"
    else:
        wanted += f", found no such files in {folder}"
    raise data_files.DataFileError(wanted)


def _digest(array: np.ndarray) -> str:
    """Hexadecimal SHA-256 of an array's values, a byte each."""
    return hashlib.sha256(array.astype(np.uint8).tobytes()).hexdigest()


def by_writer(writers: np.ndarray, config: MnistConfig) -> Split:
    """Makes each writer a client, and holds out a share of each writer's digits.

    A validation set may replace the test set.

    Args:
      writers: int [examples], numbers of the writers.
      config: Options of the task.

    Raises:
      ValueError: If a writer has no digit left to train on.
    """
    rng = np.random.RandomState(config.partition_seed)
    parts, held_out = [], []
    numbers = np.unique(writers)
    for writer in numbers:
        positions = rng.permutation(np.flatnonzero(writers == writer))
        test, rest = _cut(positions, config.test_fraction)
        if config.validation_fraction:
            test, rest = _cut(rest, config.validation_fraction)
        parts.append(np.sort(rest))
        held_out.append(test)
    test = np.sort(np.concatenate(held_out))
    name = "validation_fraction" if config.validation_fraction else "test_fraction"
    task_lib.check_split(name, getattr(config, name), min(map(len, parts)), len(test))
    names = np.array([f"writer_{number:04d}" for number in numbers])
    owners = names[np.searchsorted(numbers, writers[test])]
    return Split(tuple(map(str, names)), parts, test, owners)


def _cut(positions: np.ndarray, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Splits positions into a share of them, at least one, and the rest."""
    count = max(1, int(round(fraction * len(positions))))
    return positions[:count], positions[count:]


def by_label(labels: np.ndarray, training: int, config: FashionConfig) -> Split:
    """Deals the training set to clients by `digits.dirichlet_partition`.

    A share of each label may be held out in place of the test set.

    Args:
      labels: int [examples].
      training: Number of training examples, which come first.
      config: Options of the task.

    Raises:
      ValueError: If there are more clients than images, or no image is left to train
        or to validate on.
    """
    rng = np.random.RandomState(config.partition_seed)
    train, test = np.arange(training), np.arange(training, len(labels))
    fraction = config.validation_fraction
    if fraction:
        train, test = digits.split_by_label(labels[:training], fraction, rng)
        task_lib.check_split("validation_fraction", fraction, len(train), len(test))
    count, alpha = config.num_clients, config.dirichlet_alpha
    dealt = digits.dirichlet_partition(labels[train], count, alpha, rng)
    return Split(task_lib.client_names(count), [train[part] for part in dealt], test)


def to_float(pixels: Array) -> Array:
    """Converts pixels to float32 [..., 28, 28, 1] in [0, 1]."""
    floats = arrays.of(pixels).asarray(pixels, np.float32)
    return floats[..., np.newaxis] / np.float32(255)


MNIST = ImageSet(
    name="mnist",
    title="MNIST",
    description="Handwritten digits, a client per writer.",
    training=60_000,
    labels_sha256="671ff9d70b4811116d55c3dd479efa7a981e2e62753ef7a6d5c15fea81e63d27",
    pixels_sha256="5b92582eb909c82a9bfefcd44acbe9233be3eb5b419a44cf211022ad2bf4bf96",
    folder="mnist",
    has_archive=True,
    split=lambda labels, training, config: by_writer(published_writers(), config),
    defaults=task_lib.TrainingDefaults(
        client_lr=0.1, server_lr=0.5, clip_norm=0.3, cohort_size=100, rounds=100
    ),
)
FASHION = ImageSet(
    name="fashion",
    title="Fashion-MNIST",
    description="Pictures of clothes, dealt to clients by their labels.",
    training=60_000,
    labels_sha256="8ab940a680640f36c0bf1d2549cb2f3b3d4068c12547116cc7b1161b1d26663d",
    pixels_sha256="0fbbfcb392782b3b702472ead3688778e1509e8cf40f5c24d9d3303618b193ab",
    folder="fashion-mnist",
    has_archive=False,
    split=by_label,
    defaults=task_lib.TrainingDefaults(
        client_lr=0.1, server_lr=1.0, clip_norm=0.3, cohort_size=100, rounds=100
    ),
)
_SETS: dict[type[configs.TaskConfig], ImageSet] = {
    MnistConfig: MNIST,
    FashionConfig: FASHION,
}


def load(
    config: MnistConfig | FashionConfig, of: ImageSet | None = None
) -> task_lib.Task:
    """The task `mnist`, a client per writer, or `fashion`, with dealt clients.

    x is float32 [batch, 28, 28, 1] in [0, 1] with ink at 1, y is int32 [batch]. Tests
    pass other sets than the published ones.

    Raises:
      DataFileError: If the images are missing, damaged, or not those of the set.
      ValueError: If a client or the evaluation has no image left.
    """
    of = of or _SETS[type(config)]
    images, labels = read_images(config, of)
    client_ids, parts, test, owners = of.split(labels, of.training, config)
    sizes = np.array([len(part) for part in parts], np.int64)
    rows = np.concatenate(parts)
    data = (images, labels, rows, sizes, test)
    return task_lib.Task(
        name=of.name,
        description=of.description,
        client_ids=client_ids,
        clients=ArrayClients(images[rows], labels[rows], sizes),
        test_examples=lambda: (images[test], labels[test]),
        test_owners=None if owners is None else lambda: owners,
        to_input=to_float,
        network=models.IMAGE_MODELS[config.model](digits.NUM_CLASSES),
        defaults=of.defaults,
        config=config,
        fingerprint=task_lib.fingerprint(of.name, *data, with_shapes=False),
        # Of a writer's own digits a share is held out.
        clients_hold_test_examples=owners is not None,
    )
