# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A round of each task in JAX, on small files in the real formats."""

import contextlib
import dataclasses
import functools
import io
import sqlite3
import tarfile

import jax
import numpy as np
import pytest

from dpfl.engines.jax import networks
from dpfl.tasks import clients as clients_lib
from dpfl.tasks import docs, metrics, registry
from dpfl.training import engine
from tests.arrays.test_jax_engine import opened, plan
from tests.tasks import test_court, test_docs, test_femnist, test_mnist

WORDS = ["the", "a", "is", "code", "error"]
# Words of the vocabularies; the other tokens are special.
VOCABULARY = {"court": 20, "docs": 5, "stackoverflow": 3}
SMALL = {"sequence_length": 6, "embedding_size": 3, "lstm_size": 4}


def message(number, content):
    """A field of a protocol buffer that holds bytes, with a length of two bytes."""
    size = len(content)
    return bytes([8 * number + 2, size & 127 | 128, size >> 7]) + content


def record(**fields):
    """A serialized `tf.train.Example` of texts, integers and floats."""
    entries = b""
    for name, (kind, content) in fields.items():
        values = message(kind, message(1, content))
        entry = message(1, name.encode()) + message(2, values)
        entries += message(1, entry)
    return message(1, entries)


def characters(rng, count):
    for label in rng.integers(62, size=count):
        pixels = rng.uniform(size=784).astype("<f4").tobytes()
        yield record(pixels=(2, pixels), label=(3, bytes([label])))


def posts(rng, count):
    for length in rng.integers(1, 9, count):
        words = " ".join(rng.choice([*WORDS, "c#"], length))
        yield record(tokens=(1, words.encode()))


SCHEMA = """
CREATE TABLE examples (split_name TEXT, client_id TEXT, serialized_example_proto BLOB);
CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, num_examples INTEGER);
CREATE INDEX by_client ON examples (client_id, split_name);
"""


def write_sql(path, draw, splits):
    """Writes splits of a number of clients with so many examples each, on average."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(SCHEMA)
        for number, (split, (clients, size)) in enumerate(splits.items()):
            for client in range(clients):
                own = np.random.default_rng([0, number, client])
                count = int(own.integers(size - size // 2, size + size // 2 + 1))
                name = f"f{client:07d}"
                rows = [(split, name, each) for each in draw(own, count)]
                connection.executemany("INSERT INTO examples VALUES (?, ?, ?)", rows)
                sizes = "INSERT INTO client_metadata VALUES (?, ?, ?)"
                connection.execute(sizes, (name, split, count))


def write_emnist(folder, clients, examples):
    splits = {"all_train": (clients, examples), "all_test": (3, 2)}
    write_sql(folder / "emnist_all.sqlite", characters, splits)


def emnist(folder):
    write_emnist(folder, 3, 4)
    return of_files("emnist", folder, model="2nn")


def write_stackoverflow(folder, words, clients, examples):
    splits = {"train": (clients, examples), "test": (2, 3)}
    write_sql(folder / "stackoverflow.sqlite", posts, splits)
    counts = "".join(f"{word} {9 + i}\n" for i, word in enumerate(words)).encode()
    (folder / "datasets").mkdir()
    path = folder / "datasets/stackoverflow.word_count.tar.bz2"
    with tarfile.open(path, "w:bz2") as archive:
        member = tarfile.TarInfo("stackoverflow.word_count")
        member.size = len(counts)
        archive.addfile(member, io.BytesIO(counts))


def stackoverflow(folder):
    write_stackoverflow(folder, WORDS, 3, 4)
    return of_files("stackoverflow", folder, vocab_size=3, **SMALL)


def of_files(name, folder, **options):
    own = {"data_dir": str(folder), "allow_partial_data": True}
    return registry.load_task(name, **own, **options)


def of_docs(folder):
    config = test_docs._small(embedding_size=3, batch_size=20)
    return docs.load(config, test_docs._library(folder))


def digits(folder):
    pytest.importorskip("sklearn")
    return registry.load_task("digits", num_clients=500, batch_size=20)


def of_mnist(folder):
    test_mnist.write(folder)
    return test_mnist.load(folder, batch_size=20, model="2nn")


TASKS = {
    "court": lambda folder: test_court.load(test_court.write(folder), batch_size=20),
    "digits": digits,
    "docs": of_docs,
    "emnist": emnist,
    "femnist": lambda folder: test_femnist.load(
        test_femnist.write(folder), model="2nn", batch_size=25
    ),
    "mnist": of_mnist,
    "stackoverflow": stackoverflow,
    "synthetic": lambda folder: registry.load_task(
        "synthetic", model="2nn", hidden_units=9, examples_per_client=10
    ),
}


def test_every_task_is_here():
    # Fashion is mnist with other files.
    assert TASKS.keys() == registry.TASKS.keys() - {"fashion"}


@pytest.mark.parametrize("name", TASKS)
def test_a_round_of_a_task_has_its_metrics(tmp_path, name):
    task = TASKS[name](tmp_path)
    made = dataclasses.replace(plan(rounds=1), task=task)
    chosen = [0, 2]
    with opened(made, tmp_path) as trainer:
        state = trainer.initialize()
        first = trainer.weights(state)
        x, y = task.test_examples()
        found = trainer.evaluate(state, True)
        assert found == pytest.approx(metrics_of(task, first, x, y), rel=1e-5)
        if task.test_owners is not None:
            logits = functools.partial(engine.logits_of("jax", task), first)
            whole = metrics.by_client(task, "accuracy", [logits])
            of_all = whole.sums.sum() / whole.counts.sum()
            assert of_all == pytest.approx(found["accuracy"], rel=1e-5)
        output = trainer.round(state, chosen)
        orders = clients_lib.local_orders(
            task.clients.sizes, np.array(chosen), 0, task.config
        )
        # One batch a client, so that its metrics are those of the first weights.
        assert max(map(len, orders)) <= task.config.batch_size
        if not task.draws_in_training:
            parts = [task.clients.read(np.array([client])) for client in chosen]
            x, y = (
                np.concatenate([p[i][o] for p, o in zip(parts, orders)]) for i in (0, 1)
            )
            wanted = metrics_of(task, first, x, y)
            assert output.train == pytest.approx(wanted, rel=1e-5)
        moved = trainer.weights(output.state)
        assert all(np.isfinite(part).all() for part in moved)
        assert not np.array_equal(moved[-1], first[-1])


def metrics_of(task, weights, x, y):
    """The metrics as TFF's engine defines them, in numpy."""
    x = task.to_input(x) if task.to_input else x
    with jax.default_matmul_precision("highest"):
        logits = np.asarray(networks.apply(task.network, weights, x), np.float64)
    learned = scored = np.ones(y.shape, bool)
    if task.name in VOCABULARY:
        learned, scored = y > 0, (y > 0) & (y <= VOCABULARY[task.name])
    logits = logits - logits.max(-1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    losses = -np.take_along_axis(log_p, y[..., np.newaxis], -1)[..., 0]
    hits = logits.argmax(-1) == y
    return {"loss": losses[learned].mean(), "accuracy": hits[scored].mean()}
