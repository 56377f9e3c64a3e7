# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""`femnist` on small files in LEAF's format."""

import json

import numpy as np
import pytest

from dpfl.tasks import configs, data_files, femnist, prepared, registry
from tests.refusals import refuses

# Images of each writer: two of too few to be evaluated on.
COUNTS = [4, 9, *[10 + i for i in range(14)], *[30] * 15]
NAMES = [f"f{i:04d}_{i % 90:02d}" for i in range(len(COUNTS))]


def images_of(writer):
    """The labels and pixels of a writer, of which no two images are alike."""
    rng = np.random.RandomState(writer)
    pixels = np.full((COUNTS[writer], 784), 255, np.uint8)
    pixels[:, 0] = writer
    pixels[:, 1] = np.arange(len(pixels))
    return rng.randint(0, 62, len(pixels)), pixels


def leaf(path, parts):
    """Writes LEAF's json of some images of each writer; `parts` has their places."""
    data = {}
    for writer, places in parts.items():
        labels, pixels = images_of(writer)
        x = (pixels[places] / 255).tolist()
        data[NAMES[writer]] = {"x": x, "y": labels[places].tolist()}
    content = {"users": list(data), "num_samples": [len(d["y"]) for d in data.values()]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**content, "user_data": data}))


def write(folder):
    """Two samples that share images: one has a train and a test part, one no writer 0.

    Beside them are files of which LEAF made the samples, which are not to be read.
    """
    every = range(len(COUNTS))
    train = {w: np.arange(COUNTS[w])[::2] for w in every}
    test = {w: np.arange(COUNTS[w])[1::2] for w in every}
    leaf(folder / "a/data/train/all_data_0_niid_05_keep_0_train_9.json", train)
    leaf(folder / "a/data/test/all_data_0_niid_05_keep_0_test_9.json", test)
    again = {w: np.arange(COUNTS[w])[::-1][:7] for w in every[1:]}
    leaf(folder / "b/data/train/all_data_1_niid_05_keep_0_train_9.json", again)
    (folder / "a/data/all_data").mkdir()
    (folder / "a/data/all_data/all_data_0.json").write_text("not read")
    return folder


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    return write(tmp_path_factory.mktemp("samples"))


@pytest.fixture(scope="module")
def archive(samples):
    path = samples / "packed/femnist.npz"
    path.parent.mkdir()
    found = prepared.find(femnist.SOURCE, str(samples))
    digest, _ = prepared.write(femnist.SOURCE, found, str(path))
    return path, digest


def load(folder, **options):
    return registry.load_task("femnist", data_dir=str(folder), **options)


def origins(x, y):
    """The writer and place of each image, whose label is checked."""
    pairs = []
    for image, label in zip(x.reshape(-1, 784), y):
        writer, place = int(image[0]), int(image[1])
        labels, pixels = images_of(writer)
        assert label == labels[place] and np.array_equal(image, pixels[place])
        pairs.append((writer, place))
    return pairs


def test_each_image_of_several_samples_is_there_once(archive):
    with np.load(archive[0]) as arrays:
        assert list(arrays["writers"]) == NAMES
        assert list(arrays["counts"]) == COUNTS
        assert arrays["images"].shape == (sum(COUNTS), 28, 28)
        assert arrays["images"].dtype == arrays["labels"].dtype == np.uint8
        found = origins(arrays["images"], arrays["labels"])
    assert [w for w, _ in found] == np.repeat(range(len(COUNTS)), COUNTS).tolist()
    assert len(set(found)) == len(found)


def test_the_archive_has_the_same_bytes_for_everybody(archive, tmp_path):
    path, digest = archive
    found = prepared.find(femnist.SOURCE, str(path.parents[1]))
    for paths in (found[::-1], [str(path)], [*found, str(path)]):
        again, _ = prepared.write(femnist.SOURCE, paths, str(tmp_path / "again.npz"))
        assert again == digest
    # The same with any Python and numpy.
    assert digest[:16] == "d68b06ed9122c10d"


def test_the_archive_and_its_files_are_the_same_task(samples, archive):
    of_files, of_archive = load(samples), load(archive[0].parent)
    assert of_files.fingerprint == of_archive.fingerprint
    others = [
        load(archive[0].parent, **{name: value})
        for name, value in (("partition_seed", 1), ("evaluate_on", "validation"))
    ]
    prints = {of_files.fingerprint, *(task.fingerprint for task in others)}
    assert len(prints) == 3


def test_all_data_are_read_where_no_sample_is(tmp_path):
    leaf(tmp_path / "data/all_data/all_data_0.json", {2: np.arange(3)})
    (tmp_path / "data/hashes.json").write_text("not read")
    with np.load(packed(tmp_path)) as arrays:
        assert (list(arrays["writers"]), list(arrays["counts"])) == ([NAMES[2]], [3])


def packed(folder):
    path = folder / "femnist.npz"
    paths = prepared.find(femnist.SOURCE, str(folder))
    prepared.write(femnist.SOURCE, paths, str(path))
    return path


def test_every_image_is_its_writer_s_or_evaluated_on(archive):
    tasks = {on: load(archive[0].parent, evaluate_on=on) for on in configs.EVALUATED}
    first = tasks["test"]
    held = {on: origins(*task.test_examples()) for on, task in tasks.items()}
    for on, task in tasks.items():
        assert [*task.test_owners()] == [NAMES[writer] for writer, _ in held[on]]
    trained = []
    for index, name in enumerate(first.client_ids):
        x, y = first.clients.read(np.array([index]))
        own = origins(x, y)
        assert {writer for writer, _ in own} == {NAMES.index(name)}
        trained += own
    every = trained + [pair for pairs in held.values() for pair in pairs]
    assert len(every) == len(set(every)) == sum(COUNTS)
    writers = {on: {writer for writer, _ in pairs} for on, pairs in held.items()}
    known = {NAMES.index(name) for name in first.client_ids}
    for on in ("test", "validation"):
        assert writers[on] == {writer for writer in known if COUNTS[writer] >= 10}
        assert tasks[on].clients_hold_test_examples
    for on in ("unseen_test", "unseen_validation"):
        assert writers[on] and not writers[on] & known
        assert not tasks[on].clients_hold_test_examples
    for task in tasks.values():
        assert task.client_ids == first.client_ids
        assert np.array_equal(task.clients.y, first.clients.y)
    x = first.to_input(first.clients.x[:1])
    assert x.dtype == np.float32 and x.shape == (1, 28, 28, 1) and x.max() == 1


def test_split_of_as_many_writers_as_the_samples():
    counts = np.array([*[18] * 553, *[9] * 46, *[30] * 252, *[150] * 521])
    sets = femnist.split(counts, seed=0)
    rows = np.concatenate(list(sets.values()))
    assert np.array_equal(np.sort(rows), np.arange(counts.sum()))
    writers = {name: np.unique(femnist.owners(counts, s)) for name, s in sets.items()}
    assert len(writers["train"]) == 1235
    few = {name: (counts[found] < 30).sum() for name, found in writers.items()}
    assert (few["unseen_validation"], len(writers["unseen_validation"])) == (30, 68)
    assert (few["unseen_test"], len(writers["unseen_test"])) == (30, 69)
    owned = np.bincount(femnist.owners(counts, sets["test"]), minlength=len(counts))
    trained = np.isin(np.arange(len(counts)), writers["train"])
    assert np.array_equal(owned[trained], counts[trained] // 10)
    other = femnist.split(counts, seed=1)
    assert len(sets["test"]) == len(sets["validation"])
    assert not np.array_equal(sets["train"], other["train"])


def test_missing_data_and_wrong_options_are_refused(tmp_path):
    wanted = ("data_dir", "preprocess.sh", "dpfl-prepare femnist", str(tmp_path))
    with refuses(data_files.DataFileError, *wanted):
        load(tmp_path)
    with refuses(ValueError, "evaluate_on", "train"):
        load(tmp_path, evaluate_on="train")
    leaf(tmp_path / "train/a.json", {w: np.arange(12) for w in (5, 6, 7)})
    with refuses(ValueError, "evaluate_on", "unseen_test"):
        load(tmp_path, evaluate_on="unseen_test")


def of_one(x, y, **changes):
    content = {"users": ["w"], "num_samples": [len(y)], **changes}
    return json.dumps({**content, "user_data": {"w": {"x": x, "y": y}}})


@pytest.mark.parametrize(
    "content, part",
    [
        ("[1, 2", "JSON"),
        ("[]", "LEAF"),
        ("{}", "LEAF"),
        (of_one([[0.5], [1, 2]], [1, 2]), "sequence"),
        (of_one([[1] * 784], [1], num_samples=[2]), "writer w"),
        (of_one([[1] * 784], [1], num_samples=[]), "num_samples"),
        (of_one([[1] * 784], [1], users=["v"]), "user_data"),
        (of_one([[2] * 784], [1]), "writer w"),
        (of_one([[1] * 784], [62]), "62.0"),
        (of_one([[1] * 784] * 2, [1.5, 60]), "1.5"),
    ],
)
def test_damaged_json_is_refused_with_its_path(tmp_path, content, part):
    path = tmp_path / "train/a.json"
    path.parent.mkdir()
    path.write_text(content)
    with refuses(data_files.DataFileError, path, part):
        load(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"images": None},
        {"images": np.zeros([sum(COUNTS), 28, 28])},
        {"counts": np.array([1])},
        {"labels": np.array([62])},
    ],
)
def test_damaged_archive_is_refused_with_its_path(tmp_path, archive, changes):
    with np.load(archive[0]) as arrays:
        arrays = {**arrays, **changes}
    path = tmp_path / "femnist.npz"
    np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
    with refuses(data_files.DataFileError, path):
        load(tmp_path)
    path.write_bytes(path.read_bytes()[:1000])
    with refuses(data_files.DataFileError, path):
        load(tmp_path)
