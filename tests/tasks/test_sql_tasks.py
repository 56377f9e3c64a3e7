# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""`emnist` and `stackoverflow` on small files in the real formats."""

import collections
import dataclasses
import functools
import hashlib
import lzma
import os
import shutil
import sqlite3

import numpy as np
import pytest
import tensorflow as tf

from dpfl.tasks import clients, configs, data_files, emnist, text
from dpfl.tasks.registry import load_task
from tests.refusals import refuses
from tests.tasks import test_word_counts

EMNIST_CLIENTS = 5
WORDS = ["the", "a", "is", "code", "error", "c#"]
POSTS = ["the code is a error", "unheard words is"]
POSTS += ["c# code a the is error the code is a a a a a a", "is"]


def _emnist_examples(split, client):
    rng = np.random.RandomState(10 * client + (split == "all_test"))
    count = 2 if split == "all_test" else 3 + 4 * client
    return collections.OrderedDict(
        label=rng.randint(0, 62, count).astype(np.int32),
        pixels=rng.uniform(size=(count, 28, 28)).astype(np.float32),
    )


def _stackoverflow_examples(split, client):
    posts = POSTS[: 2 + client] if split == "train" else POSTS[::-1]
    columns = {
        name: [f"{name} {i}" for i in range(len(posts))]
        for name in ("creation_date", "score", "tags", "title", "tokens", "type")
    }
    own = {"score": np.arange(len(posts), dtype=np.int64), "tokens": posts}
    return collections.OrderedDict({**columns, **own})


def _save(path, splits, clients, examples):
    """Writes with TFF's own writer, a file per split, merged into one."""
    from tensorflow_federated import simulation

    for split in splits:
        part = f"{path}.{split}"
        simulation.datasets.save_to_sql_client_data(
            [f"f{c:03d}" for c in range(clients)],
            lambda c, split=split: tf.data.Dataset.from_tensor_slices(
                examples(split, int(c[1:]))
            ),
            part,
            split_names_by_client_id={f"f{c:03d}": split for c in range(clients)},
        )
        if not os.path.exists(path):
            os.rename(part, path)
            continue
        connection = sqlite3.connect(path)
        connection.execute("ATTACH ? AS part", (part,))
        for table in ("examples", "client_metadata"):
            connection.execute(f"INSERT INTO {table} SELECT * FROM part.{table}")
        connection.commit()
        connection.close()
        os.remove(part)


def _counts(splits, clients, examples):
    def count(split, client):
        return len(next(iter(examples(split, client).values())))

    return {s: (clients, sum(count(s, c) for c in range(clients))) for s in splits}


EMNIST_FILE = data_files.SqlFile(
    name="emnist_all.sqlite",
    url=emnist.FILE.url,
    splits=_counts(["all_train", "all_test"], EMNIST_CLIENTS, _emnist_examples),
)


@pytest.fixture(scope="module")
def emnist_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("emnist")
    path = str(folder / "emnist_all.sqlite")
    _save(path, ["all_train", "all_test"], EMNIST_CLIENTS, _emnist_examples)
    return folder


@pytest.fixture
def emnist_copy(emnist_folder, tmp_path):
    shutil.copy(emnist_folder / "emnist_all.sqlite", tmp_path)
    return tmp_path / "emnist_all.sqlite"


@pytest.fixture(scope="module")
def stackoverflow_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stackoverflow")
    path = str(folder / "stackoverflow.sqlite")
    _save(path, ["train", "test"], 3, _stackoverflow_examples)
    test_word_counts.pack(folder, "".join(f"{word} 9\n" for word in WORDS))
    return folder


def _emnist(folder, file=EMNIST_FILE, **options):
    return emnist.load(configs.EmnistConfig(data_dir=str(folder), **options), file)


_refused = functools.partial(refuses, data_files.DataFileError)


def _examples(dataset):
    batches = list(dataset)
    return tuple(np.concatenate([b[i].numpy() for b in batches]) for i in (0, 1))


def test_emnist_equals_tff_s_data(emnist_folder):
    from tensorflow_federated import simulation

    task = _emnist(emnist_folder)
    train, _ = simulation.datasets.emnist.load_data(
        only_digits=False, cache_dir=str(emnist_folder)
    )
    assert list(task.client_ids) == train.client_ids
    for index, client in enumerate(task.client_ids):
        x, y = task.clients.read(np.array([index]))
        theirs = list(train.create_tf_dataset_for_client(client))
        assert np.array_equal(x[..., 0], [e["pixels"] for e in theirs])
        assert np.array_equal(y, [e["label"] for e in theirs])


def test_clients_read_without_tensorflow_have_the_same_examples(
    emnist_folder, stackoverflow_folder
):
    for task in (_emnist(emnist_folder), _stackoverflow(stackoverflow_folder)):
        every = np.arange(task.population)
        orders = clients.local_orders(task.clients.sizes, every, 2, task.config)
        for index, order in list(enumerate(orders))[::2]:
            x, y = task.clients.read(np.array([index]))
            theirs = _examples(task.dataset_from_index(index, 2))
            assert np.array_equal(x[order], theirs[0])
            assert np.array_equal(y[order], theirs[1])
        assert task.clients_hold_test_examples
        found = _examples(task.evaluation_dataset())
        assert all(map(np.array_equal, found, task.test_examples()))
        x, y = task.clients.read(every)
        assert len(x) == len(y) == task.clients.sizes.sum()


def test_emnist_evaluation_set_is_the_whole_test_split(emnist_folder):
    x, y = _emnist(emnist_folder).test_examples()
    parts = [_emnist_examples("all_test", c) for c in range(EMNIST_CLIENTS)]
    assert np.array_equal(y, np.concatenate([p["label"] for p in parts]))
    assert np.allclose(x[..., 0], np.concatenate([p["pixels"] for p in parts]))
    names = [f"f{c:03d}" for c in range(EMNIST_CLIENTS) for _ in range(2)]
    assert [*_emnist(emnist_folder).test_owners()] == names


def test_a_capped_evaluation_set_is_spread_over_clients(emnist_folder):
    task = _emnist(emnist_folder, max_test_examples=5)
    _, y = task.test_examples()
    first = [_emnist_examples("all_test", c)["label"][0] for c in range(5)]
    assert sorted(y) == sorted(first)
    assert [*y] == [first[int(name[1:])] for name in task.test_owners()]


def test_missing_file_error_names_file_folder_and_remedies(tmp_path):
    folder = str(tmp_path / "none")
    parts = "data_dir", "emnist_all.sqlite", folder, emnist.FILE.url, "download"
    with _refused(*parts):
        load_task("emnist", data_dir=folder)
    assert not os.path.exists(folder)


def test_partial_file_needs_a_flag(emnist_folder):
    found = "5 clients", "55 examples", "all_train"
    with _refused(*found, 3400, 671585, "allow_partial_data"):
        load_task("emnist", data_dir=str(emnist_folder))
    task = load_task("emnist", data_dir=str(emnist_folder), allow_partial_data=True)
    assert task.population == 5


def _change(path, statement):
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


NO_TEST = "DELETE FROM client_metadata WHERE split_name = 'all_test'"
OF_BYTES = "UPDATE client_metadata SET client_id = CAST(client_id AS BLOB)"


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize(
    "spoiled, parts",
    [
        # A share of the file, other content, or statements.
        *((kept, ()) for kept in (0.999, 0.5, 0.01)),
        *((content, ()) for content in (b"", b"<html>not found</html>", bytes(5000))),
        ((NO_TEST,), ("0 clients", "all_test")),
        ((OF_BYTES,), ("a client's name",)),
    ],
)
def test_a_damaged_file_is_refused_even_if_partial(
    emnist_copy, spoiled, parts, partial
):
    if isinstance(spoiled, tuple):
        for statement in spoiled:
            _change(emnist_copy, statement)
    else:
        if isinstance(spoiled, float):
            whole = emnist_copy.read_bytes()
            spoiled = whole[: int(spoiled * len(whole))]
        emnist_copy.write_bytes(spoiled)
    with _refused("emnist_all.sqlite", *parts):
        _emnist(emnist_copy.parent, allow_partial_data=partial)


def test_fingerprint_follows_the_data(emnist_copy, emnist_folder):
    before = _emnist(emnist_folder).fingerprint
    assert _emnist(emnist_copy.parent).fingerprint == before
    _change(emnist_copy, "DELETE FROM examples WHERE rowid = 7")
    assert _emnist(emnist_copy.parent).fingerprint != before


def test_download_is_the_published_file(emnist_copy, tmp_path):
    content = lzma.compress(emnist_copy.read_bytes())
    (packed := tmp_path / "emnist_all.sqlite.lzma").write_bytes(content)
    file = dataclasses.replace(EMNIST_FILE, url=packed.as_uri())
    digest = hashlib.sha256(content).hexdigest()
    wrong, right = (
        dataclasses.replace(file, packed_sha256=each) for each in ("0" * 64, digest)
    )
    with _refused("0" * 64, digest):
        _emnist(tmp_path / "a", wrong, download=True)
    assert _emnist(tmp_path / "b", wrong, download=True, allow_partial_data=True)
    assert _emnist(tmp_path / "c", right, download=True).population == 5
    packed.unlink()
    assert _emnist(tmp_path / "c", right, download=True).population == 5
    more = dataclasses.replace(file, splits={**file.splits, "all_test": (6, 99)})
    with _refused("5 clients", 6, 99):
        _emnist(tmp_path / "c", more)


def test_relative_folder_becomes_absolute_for_workers(emnist_copy, monkeypatch):
    monkeypatch.chdir(emnist_copy.parent)
    config = configs.EmnistConfig(data_dir=".")
    assert data_files.find_sql_file(EMNIST_FILE, config) == str(emnist_copy)


def _stackoverflow(folder, **options):
    options = dict(vocab_size=6, sequence_length=8, lstm_size=4) | options
    return load_task(
        "stackoverflow", data_dir=str(folder), allow_partial_data=True, **options
    )


def test_stackoverflow_tokens_equal_tff_s(stackoverflow_folder):
    from tensorflow_federated.python.simulation.baselines.stackoverflow import (
        word_prediction_preprocessing as theirs,
    )

    task = _stackoverflow(stackoverflow_folder)
    to_ids = theirs.build_to_ids_fn(WORDS, max_sequence_length=8)
    assert task.client_ids == ("f000", "f001", "f002")
    for c in range(3):
        x, y = task.clients.read(np.array([c]))
        for row, label, post in zip(x, y, POSTS[: 2 + c]):
            expected = to_ids({"tokens": tf.constant(post)}).numpy()
            expected = np.pad(expected, (0, 9 - len(expected)))
            assert np.array_equal(row, expected[:-1])
            assert np.array_equal(label, expected[1:])
    special = theirs.get_special_tokens(6)
    tokens = text.Tokens(6)
    assert (special.padding, special.out_of_vocab) == (tokens.padding, [tokens.unknown])
    ends = special.beginning_of_sentence, special.end_of_sentence
    assert ends == (tokens.begin, tokens.end)
    x, _ = task.test_examples()
    assert x.shape == (12, 8) and x.dtype == np.int32
