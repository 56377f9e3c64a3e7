# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""`dpfl-prepare` on small files in the publishers' formats."""

import pytest

from dpfl.tasks import downloads
from experiments import prepare
from tests.refusals import refuses
from tests.tasks import test_court, test_femnist

WRITERS = {"court": test_court.write, "femnist": test_femnist.write}
COUNTED = {
    "court": f"{test_court.SPEAKERS} speakers, {test_court.SPEAKERS * 50} sentences",
    "femnist": f"{len(test_femnist.COUNTS)} writers, {sum(test_femnist.COUNTS)} images",
}
LOADERS = {"court": test_court.load, "femnist": test_femnist.load}


@pytest.fixture(autouse=True)
def parsed():
    yield
    prepare.flags.FLAGS.unparse_flags()


def main(*words):
    prepare.main(prepare.flags.FLAGS(["dpfl-prepare", *map(str, words)]))


@pytest.mark.parametrize("name", prepare.SOURCES)
def test_the_archive_and_its_digest(tmp_path, monkeypatch, capsys, name):
    (folder := tmp_path / "data").mkdir()
    source = WRITERS[name](tmp_path / "source")
    monkeypatch.chdir(folder)
    main(name, source, source)
    digest, path, *told = capsys.readouterr().out.split()
    assert told == COUNTED[name].split()
    assert path == f"{name}.npz" and digest == downloads.digest(path)
    tasks = [LOADERS[name](d) for d in (folder, source)]
    assert tasks[0].fingerprint == tasks[1].fingerprint


def test_refusals_come_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words, parts in (
        ((), ("task", "femnist")),
        (("emnist", tmp_path), ("task", "emnist")),
        (("femnist",), ("SOURCE", "femnist")),
        (("femnist", tmp_path / "none"), ("SOURCE", tmp_path / "none")),
        (("femnist", tmp_path, "--output=a.npy"), ("--output", ".npz", "a.npy")),
        (("femnist", tmp_path, "--output="), ("--output",)),
    ):
        with refuses(ValueError, *parts):
            main(*words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("femnist", '{"users": [], "num_samples": [], "user_data": {}}', "0 writers"),
        ("court", '{"transcript": null}', "0 speakers"),
    ],
)
def test_files_without_data_make_no_archive(
    tmp_path, monkeypatch, name, content, found
):
    (tmp_path / "a-t01.json").write_text(content)
    (folder := tmp_path / "empty").mkdir()
    monkeypatch.chdir(folder)
    with refuses(ValueError, "SOURCE", found):
        main(name, tmp_path)
    assert not list(folder.iterdir())
