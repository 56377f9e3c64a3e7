# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The folder of entries: which are believed, and what is left alone."""

import hashlib
import os

import numpy as np
import pytest

from dpfl import cache_folder, files

KEYS = [hashlib.sha256(bytes([number])).hexdigest() for number in range(9)]
KEY = KEYS[0]
HEADER, ARRAYS = {"epsilon": 7.84}, {"rows": np.arange(3.0)}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    place = tmp_path / "kept"
    monkeypatch.setenv("DPFL_CACHE", str(place))
    return place


@pytest.fixture
def entry(folder):
    """The path of the one entry that there is."""
    cache_folder.write(KEY, HEADER, ARRAYS)
    (path,) = folder.iterdir()
    return path


def contents(folder):
    return {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_entry_is_private_and_bit_exact(folder, entry):
    header, arrays = cache_folder.read(KEY)
    assert header == HEADER and list(arrays) == ["rows"]
    assert arrays["rows"].tobytes() == ARRAYS["rows"].tobytes()
    assert entry.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert cache_folder.read(KEYS[1]) is None


class TestTrust:
    """An entry that somebody else could have written is as good as none."""

    @pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
    def test_writable_by_others_entry_is_ignored(self, entry, mode):
        entry.chmod(mode)
        assert cache_folder.read(KEY) is None
        cache_folder.write(KEY, HEADER, ARRAYS)
        assert cache_folder.read(KEY) and entry.stat().st_mode & 0o777 == 0o600

    @pytest.mark.parametrize("mode", [0o720, 0o702, 0o777, 0o1777])
    def test_writable_by_others_folder_is_ignored(self, folder, entry, mode):
        folder.chmod(mode)
        assert cache_folder.read(KEY) is None
        cache_folder.write(KEYS[1], HEADER, ARRAYS)
        assert list(folder.iterdir()) == [entry]

    @pytest.mark.parametrize("mode, is_trusted", [(0o757, False), (0o1777, True)])
    def test_replaceable_folder_is_not_trusted(self, folder, entry, mode, is_trusted):
        folder.parent.chmod(mode)
        assert (cache_folder.read(KEY) is not None) is is_trusted

    def test_no_folder_is_created_below_a_writable_parent(self, folder):
        folder.parent.chmod(0o757)
        cache_folder.write(KEY, HEADER, ARRAYS)
        assert not folder.exists()

    @pytest.mark.parametrize("place", ["file", "folder", "above"])
    def test_entries_of_another_owner_are_ignored(
        self, folder, entry, monkeypatch, place
    ):
        """Told from what the system says, since a user gives nothing away."""
        seen = {"file": entry, "folder": folder, "above": folder.parent}[place]
        number = os.stat(seen).st_ino

        def as_anothers(original):
            def call(*args, **more):
                found = original(*args, **more)
                if found.st_ino != number:
                    return found
                return os.stat_result([*found[:4], found.st_uid + 1, *found[5:]])

            return call

        assert cache_folder.read(KEY)
        for name in ("fstat", "stat", "lstat"):
            monkeypatch.setattr(os, name, as_anothers(getattr(os, name)))
        assert cache_folder.read(KEY) is None
        before = contents(folder)
        cache_folder.write(KEY, {"epsilon": 1.0}, {})
        assert contents(folder) == before

    @pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder"])
    def test_links_and_special_files_are_ignored(self, tmp_path, entry, kind):
        other = tmp_path / "other"
        entry.rename(other)
        make = {"link": os.symlink, "hard link": os.link}.get(kind)
        if make:
            make(other, entry)
        else:
            {"pipe": os.mkfifo, "folder": os.mkdir}[kind](entry)
        assert cache_folder.read(KEY) is None
        before = other.read_bytes()
        cache_folder.write(KEY, {"epsilon": 1.0}, {})
        assert other.read_bytes() == before
        # Only the second name of an entry gives way to a new one.
        assert (cache_folder.read(KEY) is not None) is (kind == "hard link")

    def test_folder_behind_the_user_s_own_symlink_is_used(
        self, folder, entry, tmp_path
    ):
        folder.rename(tmp_path / "scratch")
        folder.symlink_to(tmp_path / "scratch")
        assert cache_folder.read(KEY)

    def test_oversized_entry_is_ignored(self, entry, monkeypatch):
        monkeypatch.setattr(cache_folder, "MOST_BYTES", entry.stat().st_size - 1)
        assert cache_folder.read(KEY) is None

    @pytest.mark.parametrize("number", [np.nan, np.inf, 1j * np.inf])
    def test_nonfinite_numbers_are_not_cached(self, folder, number):
        cache_folder.write(KEY, {}, {"rows": np.array([1, number])})
        assert cache_folder.read(KEY) is None
        cache_folder.write(KEYS[1], {"epsilon": number.real}, {})
        assert cache_folder.read(KEYS[1]) is None


class TestRoom:
    """Files of other names than an entry's are not removed, nor links and pipes."""

    def test_least_recently_used_entry_is_evicted(self, folder, monkeypatch):
        for number, key in enumerate(KEYS[:4]):
            cache_folder.write(key, HEADER, ARRAYS)
            os.utime(folder / f"dpfl-{key}.cache", (number, number))
        assert cache_folder.read(KEYS[0])
        size = (folder / f"dpfl-{KEY}.cache").stat().st_size
        monkeypatch.setattr(cache_folder, "MOST_BYTES", 3 * size + size // 2)
        cache_folder.write(KEYS[4], HEADER, ARRAYS)
        left = [bool(cache_folder.read(key)) for key in KEYS[:5]]
        assert left == [True, False, False, True, True]

    def test_foreign_files_are_kept(self, folder, monkeypatch):
        folder.mkdir(mode=0o700)
        large = bytes(10_000)
        names = ["data.npz", "optimal-0123456789abcdef0123456789abcdef.npz"]
        names += [f"{KEYS[5]}.json", f"dpfl-{KEYS[5]}.npz", ".notes.1.part.npz"]
        names += [f"dpfl-{KEYS[5]}.cache.old", f".dpfl-{KEYS[5]}.{'0' * 16}"]
        for name in names:
            (folder / name).write_bytes(large)
            os.utime(folder / name, (1, 1))
        (folder / f"dpfl-{KEYS[6]}.cache").symlink_to(folder / names[0])
        os.mkfifo(folder / f"dpfl-{KEYS[7]}.cache")
        (folder / f"dpfl-{KEYS[8]}.cache").mkdir()
        monkeypatch.setattr(cache_folder, "MOST_BYTES", 5000)
        for key in KEYS[:3]:
            cache_folder.write(key, HEADER, ARRAYS)
        assert {*names} <= {*os.listdir(folder)}
        assert all((folder / name).read_bytes() == large for name in names)
        others = [f"dpfl-{key}.cache" for key in KEYS[6:]]
        assert {*others} <= {*os.listdir(folder)}

    def test_stale_temporary_files_are_evicted(self, folder, entry, monkeypatch):
        left = folder / f".dpfl-{KEY}.123.dpfl-part.cache"
        left.write_bytes(entry.read_bytes()[:-9])
        os.utime(left, (1, 1))
        monkeypatch.setattr(cache_folder, "MOST_BYTES", 2 * entry.stat().st_size + 99)
        cache_folder.write(KEYS[1], HEADER, ARRAYS)
        assert not left.exists() and entry.exists()

    def test_a_failed_write_leaves_nothing(self, folder, entry, monkeypatch):
        def full(*args, **more):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "replace", full)
        cache_folder.write(KEYS[1], HEADER, ARRAYS)
        assert list(folder.iterdir()) == [entry]


class TestPlace:
    @pytest.mark.parametrize("value", ["", "off", "Off", " off "])
    def test_caching_can_be_switched_off(
        self, folder, entry, monkeypatch, tmp_path, value
    ):
        monkeypatch.setenv("DPFL_CACHE", value)
        monkeypatch.chdir(tmp_path)
        assert cache_folder.folder() is None and cache_folder.read(KEY) is None
        cache_folder.write(KEYS[1], HEADER, ARRAYS)
        assert os.listdir(tmp_path) == [folder.name]
        assert list(folder.iterdir()) == [entry]

    def test_default_folder_follows_xdg_and_home(self, tmp_path, monkeypatch):
        monkeypatch.delenv("DPFL_CACHE")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert cache_folder.folder() == tmp_path / "dpfl"
        monkeypatch.setenv("HOME", str(tmp_path))
        for relative in ("", "caches", "~/caches"):
            monkeypatch.setenv("XDG_CACHE_HOME", relative)
            assert cache_folder.folder() == tmp_path / ".cache" / "dpfl"

    @pytest.mark.parametrize("given", [None, "~", "~/mine", "~nobody-of-this-name/a"])
    @pytest.mark.parametrize("home", [None, "", "relative"])
    def test_missing_home_disables_caching(self, tmp_path, monkeypatch, given, home):
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        for name, value in (("DPFL_CACHE", given), ("HOME", home)):
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)
        monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
        assert cache_folder.folder() is None and files.expanded("~") is None
        cache_folder.write(KEY, HEADER, ARRAYS)
        assert os.listdir(tmp_path) == []

    def test_impossible_folder_is_not_an_error(self, folder):
        folder.write_text("a file")
        cache_folder.write(KEY, HEADER, ARRAYS)
        assert cache_folder.read(KEY) is None and folder.read_text() == "a file"


def test_folder_of_another_library_is_private_and_bounded(folder, monkeypatch):
    place = cache_folder.subfolder("programs")
    assert place == folder / "programs" and place.stat().st_mode & 0o777 == 0o700
    for number in range(3):
        (place / f"{number}").write_bytes(b"1" * 10)
        os.utime(place / f"{number}", (number, number))
    monkeypatch.setattr(cache_folder, "MOST_BYTES", 25)
    assert cache_folder.subfolder("programs") == place
    assert sorted(path.name for path in place.iterdir()) == ["1", "2"]
    (place / "2").chmod(0o666)
    assert cache_folder.subfolder("programs") is None
    (place / "2").chmod(0o600)
    folder.chmod(0o777)
    assert cache_folder.subfolder("programs") is None
    monkeypatch.setenv("DPFL_CACHE", "off")
    assert cache_folder.subfolder("programs") is None
