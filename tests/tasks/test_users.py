# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from dpfl.tasks import task as task_lib
from dpfl.tasks import users
from dpfl.tasks.networks import Dense, Flatten, Network
from tests.refusals import refuses

DEFAULTS = task_lib.TrainingDefaults(0.1, 0.5, 0.1, cohort_size=2, rounds=3)


def made(folder, **arrays):
    """The data of an npz; arrays that are None are left out."""
    x = np.arange(48, dtype=np.float64).reshape(12, 4)
    usual = {"x": x, "y": np.arange(12) % 3, "users": list("bababababzab")}
    given = {k: v for k, v in {**usual, **arrays}.items() if v is not None}
    np.savez(folder / "users.npz", **given)
    return users.read(folder / "users.npz")


def loaded(data, **options):
    network = Network(data.x.shape[1:], np.float32, (Flatten(), Dense(3)))
    return users.load("mine", data, network, DEFAULTS, users.UsersConfig(**options))


def test_examples_are_sorted_by_user(tmp_path):
    data = made(tmp_path)
    assert data.names == ("a", "b", "z") and data.sizes.tolist() == [5, 6, 1]
    assert data.x.dtype == np.float32 and data.num_classes == 3
    assert (data.x[:, 0] / 4).tolist() == [1, 3, 5, 7, 10, 0, 2, 4, 6, 8, 11, 9]


def test_held_out_examples_are_a_share_of_each_user_s(tmp_path):
    data = made(tmp_path)
    task = loaded(data, test_fraction=0.4)
    # Two of five and of six, and none of who has but one.
    assert task.clients.sizes.tolist() == [3, 4, 1]
    assert task.clients_hold_test_examples
    test = task.test_examples()[0]
    x, _ = task.clients.read(np.arange(3))
    rows = np.concatenate([x, test])
    assert sorted(rows[:, 0]) == sorted(data.x[:, 0]) and len(test) == 4
    named = dict(zip(data.x[:, 0], np.repeat(data.names, data.sizes)))
    assert [*task.test_owners()] == [named[value] for value in test[:, 0]]
    # A validation set has others, and the test set is not looked at.
    tuned = loaded(data, test_fraction=0.4, validation_fraction=0.5)
    found = {*tuned.test_examples()[0][:, 0]}
    assert tuned.clients.sizes.tolist() == [1, 2, 1] and len(found) == 4
    assert not found & {*test[:, 0]} and tuned.fingerprint != task.fingerprint
    assert loaded(data, test_fraction=0.9).clients.sizes.tolist() == [1, 1, 1]
    assert loaded(data, partition_seed=1).fingerprint != loaded(data).fingerprint
    # A run's seeds are made from it: it stays from version to version.
    assert loaded(data).fingerprint[:16] == "078594e9bd85ef27"


def test_a_given_test_set_belongs_to_nobody(tmp_path):
    data = made(tmp_path, x_test=np.ones([2, 4]), y_test=[4, 0])
    task = loaded(data)
    assert data.num_classes == 5 and task.clients.sizes.tolist() == [5, 6, 1]
    assert not task.clients_hold_test_examples
    assert task.test_examples()[1].tolist() == [4, 0] and task.test_owners is None
    tuned = loaded(data, validation_fraction=0.4)
    assert tuned.clients_hold_test_examples and len(tuned.test_examples()[1]) == 4


def test_pictures_of_bytes_become_numbers_when_they_are_used(tmp_path):
    data = made(tmp_path, x=np.full([12, 4, 5], 51, np.uint8))
    task = loaded(data)
    for data in (task.client_dataset("z"), task.evaluation_dataset()):
        [(x, y)] = data
        assert x.shape == (1, 4, 5, 1) and y.shape == (1,)
        assert x.numpy() == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("arrays", "parts"),
    [
        ({"x": None}, ["x", "users"]),
        ({"counts": [12]}, ["counts"]),
        ({"users": None}, ["users"]),
        ({"more": [1]}, ["more"]),
        ({"x_test": np.ones([2, 4])}, ["x_test", "y_test"]),
        ({"x_test": np.ones([2, 3]), "y_test": [0, 1]}, ["x_test", 3, 4]),
        ({"x": np.ones(12)}, ["x", "[12]"]),
        ({"x": np.ones([0, 4])}, ["x", "[0, 4]"]),
        ({"x": np.full([12, 4], np.nan)}, ["x", "finite"]),
        ({"x": np.full([12, 4], 1e39)}, ["x", "finite"]),
        ({"x": np.full([12, 4], "a")}, ["x", "<U1"]),
        ({"y": np.ones(12)}, ["y", "float64"]),
        ({"y": np.arange(11)}, ["y", 12, "[11]"]),
        ({"y": np.arange(12) - 1}, ["y", 0, 999999]),
        ({"users": np.ones(11, int)}, ["users", 12, 11]),
        ({"users": np.array([{}] * 12)}, ["users.npz"]),
    ],
)
def test_other_arrays_are_refused(tmp_path, arrays, parts):
    with refuses(ValueError, *parts):
        made(tmp_path, **arrays)


def test_a_user_of_one_example_leaves_none_to_test_on(tmp_path):
    data = made(tmp_path, users=np.arange(12))
    with refuses(ValueError, "test_fraction", 0.1):
        loaded(data)
