# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import sys

import numpy as np
import pytest
import tensorflow as tf

from dpfl.tasks import digits
from dpfl.tasks.registry import load_task
from tests.refusals import refuses


@pytest.fixture(scope="module")
def task():
    return load_task("digits")


def _all_clients(task):
    return zip(*(task.clients.read(np.array([i])) for i in range(task.population)))


@pytest.fixture(scope="module")
def clients(task):
    return tuple(_all_clients(task))


def test_every_image_is_in_one_place_with_its_label(task, clients):
    def pairs(x, y):
        return [(image.tobytes(), label) for image, label in zip(x, y)]

    assert task.population == 100 and len(task.client_ids) == 100
    assert {len(y) for y in clients[1]} == {14, 15}
    held = task.test_examples()
    images, labels = digits._read_images()
    found = [pair for own in (*zip(*clients), held) for pair in pairs(*own)]
    assert sorted(found) == sorted(pairs(digits._scale(images), labels))
    share = np.bincount(held[1]) / np.bincount(labels)
    assert np.all(np.abs(share - 0.2) < 0.003)


def test_validation_and_test_sets_are_disjoint(task, clients):
    found = load_task("digits", validation_fraction=0.1)
    assert found.fingerprint != task.fingerprint
    validation, labels = found.test_examples()
    # A tenth of the four fifths that are not the test set.
    assert len(labels) == pytest.approx(0.1 * 0.8 * 1797, abs=6)
    xs, ys = _all_clients(found)
    assert sum(map(len, ys)) + len(labels) == sum(map(len, clients[1]))
    # Images of the test set are in neither; a few that are equal are in several.
    test = {x.tobytes() for x in task.test_examples()[0]}
    assert len({x.tobytes() for x in [*validation, *np.concatenate(xs)]} & test) <= 3


def test_pixels_are_between_zero_and_one_and_bilinear(clients):
    xs, _ = clients
    assert np.min(xs[0]) == 0.0 and 0.9 < np.max(np.concatenate(xs)) <= 1.0
    images, _ = digits._read_images()
    expected = tf.image.resize(images[:20, ..., None] / 16.0, (28, 28)).numpy()
    assert np.allclose(digits._scale(images[:20]), expected, atol=1e-6)


def _mean_largest_share(alpha):
    labels = digits._read_images()[1]
    rng = np.random.RandomState(0)
    parts = digits.dirichlet_partition(labels, 100, alpha, rng)
    return np.mean([np.bincount(labels[p]).max() / len(p) for p in parts])


def test_alpha_sets_how_unequal_the_labels_are():
    # A client of 18 examples: nearly one label, the default, and nearly uniform.
    assert _mean_largest_share(0.01) > 0.8
    assert 0.35 < _mean_largest_share(0.5) < 0.6
    assert _mean_largest_share(1000.0) < 0.27


def test_seeds_make_the_split_and_the_fingerprint():
    first, again = (load_task("digits", num_clients=20) for _ in range(2))
    other = load_task("digits", num_clients=20, partition_seed=1)
    assert np.array_equal(first.clients.y, again.clients.y)
    assert not np.array_equal(first.clients.y, other.clients.y)
    assert first.fingerprint == again.fingerprint != other.fingerprint
    # A run's seeds are made from it: it stays from version to version.
    assert first.fingerprint[:16] == "3b83ac45afc81d54"
    assert not first.clients_hold_test_examples


def test_more_clients_than_images_are_refused():
    with refuses(ValueError, "num_clients", 5000):
        load_task("digits", num_clients=5000)


def test_unknown_client_is_refused(task):
    with refuses(ValueError, "client_id", "nobody"):
        task.client_dataset("nobody")
    assert task.client_index(task.client_ids[7]) == 7


def test_without_scikit_learn_the_refusal_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    digits._read_images.cache_clear()
    with pytest.raises(ImportError, match="pip install scikit-learn"):
        load_task("digits")
