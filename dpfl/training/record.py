# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The rows of a run's rounds: metrics.csv, times.csv and TensorBoard events.

metrics = record.MetricsFiles(directory)
metrics.append(progress.rows, progress.times)
rows = record.read_rows(directory / record.METRICS)
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np

from dpfl import files, privacy_coverage, reading
from dpfl.training import plan as plan_lib

METRICS, TIMES = "metrics.csv", "times.csv"
EVENTS = "tensorboard/events.out.tfevents.1.dpfl"
# Prefix of the columns of metrics on the evaluation set.
EVAL = "eval_"

Row = dict[str, Any]


class MetricsFiles:
    """The metrics.csv, times.csv and TensorBoard events of a run.

    `metrics.csv` is the same for equal runs; values that depend on the machine are in
    `times.csv`.
    """

    def __init__(self, directory: pathlib.Path):
        self._directory = directory
        self._events = directory / EVENTS

    def rewind(
        self, rounds: int = 0, rows: Sequence[Row] = (), times: Sequence[Row] = ()
    ) -> None:
        """Leaves the rows of the first rounds in the files, and these rows behind them.

        Args:
          rounds: The rounds whose rows are in the files.
          rows: Rows of metrics.csv of the rounds that follow.
          times: Rows of times.csv of the same rounds.

        Raises:
          DamagedRecordError: If metrics.csv or times.csv lacks one of the first rounds.
        """
        for name, added in ((METRICS, rows), (TIMES, times)):
            path = self._directory / name
            every = [*_first_rows(path, rounds), *added]
            text = files.csv_text(every[0], every) if every else ""
            _write(path, text.encode())
        files.remove_partials(files.public_folder(self._events.parent))
        kept = (read_rows(self._directory / name) for name in (METRICS, TIMES))
        _write(self._events, _events(*kept, is_first=True))

    def append(self, rows: Sequence[Row], times: Sequence[Row]) -> None:
        """Appends the rows since the last checkpoint, of one round or more."""
        for name, content in ((METRICS, rows), (TIMES, times)):
            path = self._directory / name
            is_first = not path.exists()
            columns = list(content[0]) if is_first else _columns(path)
            _append(path, files.csv_text(columns, content, with_head=is_first).encode())
        is_first = not self._events.exists()
        _append(self._events, _events(rows, times, is_first=is_first))


def _first_rows(path: pathlib.Path, rounds: int) -> list[dict[str, str]]:
    """The rows of the first rounds, as texts."""
    rows = []
    with contextlib.suppress(FileNotFoundError, ValueError):
        rows = files.read_csv(path, cut=True)[:rounds]
    if [row.get("round") for row in rows] != [str(1 + i) for i in range(rounds)]:
        raise DamagedRecordError(
            f"{path} must have the rows of the first {rounds} rounds, found others; "
            "restore the file or choose another output_dir"
        )
    return rows


def _write(path: pathlib.Path, content: bytes) -> None:
    """Writes a file that has other content; removes it if there is none."""
    if not content:
        path.unlink(missing_ok=True)
    elif not path.exists() or reading.read_bytes(path) != content:
        files.write_atomically(path, content)


def _append(path: pathlib.Path, content: bytes) -> None:
    """Appends to a file; after an OSError a part of the content may be in it."""
    if not path.exists():
        # The file's name is then on the disk, too.
        files.write_atomically(path, content)
        return
    with path.open("ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _events(rows: Sequence[Row], times: Sequence[Row], *, is_first: bool) -> bytes:
    """Records of a TensorBoard event file, behind its version's if it begins here."""
    # Imported here, so that bad settings are refused first.
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer import record_writer

    buffer = io.BytesIO()
    writer = record_writer.RecordWriter(buffer)
    clocks = [float(row.get("exact_unix_time", 0.0)) for row in times]
    if is_first and rows:
        first = event_pb2.Event(wall_time=clocks[0], file_version="brain.Event:2")
        writer.write(first.SerializeToString())
    for row, wall_time in zip(rows, clocks):
        values = [
            summary_pb2.Summary.Value(tag=name, simple_value=float(value))
            for name, value in row.items()
            if value is not None and name != "round"
        ]
        summary = summary_pb2.Summary(value=values)
        event = event_pb2.Event(wall_time=wall_time, step=row["round"], summary=summary)
        writer.write(event.SerializeToString())
    return buffer.getvalue()


def read_rows(path: pathlib.Path) -> list[Row]:
    """The rows of a file of `MetricsFiles`, exactly; none if there is no file."""
    if not path.exists():
        return []
    return [
        {name: _number(cell) for name, cell in row.items()}
        for row in files.read_csv(path)
    ]


def _number(cell: str) -> Any:
    if not cell:
        return None
    try:
        return int(cell)
    except ValueError:
        return float(cell)


def _columns(path: pathlib.Path) -> list[str]:
    with reading.opened(path) as file:
        return next(csv.reader([file.readline().decode("utf-8")]))


_TOTAL_UP, _TOTAL_DOWN = (
    f"{privacy_coverage.MARK}total_{way}link_bits" for way in ("up", "down")
)


def evaluation(row: Row) -> dict[str, Any]:
    """The metrics on the evaluation set by name, exact or not; None if not due."""
    plain = privacy_coverage.plain_names(row)
    return {n[len(EVAL) :]: v for n, v in plain.items() if n.startswith(EVAL)}


class RunTotals(NamedTuple):
    """The sums of all rows so far, of a size that does not grow with the rounds.

    Attributes:
      evaluated: The last row with an evaluation; None if there is none.
    """

    rounds: int = 0
    clients: int = 0
    last: Optional[Row] = None
    evaluated: Optional[Row] = None

    def plus(self, row: Row) -> RunTotals:
        """The totals with one more row, which includes exact columns."""
        was_evaluated = any(v is not None for v in evaluation(row).values())
        return RunTotals(
            row["round"],
            self.clients + row["exact_clients"],
            row,
            row if was_evaluated else self.evaluated,
        )


def plain_number(value: Any) -> Any:
    """A scalar as a Python number, float32 in its shortest decimal form."""
    array = np.asarray(value)
    if array.dtype == np.float32:
        return float(str(array[()]))
    return int(array) if array.dtype == bool else array.item()


def round_row(
    plan: plan_lib.Plan,
    before: RunTotals,
    clients: int,
    train: Mapping[str, Any],
    evaluated: Mapping[str, Any],
    epsilon: float,
    measurements: Any,
) -> Row:
    """The row of a round; `privacy_coverage` describes the names of exact columns.

    Args:
      plan: The plan of the run.
      before: The totals before the round.
      clients: Number of clients in the round.
      train: Metrics of the clients' training.
      evaluated: Metrics on the evaluation set by name; None each if it was not due.
      epsilon: Epsilon after the round.
      measurements: Measurements of the aggregator, nested; only scalars are kept.
    """
    row: Row = {"round": before.rounds + 1, "exact_clients": clients}
    row.update(_prefixed("exact_train_", train))
    mark = privacy_coverage.MARK if plan.task.clients_hold_test_examples else ""
    row.update(_prefixed(f"{mark}{EVAL}", evaluated))
    row["epsilon"] = epsilon
    row["noise_multiplier"] = plan.mechanism.noise_multiplier
    measured = {
        privacy_coverage.measured_column(
            name, plan.mechanism.released_measurements
        ): value
        for name, value in _prefixed("", flat_scalars(measurements)).items()
    }
    row.update(_bit_columns(plan, before, clients, measured))
    row.update(measured)
    return row


def check_noise(plan: plan_lib.Plan, rows: Iterable[Row]) -> None:
    """Raises DamagedRecordError for a round with other noise than the plan's."""
    planned = plan.mechanism.noise_multiplier
    for row in rows:
        if row["noise_multiplier"] != planned:
            raise DamagedRecordError(
                f"noise_multiplier must be {row['noise_multiplier']} as in round "
                f"{row['round']} of this run, found {planned}; choose another "
                "output_dir"
            )


def flat_scalars(measurements: Any, prefix: str = "") -> dict[str, Any]:
    """Flattens nested measurements to one level, of scalars only."""
    flat: dict[str, Any] = {}
    if isinstance(measurements, Mapping):
        for name, part in measurements.items():
            flat.update(flat_scalars(part, f"{prefix}_{name}" if prefix else name))
    elif np.ndim(measurements) == 0 and not isinstance(
        measurements, (str, bytes, tuple)
    ):
        flat[prefix] = measurements
    return flat


def bits_per_client(plan: plan_lib.Plan, totals: RunTotals) -> dict[str, Any]:
    """Bits per client and round: measured, or expected if there was no client."""
    clients, dimension = totals.clients, plan.dimension
    up = plan.mechanism.uplink_bits(dimension)
    down = plan.mechanism.downlink_bits(dimension)
    if clients and totals.last is not None:
        up = totals.last[_TOTAL_UP] / clients
        down = totals.last[_TOTAL_DOWN] / clients
    return {
        "uplink_bits_per_client": up,
        "uplink_bits_per_parameter": up / dimension,
        "downlink_bits_per_client": down,
        "downlink_bits_per_parameter": down / dimension,
        "compression_rate": 32 * dimension / up,
        "total_uplink_bits": up * clients,
        "total_downlink_bits": down * clients,
    }


def _bit_columns(
    plan: plan_lib.Plan, before: RunTotals, clients: int, measured: Mapping[str, Any]
) -> Row:
    """The bits of a client in this round, and of all clients so far.

    Bits up are exact if they are measured, else the formula's.
    """
    mechanism, dimension = plan.mechanism, plan.dimension
    name = f"{privacy_coverage.MARK}uplink_bits"
    up = measured.get(privacy_coverage.measured_column("uplink_bits"))
    if up is None:
        name, up = "uplink_bits", mechanism.uplink_bits(dimension)
    column = privacy_coverage.measured_column("downlink_bits")
    down = measured.get(column, mechanism.downlink_bits(dimension))
    last = before.last or {_TOTAL_UP: 0, _TOTAL_DOWN: 0}
    return {
        name: up,
        "downlink_bits": down,
        _TOTAL_UP: last[_TOTAL_UP] + clients * up,
        _TOTAL_DOWN: last[_TOTAL_DOWN] + clients * down,
    }


def _prefixed(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{prefix}{name}": None if value is None else plain_number(value)
        for name, value in values.items()
    }


class DamagedRecordError(ValueError):
    """A file lacks rows that were written to it, or a row has other noise."""
