# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import os

import psutil
import pytest

from dpfl import machine

FULL = {"memory.max": "900", "memory.current": "800"}


def control_groups(tmp_path, monkeypatch, own, found):
    """Makes the files of control groups, and that which says the process's own."""
    for name, text in found.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    (tmp_path / "own").write_text(f"{own}\n")
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(machine, "_OWN", tmp_path / "own")


@pytest.mark.parametrize(
    ("own", "found", "expected"),
    [
        ("0::/", {"cpu.max": "400000 100000"}, 4),
        # Part of a processor is one.
        ("0::/", {"cpu.max": "10000 100000"}, 1),
        ("0::/", {"cpu.max": "max 100000"}, 16),
        # No more than it may run on.
        ("0::/", {"cpu.max": "6400000 100000"}, 16),
        ("0::/", {}, 16),
        # The least of all groups that it is in, whose outermost may have no file.
        ("0::/a/b", {"a/cpu.max": "200000 50000", "a/b/cpu.max": "max 50000"}, 4),
        ("0::/a/b", {"a/cpu.max": "max 50000", "a/b/cpu.max": "100000 50000"}, 2),
        ("0::/a", {"b/cpu.max": "100000 50000"}, 16),
    ],
)
def test_no_more_than_a_container_may_use(tmp_path, monkeypatch, own, found, expected):
    control_groups(tmp_path, monkeypatch, own, found)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    assert machine.processors() == expected


@pytest.mark.parametrize(
    ("own", "found", "expected"),
    [
        ("0::/", {"memory.max": "900", "memory.current": "200"}, 700),
        ("0::/", {"memory.max": "900", "memory.current": "901"}, 0),
        ("0::/", {"memory.max": "max", "memory.current": "200"}, None),
        ("0::/", {}, None),
        # What was read from files is given back.
        ("0::/", {**FULL, "memory.stat": "anon 100\ninactive_file 300"}, 400),
        # The least of all groups that it is in, as a job of Slurm is.
        (
            "0::/a/b",
            {
                **{"a/memory.max": "900", "a/memory.current": "300"},
                **{"a/b/memory.max": "700", "a/b/memory.current": "200"},
            },
            500,
        ),
    ],
)
def test_no_more_memory_than_a_container_leaves(
    tmp_path, monkeypatch, own, found, expected
):
    control_groups(tmp_path, monkeypatch, own, found)
    assert machine.memory() == expected
    info = tmp_path / "meminfo"
    info.write_text("MemTotal:   9 kB\nMemAvailable:   1 kB\nHugePages_Total:   0\n")
    monkeypatch.setattr(machine, "_MEMORY_INFO", info)
    left = 1024 if expected is None else min(1024, expected)
    assert machine.free_memory() == left
    info.write_text("MemTotal:   9 kB\n")
    assert machine.free_memory() == expected


def test_memory_limit_without_control_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_OWN", tmp_path / "own")
    assert machine.processors() == len(os.sched_getaffinity(0))


def test_peak_memory_stays_after_release():
    held = b"1" * 2**27
    with_it = psutil.Process().memory_info().rss
    del held
    found = machine.peak_bytes(os.getpid())
    if found is None:
        pytest.skip("this kernel keeps no peak")
    assert found >= 0.99 * with_it
    assert machine.peak_bytes(2**30) is None
