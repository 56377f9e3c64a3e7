# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The folder of entries: which are believed, and what is left alone."""

import hashlib
import os

import numpy as np
import pytest

from dpfl import cache_folder, files

KEYS = [hashlib.sha256(bytes([number])).hexdigest() for number in range(5)]
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


def test_entry_is_private_and_bit_exact(folder, entry):
    header, arrays = cache_folder.read(KEY)
    assert header == HEADER and list(arrays) == ["rows"]
    assert arrays["rows"].tobytes() == ARRAYS["rows"].tobytes()
    assert entry.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert cache_folder.read(KEYS[1]) is None


class TestTrust:
    """An entry that somebody else could have written is as good as none."""

    @pytest.mark.parametrize("mode", [0o720, 0o702, 0o1777, "of another owner"])
    def test_folder_of_others_is_ignored(self, folder, entry, monkeypatch, mode):
        if isinstance(mode, str):
            user = os.geteuid()
            monkeypatch.setattr(os, "geteuid", lambda: user + 1)
        else:
            folder.chmod(mode)
        assert cache_folder.read(KEY) is None
        cache_folder.write(KEYS[1], HEADER, ARRAYS)
        assert list(folder.iterdir()) == [entry]

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
    """Files of other names than an entry's are not removed."""

    def test_least_recently_used_entry_is_evicted(self, folder, monkeypatch):
        for number, key in enumerate(KEYS[:4]):
            cache_folder.write(key, HEADER, ARRAYS)
            os.utime(folder / f"dpfl-{key}.cache", (number, number))
        assert cache_folder.read(KEYS[0])
        (folder / "data.npz").write_bytes(bytes(10_000))
        os.utime(folder / "data.npz", (1, 1))
        left = folder / f".dpfl-{KEY}.123.dpfl-part.cache"
        left.write_bytes(b"half")
        os.utime(left, (0, 0))
        size = (folder / f"dpfl-{KEY}.cache").stat().st_size
        monkeypatch.setattr(cache_folder, "MOST_BYTES", 3 * size + size // 2)
        cache_folder.write(KEYS[4], HEADER, ARRAYS)
        kept = [bool(cache_folder.read(key)) for key in KEYS[:5]]
        assert kept == [True, False, False, True, True]
        assert (folder / "data.npz").exists() and not left.exists()


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

    @pytest.mark.parametrize("given", [None, "~/mine"])
    def test_missing_home_disables_caching(self, tmp_path, monkeypatch, given):
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.delenv("HOME")
        monkeypatch.delenv("DPFL_CACHE", raising=False)
        if given is not None:
            monkeypatch.setenv("DPFL_CACHE", given)
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
    folder.chmod(0o777)
    assert cache_folder.subfolder("programs") is None
    monkeypatch.setenv("DPFL_CACHE", "off")
    assert cache_folder.subfolder("programs") is None
