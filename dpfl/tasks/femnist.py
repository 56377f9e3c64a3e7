# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Federated EMNIST from LEAF's files: characters of 62 classes, a client per writer.

    task = femnist.load(configs.FemnistConfig(data_dir=folder))

A folder has json files as LEAF's `preprocess.sh` writes them (Caldas et al. 2018,
'LEAF: A Benchmark for Federated Settings'), of one sample or of several, or the archive
that `dpfl-prepare` makes of them. `emnist` is the same data in TFF's file and split.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dpfl import checks, reading
from dpfl.tasks import configs, data_files, emnist, mnist, models, prepared
from dpfl.tasks import task as task_lib
from dpfl.tasks.clients import ArrayClients
from dpfl.tasks.configs import FemnistConfig

_PIXELS = 28 * 28
_ARRAYS = ("images", "labels", "counts", "writers")
# Parts of the writers that are not trained on, and of a writer's images that are
# evaluated on.
_TENTH = 10
# Images of a writer by which those who are not trained on are stratified.
_MANY_IMAGES = 30

DEFAULTS = task_lib.TrainingDefaults(
    client_lr=0.01, server_lr=1.0, clip_norm=0.1, cohort_size=100, rounds=600
)


def _chosen(paths: list[pathlib.Path]) -> list[pathlib.Path]:
    """The json files in folders `train` and `test`, else `all_data`, else any."""
    samples = [path for path in paths if path.parent.name in ("train", "test")]
    return samples or [p for p in paths if p.parent.name == "all_data"] or paths


def _writers(path: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yields each writer in a file with rows of a label and its pixels, uint8."""
    try:
        if path.endswith(".npz"):
            yield from _of_archive(*prepared.archived(path, _ARRAYS))
        else:
            yield from _of_json(reading.read_json(path))
    except data_files.DataFileError:
        raise
    except (OSError, ValueError) as error:
        raise data_files.damaged(path, str(error)) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise data_files.damaged(path, "it is no file of LEAF's") from error


def _of_json(content: Any) -> Iterator[tuple[str, np.ndarray]]:
    users, sizes = content["users"], content["num_samples"]
    is_right = len(users) == len(sizes) and content["user_data"].keys() >= {*users}
    wanted = "a list num_samples as long as users, and user_data of each of the users"
    checks.require(is_right, "its content", wanted, "others")
    counts = dict(zip(users, sizes))
    # LEAF keeps, without images, who has too few to be one of the users.
    for writer, own in content["user_data"].items():
        pixels, labels = (np.array(own[part], np.float64) for part in "xy")
        pixels = pixels.reshape(-1, _PIXELS)
        count = counts.get(writer, len(labels))
        is_right = labels.shape == pixels.shape[:1] == (count,)
        is_right = is_right and bool(((pixels >= 0) & (pixels <= 1)).all())
        wanted = f"a label and {_PIXELS} numbers from 0 to 1 for each of num_samples"
        checks.require(is_right, f"x and y of writer {writer}", wanted, "others")
        yield writer, _rows(labels, np.rint(pixels * 255), f" of writer {writer}")


def _of_archive(
    images: np.ndarray, labels: np.ndarray, counts: np.ndarray, writers: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    is_right = counts.shape == writers.shape and labels.shape == (counts.sum(),)
    is_right = is_right and images.dtype == np.uint8
    if not is_right or images.shape != (*labels.shape, 28, 28):
        raise ValueError("its arrays do not fit together")
    parts = np.split(_rows(labels, images), np.cumsum(counts, dtype=np.int64))
    yield from zip(map(str, writers), parts)


def _rows(labels: np.ndarray, pixels: np.ndarray, of: str = "") -> np.ndarray:
    """uint8[images, 1 + 784]; ValueError if a label is no class."""
    wrong = labels[~np.isin(labels, np.arange(emnist.NUM_CLASSES))]
    wanted = f"a whole number from 0 to {emnist.NUM_CLASSES - 1}"
    checks.require(not wrong.size, f"a label{of}", wanted, [*map(float, wrong[:1])])
    columns = labels.reshape(-1, 1), pixels.reshape(-1, _PIXELS)
    return np.concatenate(columns, axis=1).astype(np.uint8)


def united(paths: Iterable[str]) -> dict[str, np.ndarray]:
    """The arrays of the archive: each image of a writer once, in an order of its own.

    Writers are sorted by name, and a writer's images by label and pixels, so that the
    arrays are the same for any order of the files.

    Args:
      paths: Paths of json files or archives.

    Returns:
      `images` uint8[images, 28, 28], `labels` uint8[images], `counts` int32[writers]
      and `writers`, the names.

    Raises:
      DataFileError: If a file is damaged.
    """
    found: dict[str, set[bytes]] = {}
    for path in paths:
        for writer, rows in _writers(path):
            found.setdefault(writer, set()).update(row.tobytes() for row in rows)
    writers = sorted(writer for writer, rows in found.items() if rows)
    every = b"".join(row for writer in writers for row in sorted(found[writer]))
    rows = np.frombuffer(every, np.uint8).reshape(-1, 1 + _PIXELS)
    counts = np.array([len(found[writer]) for writer in writers], np.int32)
    images = rows[:, 1:].reshape(-1, 28, 28)
    return dict(zip(_ARRAYS, (images, rows[:, 0], counts, np.array(writers, np.str_))))


SOURCE = prepared.Source(
    name="femnist",
    wanted="json files of LEAF, as `./preprocess.sh -s niid --sf 1.0 -k 0 -t sample` "
    "writes in data/femnist of github.com/TalwalkarLab/leaf",
    chosen=_chosen,
    arrays=united,
    counted={"writers": "writers", "images": "labels"},
)


def split(counts: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Splits the images by sets: positions, sorted, of `train` and of each to evaluate.

    A tenth of the writers are not trained on, of those with fewer than 30 images and of
    the others alike: half are `unseen_validation`, half `unseen_test`. Of each other
    writer's images a tenth, rounded down, are `validation`, and as many `test`.

    Args:
      counts: int[writers], the images of each.
      seed: Seed of the split.
    """
    rng = np.random.RandomState(seed)
    roles = np.full(len(counts), "trained", object)
    for group in (counts < _MANY_IMAGES, counts >= _MANY_IMAGES):
        writers = rng.permutation(np.flatnonzero(group))
        unseen = round(len(writers) / _TENTH)
        roles[writers[: unseen // 2]] = "unseen_validation"
        roles[writers[unseen // 2 : unseen]] = "unseen_test"
    sets: dict[str, list[np.ndarray]] = {
        name: [np.zeros(0, np.int64)] for name in ("train", *configs.EVALUATED)
    }
    starts = np.cumsum(counts, dtype=np.int64) - counts
    for role, start, count in zip(roles, starts, counts):
        images = start + rng.permutation(count)
        if role != "trained":
            sets[role].append(images)
            continue
        parts = np.split(images, [count // _TENTH, 2 * (count // _TENTH)])
        for name, part in zip(("validation", "test", "train"), parts):
            sets[name].append(part)
    return {name: np.sort(np.concatenate(parts)) for name, parts in sets.items()}


def owners(counts: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The number of the writer of each of some images, int64[positions].

    Args:
      counts: int[writers], the images of each.
      positions: Positions of the images.
    """
    return np.searchsorted(np.cumsum(counts, dtype=np.int64), positions, side="right")


def load(config: FemnistConfig) -> task_lib.Task:
    """The task `femnist`, a client per writer that is trained on.

    x is float32 [batch, 28, 28, 1] with the background at 1, y is int32 [batch].

    Raises:
      DataFileError: If the files are missing or damaged.
      ValueError: If there are too few images to train or to evaluate on.
    """
    images, labels, counts, writers = prepared.read(SOURCE, config).values()
    labels = labels.astype(np.int32)
    sets = split(counts, config.partition_seed)
    train, test = sets["train"], sets[config.evaluate_on]
    task_lib.check_split("evaluate_on", config.evaluate_on, len(train), len(test))
    trained, sizes = np.unique(owners(counts, train), return_counts=True)
    return task_lib.Task(
        name="femnist",
        description="Handwritten characters of 62 classes, a client per writer.",
        client_ids=tuple(map(str, writers[trained])),
        clients=ArrayClients(images[train], labels[train], sizes),
        test_examples=lambda: (images[test], labels[test]),
        test_owners=lambda: writers[owners(counts, test)],
        to_input=mnist.to_float,
        network=models.IMAGE_MODELS[config.model](emnist.NUM_CLASSES),
        defaults=DEFAULTS,
        config=config,
        fingerprint=task_lib.fingerprint(
            "femnist", images, labels, counts, writers, train, test
        ),
        clients_hold_test_examples=not config.evaluate_on.startswith("unseen"),
    )
