# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Rows as events that TensorBoard reads."""

from __future__ import annotations

import io
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorboard.summary.writer import record_writer

from dpfl import files

_PREFIX = "events.out.tfevents"


def encode(
    rows: Sequence[Mapping[str, Any]],
    times: Sequence[Mapping[str, Any]],
    *,
    with_version: bool,
) -> bytes:
    """Returns rows as records of an event file.

    Args:
      rows: A scalar for each name, None where there is none, with `round`.
      times: As many, with `exact_unix_time`; events have the time 0 without it.
      with_version: Whether the record that begins a file comes first.
    """
    buffer = io.BytesIO()
    writer = record_writer.RecordWriter(buffer)
    if with_version and rows:
        writer.write(_version_event(_time(times[0])))
    for row, time in zip(rows, times):
        writer.write(_row_event(row, _time(time)))
    return buffer.getvalue()


def choose_path(folder: pathlib.Path, say: Callable[[str], None]) -> pathlib.Path:
    """Returns where a run's events go in a folder; what else is there is not touched.

    Args:
      folder: Made if it is not there.
      say: Called with a sentence for each thing in the folder that is not the run's.

    Raises:
      OSError: If the folder cannot be made or read.
    """
    files.public_folder(folder)
    path = folder / f"{_PREFIX}.1.dpfl"
    while path.exists() and not path.is_file():
        number = int(path.name.split(".")[-2])
        path = folder / f"{_PREFIX}.{number + 1}.dpfl"
    for other in sorted(folder.iterdir()):
        if other != path:
            say(f"{other} is not of this run and is left alone")
    return path


def _time(row: Mapping[str, Any]) -> float:
    return float(row.get("exact_unix_time", 0.0))


def _version_event(wall_time: float) -> bytes:
    event = tf.compat.v1.Event(wall_time=wall_time, file_version="brain.Event:2")
    return event.SerializeToString()


def _row_event(row: Mapping[str, Any], wall_time: float) -> bytes:
    values = [
        tf.compat.v1.Summary.Value(tag=name, simple_value=float(value))
        for name, value in row.items()
        if value is not None and name != "round"
    ]
    return tf.compat.v1.Event(
        wall_time=wall_time,
        step=row["round"],
        summary=tf.compat.v1.Summary(value=values),
    ).SerializeToString()
