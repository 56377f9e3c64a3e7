# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import contextlib
import errno
import gc
import os
import resource
import stat
import sys

import numpy as np
import pytest

from dpfl import files, locks
from dpfl.training import record
from tests.refusals import refuses


@pytest.mark.parametrize("written", [False, True])
def test_exception_keeps_the_old_file(tmp_path, written):
    path = tmp_path / "model.keras"
    path.write_bytes(b"old")
    with pytest.raises(KeyError), files.replacing(path) as partial:
        if written:
            partial.write_bytes(b"half")
        assert partial.parent == tmp_path and partial.suffix == ".keras"
        raise KeyError
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.keras"]


def test_failed_write_raises_and_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x"
    files.write_atomically(path, b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with refuses(OSError, "No space left", path):
        files.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"


def test_arrays_on_a_full_disk_raise_one_error(tmp_path, monkeypatch):
    """The archive was closed after its file, with a traceback at the end."""
    unraised, path = [], tmp_path / "x.npz"
    monkeypatch.setattr(sys, "unraisablehook", unraised.append)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with refuses(OSError, os.strerror(errno.EFBIG), path):
            files.write_npz(path, {"x": np.zeros(10_000), "y": np.zeros(10_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    gc.collect()
    assert unraised == [] and os.listdir(tmp_path) == []


def test_only_stale_partial_files_are_removed(tmp_path):
    with files.replacing(tmp_path / "model.keras") as partial:
        partial.write_bytes(b"whole")
    partial.write_bytes(b"half")
    names = ["departure.csv", ".film.part", ".film.1234.part.mp4", "model.keras"]
    for name in names[:-1]:
        (tmp_path / name).write_bytes(b"mine")
    files.remove_partials(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(names)


def test_symlink_stays_a_symlink(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    files.write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


@contextlib.contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_unwritable_place_is_refused(tmp_path):
    (tmp_path / "x.csv").mkdir()
    for path in (tmp_path / "x.csv", tmp_path / "none" / "y.csv"):
        with refuses(ValueError, "output", path):
            files.output_path("--output", path)
    with pytest.raises(OSError):
        files.write_atomically(tmp_path / "x.csv", "new")
    files.output_path("--output", tmp_path / "y.csv")
    assert os.listdir(tmp_path) == ["x.csv"]


def test_read_only_file_is_not_replaced(tmp_path, monkeypatch):
    path = tmp_path / "x.csv"
    path.write_text("mine")
    # As for another user than root, who may write to every file.
    monkeypatch.setattr(os, "access", lambda *unused: False)
    with refuses(ValueError, "output", path):
        files.output_path("--output", path)
    with refuses(PermissionError, path):
        files.write_atomically(path, "new")
    assert path.read_text() == "mine" and os.listdir(tmp_path) == ["x.csv"]


def test_lock_says_who_holds_it(tmp_path):
    for _ in range(2):
        with locks.locked(tmp_path):
            assert (tmp_path / ".lock").read_text() == str(os.getpid())
            with refuses(locks.InUseError, os.getpid()), locks.locked(tmp_path):
                pass


def test_nobody_else_writes_to_new_files(tmp_path):
    with umask(0):
        folder = files.public_folder(tmp_path / "a")
        files.write_atomically(folder / "metrics.csv", "1")
        private = files.private_folder(folder / "run")
        with files.atomically(private / "manifest.json", private=True) as file:
            assert mode(file.name) == 0o600
    assert (mode(folder), mode(folder / "metrics.csv")) == (0o755, 0o644)
    assert (mode(private), mode(private / "manifest.json")) == (0o700, 0o600)
    # A file that is replaced, too.
    files.write_atomically(folder / "metrics.csv", "2", private=True)
    assert mode(folder / "metrics.csv") == 0o600
    folder.chmod(0o775)
    assert files.private_folder(folder) == files.public_folder(folder) == folder
    assert mode(folder) == 0o775


class TestJson:
    @pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 10**5])
    def test_invalid_or_deeply_nested_json_is_refused(self, tmp_path, content):
        path = tmp_path / "manifest.json"
        path.write_bytes(content)
        with refuses(ValueError, "manifest.json"):
            files.read_json(path)

    def test_pipe_is_refused_without_blocking(self, tmp_path):
        os.mkfifo(tmp_path / "manifest.json")
        with refuses(ValueError, tmp_path / "manifest.json"):
            files.read_json(tmp_path / "manifest.json")

    def test_written_json_has_no_nan(self, tmp_path):
        found = {"a": np.float32(0.5), "b": float("inf"), "c": [1, None, 2.5]}
        files.write_json(tmp_path / "a.json", found)
        expected = {"a": 0.5, "b": "inf", "c": [1, None, 2.5]}
        assert files.read_json(tmp_path / "a.json") == expected


@pytest.fixture
def calls(monkeypatch):
    """The calls that decide what a machine without power finds, in their order."""
    seen = []

    def recorded(name, of):
        original = getattr(os, name)

        def call(*arguments, **more):
            seen.append((name, of(*arguments)))
            return original(*arguments, **more)

        monkeypatch.setattr(os, name, call)

    recorded("fsync", lambda descriptor: os.readlink(f"/proc/self/fd/{descriptor}"))
    recorded("replace", lambda old, new: str(new))
    return seen


def test_content_is_synced_before_the_rename_and_the_directory(tmp_path, calls):
    path = tmp_path / "checkpoint"
    files.write_atomically(path, b"whole")
    [content, name, folder] = calls
    assert content[0] == "fsync" and os.path.dirname(content[1]) == str(tmp_path)
    assert content[1] != str(path)
    assert name == ("replace", str(path))
    assert folder == ("fsync", str(tmp_path))


def test_appended_rows_are_synced(tmp_path, calls, monkeypatch):
    found = record.MetricsFiles(tmp_path)
    found.rewind()
    found.append([{"round": 1}], [{"round": 1}])
    del calls[:]
    sizes, recorded = [], os.fsync

    def fsync(descriptor):
        sizes.append(os.fstat(descriptor).st_size)
        recorded(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    found.append([{"round": 2}], [{"round": 2}])
    names = ("metrics.csv", "times.csv", record.EVENTS)
    paths = [tmp_path / name for name in names]
    assert calls == [("fsync", str(path)) for path in paths]
    assert sizes == [path.stat().st_size for path in paths]
