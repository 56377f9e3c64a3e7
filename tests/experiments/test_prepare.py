# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""`dpfl-prepare` on small files in the publishers' formats."""

import pytest

from dpfl.tasks import downloads
from tests import forks
from tests.refusals import names
from tests.tasks import test_court, test_femnist

WRITERS = {"court": test_court.write, "femnist": test_femnist.write}
COUNTED = {
    "court": f"{test_court.SPEAKERS} speakers, {test_court.SPEAKERS * 50} sentences",
    "femnist": f"{len(test_femnist.COUNTS)} writers, {sum(test_femnist.COUNTS)} images",
}
LOADERS = {"court": test_court.load, "femnist": test_femnist.load}


def prepare(folder, *words):
    """What the binary, a process of its own, prints in a folder."""
    return forks.run("experiments.prepare", *words, folder=folder)


@pytest.mark.parametrize("name", WRITERS)
def test_the_archive_and_its_digest(tmp_path, name):
    (folder := tmp_path / "data").mkdir()
    source = WRITERS[name](tmp_path / "source")
    done = prepare(folder, name, source, source)
    assert done.returncode == 0, done.stderr
    digest, path, *told = done.stdout.split()
    assert told == COUNTED[name].split()
    assert path == f"{name}.npz" and digest == downloads.digest(folder / path)
    tasks = [LOADERS[name](d) for d in (folder, source)]
    assert tasks[0].fingerprint == tasks[1].fingerprint


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("femnist", '{"users": [], "num_samples": [], "user_data": {}}', "0 writers"),
        ("court", '{"transcript": null}', "0 speakers"),
    ],
)
def test_files_without_data_make_no_archive(tmp_path, name, content, found):
    (tmp_path / "a-t01.json").write_text(content)
    (folder := tmp_path / "empty").mkdir()
    for words, parts in (((name, tmp_path), ("SOURCE", found)), ((), ("task", name))):
        done = prepare(folder, *words)
        assert done.returncode == 2 and names(done.stderr, *parts), done.stderr
    assert not list(folder.iterdir())
