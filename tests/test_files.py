# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import contextlib
import gc
import os
import stat
import sys
from unittest import mock

import numpy as np
import pytest

from dpfl import files, locks
from dpfl.training import record
from tests.refusals import refuses


def test_file_appears_only_when_complete(tmp_path):
    path = tmp_path / "model.keras"
    with files.replacing(path) as partial:
        partial.write_bytes(b"new")
        assert not path.exists()
        assert partial.parent == tmp_path and partial.suffix == ".keras"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["model.keras"]


@pytest.mark.parametrize("written", [False, True])
def test_exception_keeps_the_old_file(tmp_path, written):
    path = tmp_path / "events"
    path.write_bytes(b"old")
    with pytest.raises(KeyError), files.replacing(path) as partial:
        if written:
            partial.write_bytes(b"half")
        raise KeyError
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["events"]


def test_failed_write_raises_and_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x"
    files.write_atomically(path, b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with refuses(OSError, "No space left"):
        files.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"


def test_only_stale_partial_files_are_removed(tmp_path):
    with files.replacing(tmp_path / "model.keras") as partial:
        partial.write_bytes(b"whole")
    partial.write_bytes(b"half")
    mine = ["departure.csv", ".film.part", ".film.1234.part.mp4", ".a.part.b"]
    mine += [f".model.x{files._PARTIAL}.keras", f"model.1{files._PARTIAL}.keras"]
    for name in mine:
        (tmp_path / name).write_bytes(b"mine")
    (folder := partial.with_name(f"{partial.name}.d")).mkdir()
    files.remove_partials(tmp_path)
    left = sorted([*mine, "model.keras", folder.name])
    assert sorted(os.listdir(tmp_path)) == left


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


def test_replaced_file_becomes_private(tmp_path):
    path = tmp_path / "manifest"
    path.write_bytes(b"old")
    path.chmod(0o644)
    files.write_atomically(path, "new", private=True)
    assert mode(path) == 0o600 and path.read_text() == "new"


def test_arrays_on_a_full_disk_raise_one_error(tmp_path):
    """The archive was closed after its file, with a traceback at the end."""

    class Full:
        shape, dtype = (3,), np.dtype(float)

        def __array__(self, *_, **__):
            raise OSError(28, "No space left on device")

    unraised = []
    with mock.patch.object(sys, "unraisablehook", unraised.append):
        with mock.patch.object(files, "arrays_checksum", lambda *_: ""):
            with refuses(OSError, "No space left"):
                files.write_arrays(tmp_path / "x.npz", {}, {"x": Full()})
        gc.collect()
    assert unraised == [] and os.listdir(tmp_path) == []
    files.write_arrays(tmp_path / "x.npz", {}, {"x": np.arange(3.0)})
    with np.load(tmp_path / "x.npz") as found:
        np.savez(tmp_path / "y.npz", **found)
    sizes = [(tmp_path / name).stat().st_size for name in ("x.npz", "y.npz")]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("is_sticky", [False, True])
def test_unwritable_file_is_not_replaced(tmp_path, monkeypatch, is_sticky):
    """Another's file in a shared folder was, and so was a read-only one."""
    path = tmp_path / "x.csv"
    path.write_text("mine")
    if is_sticky:
        # Whoever may write to a file in /tmp cannot replace it.
        tmp_path.chmod(0o1777)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    else:
        path.chmod(0o444)
        # Root may write to every file.
        monkeypatch.setattr(os, "access", lambda *_, **__: False)
    with refuses(ValueError, "output", path):
        files.output_path("--output", path)
    with pytest.raises(PermissionError):
        files.write_atomically(path, "new")
    assert path.read_text() == "mine" and os.listdir(tmp_path) == ["x.csv"]
    files.output_path("--output", tmp_path / "y.csv")


def test_existing_folder_keeps_its_mode(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine").chmod(0o755)
    assert mode(files.private_folder(tmp_path / "mine")) == 0o755
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileExistsError):
        files.private_folder(tmp_path / "file")


@pytest.mark.parametrize("private", [False, True])
def test_a_link_under_the_partial_name_is_not_followed(tmp_path, private):
    (tmp_path / "victim").write_bytes(b"safe")
    link = tmp_path / f".out.{os.getpid()}{files._PARTIAL}"
    link.symlink_to(tmp_path / "victim")
    files.write_atomically(tmp_path / "out", "new", private)
    assert (tmp_path / "victim").read_bytes() == b"safe"
    assert (tmp_path / "out").read_bytes() == b"new"


@pytest.mark.parametrize(
    "put", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("other")]
)
def test_special_file_as_lock_is_refused(tmp_path, put):
    (tmp_path / "other").touch()
    put(tmp_path / ".lock")
    with refuses(ValueError, ".lock", tmp_path), locks.locked(tmp_path):
        pass
    assert (tmp_path / "other").read_text() == ""


@pytest.mark.parametrize("content", [b"pid: 7", b"[[package]]\n", b"\xff", b"1" * 99])
def test_foreign_lock_is_refused_and_kept(tmp_path, content):
    (tmp_path / ".lock").write_bytes(content)
    with refuses(ValueError, "output_dir"), locks.locked(tmp_path):
        pass
    assert (tmp_path / ".lock").read_bytes() == content
    (tmp_path / ".lock").unlink()
    for _ in range(2):
        with locks.locked(tmp_path):
            assert (tmp_path / ".lock").read_text() == str(os.getpid())


class TestModes:
    """Nobody but the owner writes to what dpfl wrote, whatever the umask."""

    @pytest.mark.parametrize(
        ("mask", "file_mode", "folder_mode"), [(0, 0o644, 0o755), (0o077, 0o600, 0o700)]
    )
    def test_new_files_follow_the_umask(self, tmp_path, mask, file_mode, folder_mode):
        with umask(mask):
            folder = files.public_folder(tmp_path / "a" / "b")
            files.write_atomically(folder / "metrics.csv", "1")
            files.write_atomically(folder / "manifest.json", "1", private=True)
            private = files.private_folder(folder / "c" / "run")
            files.output_folder("--output_dir", folder / "d")
            with locks.locked(private):
                assert mode(private / ".lock") == file_mode
            with files.atomically(folder / "late.csv") as file:
                # Nor is it anybody else's while it is written.
                assert mode(file.name) == file_mode
        for made in (folder, folder.parent, private.parent, folder / "d"):
            assert mode(made) == folder_mode
        assert mode(folder / "metrics.csv") == file_mode
        assert mode(folder / "manifest.json") == 0o600
        assert mode(private) == 0o700

    def test_existing_files_keep_their_mode(self, tmp_path):
        folder, path = tmp_path / "shared", tmp_path / "shared" / "metrics.csv"
        folder.mkdir()
        path.write_text("old")
        path.chmod(0o666)
        folder.chmod(0o777)
        files.write_atomically(path, "new")
        assert mode(path) == 0o644
        assert files.public_folder(folder) == files.private_folder(folder) == folder
        assert mode(folder) == 0o777
        assert "with the mode 0777" in files.others_may_write(folder)
        folder.chmod(0o755)
        assert files.others_may_write(folder) is None


class TestJson:
    @pytest.mark.parametrize(
        "content",
        [b"", b"{", b"\xff\xfe", *(b"[" * n + b"]" * n for n in (700, 10_000))],
    )
    def test_invalid_or_deeply_nested_json_is_refused(self, tmp_path, content):
        path = tmp_path / "manifest.json"
        path.write_bytes(content)
        with pytest.raises(ValueError):
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
    [events] = (tmp_path / "tensorboard").iterdir()
    paths = [tmp_path / "metrics.csv", tmp_path / "times.csv", events]
    assert calls == [("fsync", str(path)) for path in paths]
    assert sizes == [path.stat().st_size for path in paths]
