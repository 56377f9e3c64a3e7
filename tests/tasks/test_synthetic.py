# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from dpfl.tasks.registry import load_task


@pytest.mark.parametrize(
    "model, count",
    [("cnn", 1_018_174), ("2nn", 209_662), ("lstm", 4_050_748), ("small_cnn", 15_994)],
)
def test_paper_size_shapes(model, count):
    task = load_task("synthetic", model=model, num_clients=50, examples_per_client=45)
    assert task.benchmark_only and not task.clients_hold_test_examples
    assert task.dimension == count
    batches = list(task.client_dataset(task.client_ids[-1]))
    assert [len(y) for _, y in batches] == [20, 20, 5]
    for part, spec in zip(batches[0], task.element_spec):
        assert part.dtype == spec.dtype and part.shape[1:] == spec.shape[1:]
    x, y = batches[0]
    logits = task.build_keras_model(0)(x)
    assert logits.shape[:-1] == y.shape
    assert 0 <= np.min(y) and np.max(y) < logits.shape[-1]


def test_examples_are_a_function_of_the_client():
    def labels(index):
        task = load_task("synthetic", shuffle_seed=None, examples_per_client=20)
        (batch,) = task.dataset_from_index(index)
        return batch[1].numpy().tolist()

    assert labels(5) == labels(5) != labels(6)


def test_any_number_of_clients():
    task = load_task("synthetic", num_clients=1_000_000, examples_per_client=1)
    assert task.population == 1_000_000
    assert len(list(task.client_dataset("client_999999"))) == 1


def test_fingerprint_follows_the_shape():
    prints = {
        load_task("synthetic", num_clients=n, model=m).fingerprint
        for n in (3, 4)
        for m in ("cnn", "2nn")
    }
    assert len(prints) == 4
