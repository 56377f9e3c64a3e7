# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import gc
import os
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from dpfl.engines.tff import datasets
from dpfl.engines.tff.shared_memory import SharedArray
from dpfl.tasks import load_task
from dpfl.tasks import task as task_lib
from dpfl.tasks.clients import ArrayClients, local_orders
from dpfl.tasks.configs import TaskConfig
from tests.refusals import refuses

X = np.arange(30, dtype=np.float32).reshape(10, 3)
Y = np.arange(10, dtype=np.int32)
SIZES = [1, 6, 3]


def _labels(dataset):
    return [y.numpy().tolist() for _, y in dataset]


def _flat(dataset):
    return [label for batch in _labels(dataset) for label in batch]


def _datasets(**options):
    own = ArrayClients(X, Y, np.array(SIZES))
    task = SimpleNamespace(clients=own, config=TaskConfig(**options), to_input=None)
    return datasets.from_index(task)


def test_each_client_has_its_own_rows():
    build = _datasets(shuffle_seed=None, batch_size=4)
    batches = [_labels(build(i)) for i in range(3)]
    assert batches == [[[0]], [[1, 2, 3, 4], [5, 6]], [[7, 8, 9]]]
    for x, y in build(1):
        assert np.array_equal(x, X[y])


def test_clients_of_another_class_have_the_same_batches():
    task = load_task("digits", num_clients=3)
    own = task.clients
    other = SimpleNamespace(sizes=own.sizes, read=own.read)
    found = list(dataclasses.replace(task, clients=other).dataset_from_index(1, 2))
    expected = list(task.dataset_from_index(1, 2))
    assert len(found) == len(expected) > 1
    for pair in zip(found, expected):
        for part, same in zip(*pair):
            np.testing.assert_array_equal(part, same)


def test_every_pass_is_a_fresh_shuffle_of_all_examples():
    labels = _flat(_datasets(client_epochs=3)(1))
    passes = [labels[i : i + 6] for i in (0, 6, 12)]
    assert all(sorted(p) == [1, 2, 3, 4, 5, 6] for p in passes)
    assert len({tuple(p) for p in passes}) > 1


def test_cap_is_per_pass_and_drawn_from_all_examples():
    build = _datasets(max_examples_per_client=2, client_epochs=2)
    assert len(_flat(build(1))) == 4
    assert len(_flat(build(0))) == 2
    seen = {label for r in range(20) for label in _flat(build(1, r))}
    assert seen == {1, 2, 3, 4, 5, 6}


def test_order_is_a_function_of_seed_client_and_round():
    def order(seed, round_index):
        return _flat(_datasets(shuffle_seed=seed)(1, round_index))

    assert order(3, 5) == order(3, 5)
    assert len({tuple(order(3, r)) for r in range(6)}) > 3
    assert len({tuple(order(s, 5)) for s in range(6)}) > 3


def test_no_seed_keeps_the_stored_order():
    build = _datasets(shuffle_seed=None, client_epochs=2)
    assert _flat(build(2, 7)) == [7, 8, 9, 7, 8, 9]


def test_shuffle_is_uniform():
    orders = np.array(local_orders(np.full(1200, 6), np.arange(1200), 0, TaskConfig()))
    counts = np.array([np.bincount(column, minlength=6) for column in orders.T])
    # Each count is binomial with mean 200 and standard deviation 12.9.
    assert np.all(np.abs(counts - 200) < 4 * 12.9)


def test_traced_dataset_gives_equal_batches():
    build = _datasets(client_epochs=2, batch_size=4)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        index = tf.compat.v1.placeholder(tf.int64, [])
        round_index = tf.compat.v1.placeholder(tf.int64, [])
        batches = build(index, round_index).batch(1)
        total = batches.reduce(
            tf.zeros([0], tf.int32), lambda old, b: tf.concat([old, b[1][0]], 0)
        )
        found = [session.run(total, {index: i, round_index: 4}) for i in range(3)]
    assert [f.tolist() for f in found] == [_flat(build(i, 4)) for i in range(3)]


def test_sizes_must_add_up():
    with refuses(ValueError, "sizes", 10, 9):
        ArrayClients(X, Y, np.array([4, 5]))


@pytest.mark.parametrize("options", [{}, {"max_examples_per_client": 2}])
def test_orders_of_graphs_are_those_of_numpy(options):
    config = TaskConfig(client_epochs=2, shuffle_seed=2**62, **options)
    sizes = np.array([5, 0, 1, 300])
    orders = local_orders(sizes, np.arange(4), 7, config)
    for index, order in enumerate(orders):
        count = tf.constant(sizes[index], tf.int64)
        theirs = datasets.local_order(count, config, index, 7)
        assert np.array_equal(order, theirs)


def test_fraction_leaving_no_data_is_refused():
    task_lib.check_split("test_fraction", 0.5, 1, 1)
    for counts, purpose in (((0, 4), "train"), ((4, 0), "test")):
        with refuses(ValueError, "test_fraction", purpose, 1e-9):
            task_lib.check_split("test_fraction", 1e-9, *counts)


LARGE = np.arange(30_000, dtype=np.int32).reshape(10_000, 3)


@pytest.mark.parametrize("array", [LARGE, LARGE[:5], LARGE[::2], LARGE.astype("f4")])
def test_graphs_and_eager_code_see_the_array(array):
    shared = SharedArray(array)
    assert len(shared) == len(array)
    assert np.array_equal(shared.tensor(), array)
    row = tf.function(lambda i: tf.gather(shared.tensor(), i), autograph=False)
    assert np.array_equal(row(tf.constant([1, 4])), array[[1, 4]])


def test_graph_does_not_embed_the_array():
    shared = SharedArray(LARGE)
    graph = tf.function(lambda: shared.tensor() + 1, autograph=False)
    size = graph.get_concrete_function().graph.as_graph_def().ByteSize()
    assert size < 5_000 < LARGE.nbytes


def test_graph_outlives_its_array_and_reads_no_other():
    first = tf.function(SharedArray(LARGE).tensor, autograph=False)
    graph = first.get_concrete_function()
    del first
    gc.collect()
    others = [SharedArray(LARGE + k) for k in (1, 2)]
    assert np.array_equal(graph(), LARGE)
    assert np.array_equal(others[1].tensor(), LARGE + 2)


def test_equal_arrays_are_stored_once():
    kept = SharedArray(LARGE)
    before = len(os.listdir("/proc/self/fd"))
    again = SharedArray(LARGE.copy())
    assert len(os.listdir("/proc/self/fd")) == before
    assert np.array_equal(kept.tensor(), again.tensor())


@pytest.mark.parametrize("kind", ["f4", "S", "O"])
def test_sample_digest_depends_on_client_data(kind):
    task = load_task("synthetic", num_clients=6, examples_per_client=7)

    def changed(amount):
        x, y = task.clients.read(np.arange(task.population))
        x[-1] += amount
        x = x.astype(kind)
        clients = ArrayClients(x, y, task.clients.sizes)
        return dataclasses.replace(task, clients=clients).sample_digest

    assert changed(0.0) == changed(0.0) != changed(1.0)
    assert (changed(0.0) == task.sample_digest) == (kind == "f4")
