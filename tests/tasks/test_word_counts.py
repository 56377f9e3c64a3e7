# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The vocabulary of `stackoverflow`, from a packed file of words and counts."""

import dataclasses
import hashlib
import io
import os
import tarfile

import pytest

from dpfl.tasks import configs, data_files, stackoverflow
from tests.refusals import refuses

PLACE = "datasets/stackoverflow.word_count.tar.bz2"


def pack(folder, content, **changes):
    """Packs lines; changes are those of the archive's member."""
    path = folder / PLACE
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w:bz2") as archive:
        member = tarfile.TarInfo("stackoverflow.word_count")
        member.size = len(content.encode())
        for name, value in changes.items():
            setattr(member, name, value)
        archive.addfile(member, io.BytesIO(content.encode()))
    return path


def vocabulary(folder, *file, **options):
    options = {"vocab_size": 3, "allow_partial_data": True, **options}
    config = configs.StackOverflowConfig(data_dir=str(folder), **options)
    return stackoverflow.read_vocabulary(config, *file)


@pytest.mark.parametrize(
    "content, found",
    [
        ("the 9\na 8\nis 7", ["the", "a", "is"]),
        ("the 9\r\na 8\r\nis 7\r\n", ["the", "a", "is"]),
        # TFF reads lines that end in newlines alone.
        ("the 9\na\u2028b 8\nis 7\n", ["the", "a\u2028b", "is"]),
        ("the 9\na\x85b 8\n\x0c 7\n", ["the", "a\x85b", "\x0c"]),
        ("the\t9\na   8\n is 7 \n", ["the", "a", "is"]),
    ],
)
def test_word_counts_are_a_word_a_line(tmp_path, content, found):
    pack(tmp_path, content)
    assert vocabulary(tmp_path) == found


@pytest.mark.parametrize(
    "content",
    [
        *("the 9\n\nis 7\nof 6\n", "the 9\na b 8\nis 7\n", "the 9\na eight\nis 7\n"),
        *("9\na 8\nis 7\n", "the 9\na 8\nthe 7\n", "the 9\na -8\nis 7\n", ""),
    ],
)
def test_malformed_word_counts_are_refused(tmp_path, content):
    pack(tmp_path, content)
    found = 0 if not content else 2
    wanted = ("vocab_size", found, 3, "word_count")
    with refuses(data_files.DataFileError, *wanted):
        vocabulary(tmp_path)


def test_damaged_archives_are_refused(tmp_path):
    path = pack(tmp_path, "the 9\na 8\nis 7\n")
    with refuses(data_files.DataFileError, path, "SHA-256"):
        vocabulary(tmp_path, allow_partial_data=False)
    path.write_bytes(path.read_bytes()[:-20])
    with refuses(data_files.DataFileError, path):
        vocabulary(tmp_path)
    pack(tmp_path, "", name="other")
    with refuses(data_files.DataFileError, path):
        vocabulary(tmp_path)


def test_word_counts_are_downloaded_on_request(tmp_path):
    source = pack(tmp_path, "the 9\na 8\nis 7\n")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    words = dataclasses.replace(
        stackoverflow.WORD_COUNTS, url=source.as_uri(), sha256=digest
    )
    (folder := tmp_path / "new").mkdir()
    given = {"allow_partial_data": False}
    with refuses(data_files.DataFileError, folder / "datasets", source.as_uri()):
        vocabulary(folder, words, **given)
    assert vocabulary(folder, words, download=True, **given) == ["the", "a", "is"]
    assert os.listdir(folder / "datasets") == [os.path.basename(PLACE)]
    assert vocabulary(folder, words, vocab_size=2, **given) == ["the", "a"]
