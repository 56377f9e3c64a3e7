# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Federated EMNIST: handwritten characters of 62 classes, a client per writer.

    task = emnist.load(configs.EmnistConfig(data_dir=folder))

(Caldas et al. 2018, 'LEAF: A Benchmark for Federated Settings'.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpfl import checks
from dpfl.tasks import data_files, models, records
from dpfl.tasks import task as task_lib
from dpfl.tasks.configs import EmnistConfig

NUM_CLASSES = 62

FILE = data_files.SqlFile(
    name="emnist_all.sqlite",
    url="https://storage.googleapis.com/tff-datasets-public/emnist_all.sqlite.lzma",
    splits={"all_train": (3400, 671_585), "all_test": (3400, 77_483)},
    # The digest as others found it in July 2026; the publisher names none.
    packed_sha256="c3aaf91b4cf4e69d53d81627ad119eccdc878ff906f68e66063ff10f67faad48",
)

# Chen et al. 2022, appendix; the clip is for a client rate of 0.01.
DEFAULTS = task_lib.TrainingDefaults(
    client_lr=0.01, server_lr=1.0, clip_norm=0.1, cohort_size=100, rounds=1500
)


class ImageRecord:
    """Records of an image, float32 [28, 28] with the background at 1, and its class.

    An invalid class would end the whole run with an error, so its image becomes NaN
    instead and the client counts as one that diverged.
    """

    def parse(self, found: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """See base class: float32 [records, 28, 28, 1] and int32 [records]."""
        x = np.empty((len(found), 28, 28, 1), np.float32)
        y = np.zeros(len(found), np.int32)
        for place, record in enumerate(found):
            fields = records.fields(record)
            pixels, label = fields.get("pixels", ()), fields.get("label", ())
            if len(pixels) != 28 * 28 or len(label) != 1:
                wanted = "pixels and a label"
                raise records.DamagedExampleError(
                    checks.message("a record", wanted, sorted(fields))
                )
            is_class = 0 <= label[0] < NUM_CLASSES
            x[place] = np.reshape(pixels, (28, 28, 1)) if is_class else np.nan
            y[place] = label[0] if is_class else 0
        return x, y


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
        network=models.IMAGE_MODELS[config.model](NUM_CLASSES),
        **data_files.sql_pieces(path, file, ImageRecord(), config),
    )
