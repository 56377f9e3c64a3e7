# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A made-up file is read as the published one is, and can be learned."""

import numpy as np
import pytest

from dpfl.tasks import data_files, load_task
from tests.refusals import names
from tools import rehearse


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("rehearsal")
    rehearse.write_emnist(path, clients=12, examples=60)
    return path


def everything(task):
    batches = [b for c in task.client_ids for b in task.client_dataset(c)]
    return [np.concatenate([batch[i].numpy() for batch in batches]) for i in (0, 1)]


def test_synthetic_emnist_is_readable_by_tff_and_indexed(folder, monkeypatch):
    from tensorflow_federated import simulation

    monkeypatch.setattr(data_files, "_MOST_BYTES_WITHOUT_INDEX", 1)
    options = {"allow_partial_data": True, "shuffle_seed": None, "verify": "full"}
    task = load_task("emnist", data_dir=str(folder), **options)
    train, test = simulation.datasets.emnist.load_data(
        only_digits=False, cache_dir=str(folder)
    )
    assert list(task.client_ids) == train.client_ids == test.client_ids
    theirs = list(train.create_tf_dataset_for_client("f0000003"))
    x, y = (np.concatenate(p) for p in zip(*task.client_dataset("f0000003")))
    assert 30 <= len(theirs) == len(y) <= 90
    assert y.tolist() == [int(each["label"]) for each in theirs]
    np.testing.assert_array_equal(x[..., 0], [each["pixels"] for each in theirs])


def test_emnist_can_be_learned(folder):
    task = load_task("emnist", data_dir=str(folder), allow_partial_data=True)
    x, y = everything(task)
    assert x.min() >= 0 and x.max() <= 1
    means = {label: x[y == label].mean(0) for label in set(y.tolist())}
    tests = list(task.evaluation_dataset())
    images = np.concatenate([batch[0].numpy() for batch in tests])
    labels = np.concatenate([batch[1].numpy() for batch in tests])
    far = [np.square(images - mean).sum((1, 2, 3)) for mean in means.values()]
    found = np.array(list(means))[np.argmin(far, 0)]
    # One in 62 by guessing.
    assert np.mean(found == labels) > 0.5


def test_bad_sizes_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        rehearse.main([str(tmp_path), "--clients=0"])
    assert end.value.code == 2
    assert names(capsys.readouterr().err, "clients", 0)


def test_existing_file_is_not_replaced(tmp_path, capsys):
    path = tmp_path / "emnist_all.sqlite"
    path.write_bytes(b"the published one")
    with pytest.raises(SystemExit) as end:
        rehearse.main([str(tmp_path), "--clients=1", "--examples=1"])
    assert end.value.code == 2 and str(path) in capsys.readouterr().err
    assert path.read_bytes() == b"the published one"
