# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Federated EMNIST: handwritten characters of 62 classes, a client per writer.

    task = emnist.load(configs.EmnistConfig(data_dir=folder))

(Caldas et al. 2018, 'LEAF: A Benchmark for Federated Settings'.)
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from dpfl.tasks import data_files, models
from dpfl.tasks import task as task_lib
from dpfl.tasks.configs import EmnistConfig

NUM_CLASSES = 62

FILE = data_files.SqlFile(
    name="emnist_all.sqlite",
    url="https://storage.googleapis.com/tff-datasets-public/emnist_all.sqlite.lzma",
    splits={"all_train": (3400, 671_585), "all_test": (3400, 77_483)},
    # Digests as others found them in July 2026; the publisher names none.
    packed_sha256="c3aaf91b4cf4e69d53d81627ad119eccdc878ff906f68e66063ff10f67faad48",
    sha256="239b48fb3b3d69e70406d18a0605c821d4db3c803443c64788736bcb9f79ac56",
)

# Chen et al. 2022, appendix; the clip is for a client rate of 0.01.
DEFAULTS = task_lib.TrainingDefaults(
    client_lr=0.01, server_lr=1.0, clip_norm=0.1, cohort_size=100, rounds=1500
)


def parse_batch(records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Parses serialised examples, a string vector, to images and labels.

    They are float32 [batch, 28, 28, 1] in [0, 1] with the background at 1, and int32
    [batch]. An invalid label would end the whole run with an error, so its image
    becomes NaN instead and the client counts as one that diverged.
    """
    features = tf.io.parse_example(
        records,
        {
            "pixels": tf.io.FixedLenFeature((28, 28), tf.float32),
            "label": tf.io.FixedLenFeature((), tf.int64),
        },
    )
    label = features["label"]
    is_class = tf.logical_and(label >= 0, label < NUM_CLASSES)
    pixels = tf.where(is_class[:, None, None], features["pixels"], np.nan)
    return pixels[..., tf.newaxis], tf.cast(tf.where(is_class, label, 0), tf.int32)


def load(config: EmnistConfig, file: data_files.SqlFile = FILE) -> task_lib.Task:
    """The task `emnist`, of a client per writer.

    x is float32 [batch, 28, 28, 1], y is int32 [batch]. Tests pass another file than
    the published one.

    Raises:
      DataFileError: If the file is missing, damaged or not the one expected.
    """
    path = data_files.find_sql_file(file, config)
    return task_lib.Task(
        name="emnist",
        description="Handwritten characters of 62 classes, a client per writer.",
        defaults=DEFAULTS,
        config=config,
        fingerprint=data_files.fingerprint(path, file),
        # The writers of 'all_test' are those of 'all_train'.
        clients_hold_test_examples=True,
        **data_files.sql_pieces(path, file, parse_batch, config),
        **models.image_pieces(config.model, NUM_CLASSES),
    )
