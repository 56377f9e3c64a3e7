# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import csv

import numpy as np
import pytest

from dpfl import privacy_coverage
from dpfl.training import record
from tests.refusals import refuses
from tools.soaks.runs import events


def rows(n):
    return [
        {
            "round": r,
            "exact_train_loss": 1 / r,
            "eval_accuracy": None if r % 2 else 0.5,
            "epsilon": 0.1 * r,
            "exact_total_uplink_bits": 100.0 * r,
        }
        for r in range(1, n + 1)
    ]


def times(n):
    return [{"round": r, "exact_unix_time": 1000.0 + r} for r in range(1, n + 1)]


def contents(directory):
    """The bytes of all files, by their path in the folder."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def begun(directory, done=0):
    """The files, rewound to so many rounds."""
    found = record.MetricsFiles(directory)
    found.rewind(done)
    return found


def write(directory, done, *counts):
    """Rewinds to `done` rounds and appends up to so many rows, one append each."""
    found = begun(directory, done)
    for n in counts:
        found.append(rows(n)[done:], times(n)[done:])
        done = n


def test_each_round_is_recorded_once(tmp_path):
    write(tmp_path, 0, 1, 2, 4, 5)
    with (tmp_path / "metrics.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["round"] for row in found] == list("12345")
    assert found[0]["eval_accuracy"] == ""
    assert [event[1:] for event in events(tmp_path)] == [
        (row["round"], name, pytest.approx(value))
        for row in rows(5)
        for name, value in row.items()
        if name != "round" and value is not None
    ]


def test_rows_round_trip(tmp_path):
    write(tmp_path, 0, 5)
    found = record.read_rows(tmp_path / "metrics.csv")
    assert found == rows(5)
    types = [[type(value) for value in row.values()] for row in (found[0], *rows(1))]
    assert types[0] == types[1]
    assert record.read_rows(tmp_path / "nothing.csv") == []


def test_partial_appends_are_rolled_back(tmp_path):
    """What a kill leaves: any length of each file behind the checkpoint's rows."""
    whole = tmp_path / "whole"
    whole.mkdir()
    write(whole, 0, 1, 3)
    before = contents(whole)
    write(whole, 3, 6)
    after = contents(whole)
    assert all(after[name].startswith(before[name]) for name in before)
    for name in before:
        for length in range(len(before[name]), len(after[name]) + 1, 31):
            (whole / name).write_bytes(after[name][:length])
            begun(whole, 3)
            assert contents(whole) == before
            (whole / name).write_bytes(after[name][:length])
            record.MetricsFiles(whole).rewind(3, rows(6)[3:], times(6)[3:])
            assert contents(whole) == after
            begun(whole, 3)


def test_restarted_run_leaves_no_old_rows(tmp_path):
    write(tmp_path, 0, 3)
    begun(tmp_path)
    assert contents(tmp_path) == {}


def test_a_record_without_a_row_is_refused(tmp_path):
    write(tmp_path, 0, 3)
    for name in ("metrics.csv", "times.csv"):
        path = tmp_path / name
        written = path.read_bytes()
        damages = (written.replace(b"\n3", b"\n4"), written[:-9], b"", b"\0", None)
        for damage in damages:
            path.unlink() if damage is None else path.write_bytes(damage)
            with refuses(record.DamagedRecordError, name):
                record.MetricsFiles(tmp_path).rewind(3)
            assert damage is None or path.read_bytes() == damage
            path.write_bytes(written)


def test_edited_event_files_are_rewritten(tmp_path):
    write(tmp_path, 0, 3)
    path = tmp_path / record.EVENTS
    written = path.read_bytes()
    for damage in (written[:-1], b"", written[::-1]):
        path.write_bytes(damage)
        begun(tmp_path, 3)
        assert path.read_bytes() == written


def test_append_cost_is_independent_of_history(tmp_path):
    """The same bytes for a late round as for an earlier one."""
    found, sizes = begun(tmp_path), []
    for n in range(200, 210):
        found.append([{**rows(1)[0], "round": n}], times(1))
        sizes.append([len(content) for content in contents(tmp_path).values()])
    lengths = np.diff(sizes, axis=0).tolist()
    assert lengths[0] == lengths[-1]


def test_events_without_exact_values_have_zero_wall_time(tmp_path):
    found = begun(tmp_path)
    found.append(rows(2), [privacy_coverage.without_exact(time) for time in times(2)])
    assert (tmp_path / "times.csv").read_text() == "round\n1\n2\n"
    assert {clock for clock, *_ in events(tmp_path)} == {0.0}
