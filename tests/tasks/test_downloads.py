# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Downloads from URLs that need no network, and digests that are remembered."""

import functools
import hashlib
import io
import lzma
import os
import stat

import pytest

from dpfl import cache_folder
from dpfl.tasks import data_files, downloads
from tests.refusals import refuses

CONTENT = bytes(range(256)) * 400


def fetched(folder, packed, sha256=None, check=lambda path: None):
    """The content of a file that is fetched into a new folder."""
    (source := folder / "data.lzma").write_bytes(packed)
    path = folder / "new/data"
    downloads.fetch(str(path), source.as_uri(), check, sha256)
    assert os.listdir(path.parent) == ["data"]
    return path.read_bytes()


@pytest.mark.parametrize("form", [lzma.FORMAT_ALONE, lzma.FORMAT_XZ])
def test_download_gets_its_name_when_complete(tmp_path, form):
    packed = lzma.compress(CONTENT, format=form)
    seen = []

    def check(path):
        seen.append((os.path.basename(path) != "data", os.path.getsize(path)))

    digest = hashlib.sha256(packed).hexdigest()
    assert fetched(tmp_path, packed, digest, check) == CONTENT
    assert seen == [(True, len(CONTENT))]


@pytest.mark.parametrize("kept", [0, 0.3, 0.99])
def test_failed_download_leaves_no_file(tmp_path, kept):
    packed = lzma.compress(CONTENT)
    with refuses(data_files.DataFileError, tmp_path / "new"):
        fetched(tmp_path, packed[: int(kept * len(packed))])
    assert os.listdir(tmp_path / "new") == []
    (tmp_path / "data.lzma").unlink()
    with refuses(data_files.DataFileError, "data.lzma"):
        url = (tmp_path / "data.lzma").as_uri()
        downloads.fetch(str(tmp_path / "new/data"), url, print)
    assert os.listdir(tmp_path / "new") == []


def test_refused_download_leaves_no_file(tmp_path):
    packed = lzma.compress(CONTENT)

    def check(path):
        raise data_files.DataFileError("4 clients")

    for wrong, parts in (
        ({"check": check}, ["4 clients"]),
        ({"sha256": "0" * 64}, ["0" * 64, hashlib.sha256(packed).hexdigest()]),
    ):
        with refuses(data_files.DataFileError, *parts):
            fetched(tmp_path, packed, **wrong)
        assert os.listdir(tmp_path / "new") == []


def test_short_download_is_refused(tmp_path, monkeypatch):
    limits = []

    def urlopen(url, timeout):
        limits.append(timeout)
        response = io.BytesIO(bytes(100))
        response.headers = {"content-length": "101"}
        return response

    monkeypatch.setattr(downloads.urllib.request, "urlopen", urlopen)
    with refuses(data_files.DataFileError, 100, 101):
        downloads.fetch(str(tmp_path / "a"), "https://a.invalid/a", check=bool)
    assert os.listdir(tmp_path) == [] and limits == [60]


def test_digest_is_cached_until_the_file_changes(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("DPFL_CACHE", str(cache))
    read = []
    digest = downloads.digest
    monkeypatch.setattr(downloads, "digest", lambda p: read.append(p) or digest(p))
    path, content = tmp_path / "data", bytearray(4 * 2**20)
    path.write_bytes(content)
    remembered = functools.partial(downloads.remembered_digest, str(path))
    first = remembered()
    assert remembered() == first and len(read) == 1
    [kept] = cache.iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    # In its middle, and with the time that it had: the inode's time tells.
    times, content[2**21] = path.stat(), 1
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    changed = remembered()
    assert changed != first and len(read) == 2
    kept.write_text("{")
    assert remembered() == changed and len(read) == 3
    # What is remembered may be read by the digest's own form alone.
    key = kept.name[len("dpfl-") : -len(".cache")]
    header, arrays = cache_folder.read(key)
    cache_folder.write(key, {**header, "sha256": "0" * 63 + "\n"}, arrays)
    assert remembered() == changed and len(read) == 4
