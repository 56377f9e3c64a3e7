# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""`mnist` and `fashion` on small files in the real formats."""

import dataclasses
import gzip
import hashlib
import pathlib

import numpy as np
import pytest

from dpfl.tasks import configs, data_files, downloads, mnist
from tests.refusals import refuses

# Writers of 3, 4 and 13 digits; the last four are the test set of the small MNIST.
WRITERS = np.array([7, 2, 5, 2, 7, 5, 5, 2, 7] + [5] * 7 + [5, 5, 5, 2])
TRAINING = 16


def images():
    rng = np.random.RandomState(0)
    return rng.randint(0, 256, (len(WRITERS), 28, 28)).astype(np.uint8)


def labels():
    return (np.arange(len(WRITERS)) % 10).astype(np.uint8)


def small(of, **changes):
    """A set that is the small images."""
    digests = [hashlib.sha256(a.tobytes()).hexdigest() for a in (labels(), images())]
    return dataclasses.replace(
        of,
        training=TRAINING,
        **dict(zip(("labels_sha256", "pixels_sha256"), digests)),
        **changes,
    )


def idx(array):
    head = [2048 + array.ndim, *array.shape]
    return np.array(head, ">u4").tobytes() + array.tobytes()


def write(folder, packs=False):
    parts = (("train", slice(None, TRAINING)), ("t10k", slice(TRAINING, None)))
    for stem, part in parts:
        for kind, array in (("images", images()[part]), ("labels", labels()[part])):
            content = idx(array)
            name = f"{stem}-{kind}-idx{array.ndim}-ubyte" + ".gz" * packs
            (folder / name).write_bytes(gzip.compress(content) if packs else content)


def archive(path):
    parts = {"train": slice(None, TRAINING), "test": slice(TRAINING, None)}
    both = {f"x_{name}": images()[part] for name, part in parts.items()}
    np.savez(path, **both, **{f"y_{n}": labels()[part] for n, part in parts.items()})


def load(folder, **options):
    of = small(mnist.MNIST, split=lambda *rest: mnist.by_writer(WRITERS, rest[-1]))
    return mnist.load(configs.MnistConfig(data_dir=str(folder), **options), of)


def load_fashion(folder, **options):
    options = {"num_clients": 4, **options}
    config = configs.FashionConfig(data_dir=str(folder), **options)
    return mnist.load(config, small(mnist.FASHION))


def places(x):
    """Where among all images each of these is."""
    return [np.flatnonzero((images() == image).all((1, 2))).item() for image in x]


def each_client(task):
    """The inputs and labels of each client."""
    return [task.clients.read(np.array([i])) for i in range(task.population)]


def test_the_published_facts():
    found = mnist.published_writers()
    assert found.shape == (70_000,)
    _, counts = np.unique(found, return_counts=True)
    assert (len(counts), counts.min(), counts.max()) == (836, 8, 131)
    train, test = np.split(found, [mnist.MNIST.training])
    assert (len(np.unique(train)), len(np.unique(test))) == (539, 297)
    assert not np.intersect1d(train, test).size
    path = pathlib.Path(mnist.__file__).with_name("mnist_writers.npz")
    with np.load(path) as facts:
        both = [facts[f"{part}_label"].astype(np.uint8) for part in ("train", "test")]
    digest = hashlib.sha256(np.concatenate(both).tobytes()).hexdigest()
    assert digest == mnist.MNIST.labels_sha256


@pytest.mark.parametrize("packs", [False, True])
def test_every_digit_belongs_to_its_writer_or_is_held_out(tmp_path, packs):
    write(tmp_path, packs)
    task = load(tmp_path, test_fraction=0.25)
    assert task.client_ids == ("writer_0002", "writer_0005", "writer_0007")
    seen = []
    for number, (x, y) in zip((2, 5, 7), each_client(task)):
        found = places(x)
        assert set(WRITERS[found]) == {number}
        assert np.array_equal(labels()[found], y)
        seen += found
    given = task.to_input(x)
    assert given.dtype == np.float32 and given.shape[1:] == (28, 28, 1)
    assert np.allclose(given[..., 0] * 255, x)
    x, _ = task.test_examples()
    owners = [f"writer_{number:04d}" for number in WRITERS[places(x)]]
    assert [*task.test_owners()] == owners
    seen += places(x)
    assert sorted(seen) == list(range(len(WRITERS)))
    assert task.clients_hold_test_examples
    # One of three and of four, three of thirteen.
    assert len(x) == 1 + 1 + 3


def test_the_archive_of_keras_is_the_same_data(tmp_path):
    write(tmp_path)
    (other := tmp_path / "other").mkdir()
    archive(other / "mnist.npz")
    assert load(tmp_path).fingerprint == load(other).fingerprint
    # A run's seeds are made from it: it stays from version to version.
    assert load(tmp_path).fingerprint[:16] == "d105dedc458991b5"


def test_validation_and_test_sets_are_disjoint(tmp_path):
    write(tmp_path)
    config = configs.MnistConfig(test_fraction=0.25, validation_fraction=0.3)
    plain = dataclasses.replace(config, validation_fraction=0.0)
    _, training, validation, _ = mnist.by_writer(WRITERS, config)
    test = mnist.by_writer(WRITERS, plain).held_out
    assert not np.intersect1d(validation, test).size
    everything = np.concatenate([*training, validation, test])
    assert sorted(everything) == list(range(len(WRITERS)))
    task = load(tmp_path, test_fraction=0.25, validation_fraction=0.3)
    assert len(task.test_examples()[0]) == len(validation)


def test_refusals(tmp_path):
    with refuses(data_files.DataFileError, "data_dir", "MNIST", tmp_path, "download"):
        load(tmp_path)
    write(tmp_path)
    with refuses(ValueError, "test_fraction", 0.99):
        load(tmp_path, test_fraction=0.99)
    path = tmp_path / "t10k-images-idx3-ubyte"
    whole = path.read_bytes()
    for content, part in (
        (whole[:-1], (4, 28, 28)),
        (whole[:-1] + bytes([whole[-1] ^ 1]), "MNIST"),
        (gzip.compress(whole)[:-40] + bytes(40), path),
        (whole[:5], path),
        (b"\x1f\x8bnothing", path),
        (idx(labels()), path),
    ):
        path.write_bytes(content)
        with refuses(data_files.DataFileError, part):
            load(tmp_path)
    path.write_bytes(whole)
    labels_path = tmp_path / "train-labels-idx1-ubyte"
    labels_path.write_bytes(idx(labels()[:TRAINING][::-1].copy()))
    with refuses(data_files.DataFileError, "MNIST", tmp_path):
        load(tmp_path)


def test_downloads(tmp_path, monkeypatch):
    archive(published := tmp_path / "published.npz")
    digest = downloads.digest(str(published))
    monkeypatch.setattr(mnist, "URL", published.as_uri())
    folder = tmp_path / "data"
    with refuses(data_files.DataFileError, digest):
        load(folder, download=True)
    assert not (folder / "mnist.npz").exists()
    monkeypatch.setattr(mnist, "_ARCHIVE_SHA256", digest)
    task = load(folder, download=True)
    assert task.population == 3
    assert pathlib.Path(folder / "mnist.npz").read_bytes() == published.read_bytes()


@pytest.mark.parametrize("inside", ["", "fashion-mnist"])
def test_fashion_s_clients_share_its_training_set(tmp_path, inside):
    # The file's folder goes before what lies around it, which may be MNIST.
    (folder := tmp_path / inside).mkdir(exist_ok=True)
    write(folder, packs=True)
    task = load_fashion(tmp_path)
    assert task.client_ids == tuple(f"client_{n}" for n in range(4))
    assert not task.clients_hold_test_examples and task.test_owners is None
    seen = []
    for x, y in each_client(task):
        assert len(y) == TRAINING // 4
        found = places(x)
        assert np.array_equal(labels()[found], y)
        seen += found
    assert sorted(seen) == list(range(TRAINING))
    assert places(task.test_examples()[0]) == [16, 17, 18, 19]


def test_fashion_split_depends_on_its_options(tmp_path):
    write(tmp_path)
    task = load_fashion(tmp_path)
    assert task.fingerprint == load_fashion(tmp_path).fingerprint
    for change in ({"partition_seed": 1}, {"num_clients": 5}, {"dirichlet_alpha": 90}):
        assert task.fingerprint != load_fashion(tmp_path, **change).fingerprint
    # Of ten labels six have two images to train on, of which one is held out.
    held = load_fashion(tmp_path, validation_fraction=0.5)
    x, y = held.test_examples()
    assert max(places(x)) < TRAINING
    assert y.tolist() == [labels()[place] for place in places(x)]
    assert set(range(6)) <= set(y)
    assert len(held.clients.y) + len(x) == TRAINING


def test_fashion_refuses_missing_or_wrong_data(tmp_path):
    with refuses(data_files.DataFileError, "data_dir", "Fashion-MNIST", tmp_path):
        load_fashion(tmp_path)
    write(tmp_path)
    with refuses(ValueError, "validation_fraction", 0.1):
        load_fashion(tmp_path, validation_fraction=0.1)
    config = configs.FashionConfig(data_dir=str(tmp_path))
    with refuses(data_files.DataFileError, "Fashion-MNIST", tmp_path):
        mnist.load(config)
