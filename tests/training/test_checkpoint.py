# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import json

import numpy as np
import pytest

from dpfl.training import checkpoint
from tests.refusals import names, refuses


def make(round_index):
    arrays = [
        np.arange(6, dtype=np.float32).reshape(2, 3) + np.float32(round_index),
        np.asarray(np.int64(7 + round_index)),
        np.zeros([0, 2], np.float64),
    ]
    own = {"round_index": round_index, "leaves": arrays, "rows": [{"epsilon": 1.5}]}
    return checkpoint.beginning(4)._replace(**own)


def store_of(folder, **kwargs):
    """A store whose sentences fail the test unless it takes them."""
    return checkpoint.CheckpointStore(folder, **{"say": pytest.fail, **kwargs})


def test_round_trip_keeps_every_bit(tmp_path):
    scores = np.arange(3, dtype=np.float32)
    progress = checkpoint.beginning(4, scores)._replace(leaves=make(3).leaves)
    for epsilon in (1.5, float("inf")):
        row = {"round": 1, "exact_clients": 2, "epsilon": epsilon}
        progress = progress.advanced(row, [0, 2], 0.25, scores=scores + 1)
    store_of(tmp_path).save(progress)
    found = store_of(tmp_path).load_newest()
    without = {"leaves": [], "participations": [], "scores": []}
    assert found._replace(**without) == progress._replace(**without)
    np.testing.assert_array_equal(found.scores, [[0, 1, 2], [1, 2, 3], [1, 2, 3]])
    np.testing.assert_array_equal(found.participations, [2, 0, 2, 0])
    for a, b in zip(make(3).leaves, found.leaves):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)


def test_any_damage_is_noticed(tmp_path):
    path = store_of(tmp_path).save(make(3))
    content = path.read_bytes()
    lengths = (0, 10, len(content) // 2, len(content) - 1)
    damages = [content[:length] for length in lengths]
    # Of the archive's own bytes, such as a date, some are read by nobody.
    for part in ("epsilon".encode("utf-32-le"), make(3).leaves[0].tobytes()):
        damages.append(bytearray(content))
        damages[-1][content.index(part)] ^= 1
    for damaged in damages:
        said = []
        path.write_bytes(bytes(damaged))
        assert store_of(tmp_path, say=said.append).load_newest() is None
        assert [names(text, path) for text in said] == [True]


def test_newest_intact_checkpoint_is_loaded_and_damage_reported(tmp_path):
    said = []
    store = checkpoint.CheckpointStore(tmp_path, keep=3, say=said.append)
    for r in (2, 4, 6):
        path = store.save(make(r))
    assert store.load_newest().round_index == 6
    assert not said
    path.write_bytes(path.read_bytes()[:-1])
    assert store.load_newest().round_index == 4
    assert len(said) == 1 and str(path) in said[0] and "damaged" in said[0]
    assert "previous" in said[0]


def test_keeps_only_the_newest_and_ignores_temporary_files(tmp_path):
    store = checkpoint.CheckpointStore(tmp_path, keep=2)
    (tmp_path / ".checkpoint-00000009.tmp").write_bytes(b"half a file")
    for r in range(5):
        store.save(make(r))
    found = sorted(p.name for p in tmp_path.iterdir() if p.name[0] != ".")
    assert found == ["checkpoint-00000003", "checkpoint-00000004"]
    assert store.load_newest().round_index == 4


def test_damaged_later_checkpoint_does_not_evict_intact_ones(tmp_path):
    """Else the newest that is whole were removed as soon as it is there."""
    store = checkpoint.CheckpointStore(tmp_path, keep=1, say=lambda sentence: None)
    (tmp_path / "checkpoint-99999999").write_bytes(b"damaged")
    for r in (2, 3):
        store.save(make(r))
        assert store.load_newest().round_index == r
    found = sorted(p.name for p in tmp_path.iterdir())
    assert found == ["checkpoint-00000003", "checkpoint-99999999"]


FACTS = {
    "flags": {"rounds": 3, "client_lr": 0.1, "epsilon": float("inf")},
    "noise": {"noise_multiplier": 1.25},
    "versions": {"numpy": "1.25.2"},
    "source": {"commit": "abc"},
}


def changed(kind, **values):
    return {**FACTS, kind: {**FACTS[kind], **values}}


@pytest.fixture
def path(tmp_path):
    """The path of a manifest of `FACTS`."""
    path = tmp_path / "manifest.json"
    checkpoint.open_manifest(path, FACTS, lambda: 1)
    return path


def test_the_seed_is_drawn_once(tmp_path):
    path = tmp_path / "manifest.json"
    seeds = iter([2**125 + 1, 5])
    first = checkpoint.open_manifest(path, FACTS, lambda: next(seeds))
    again = checkpoint.open_manifest(path, FACTS, lambda: next(seeds))
    assert first == again and first.seed == 2**125 + 1
    written = json.loads(path.read_text())
    assert written["noise"] == {"noise_multiplier": 1.25}
    assert written["checksum"] == first.digest


def chained(error):
    """All that a traceback, or a log of an error, could show of it."""
    while error is not None:
        yield f"{error} {error!r} {vars(error)} {getattr(error, 'doc', '')}"
        yield repr(getattr(error, "object", ""))
        error = error.__cause__ or error.__context__


SECRET = "98765432109876543210"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"flags", b"fl\x80gs"),
        lambda text: text[:-3],
        lambda text: text.replace(SECRET.encode(), SECRET.encode() + b"x"),
        lambda text: b"{}",
        lambda text: b"[]",
    ],
)
def test_damaged_manifest_is_kept_and_its_seed_not_said(path, change):
    path.unlink()
    checkpoint.open_manifest(path, FACTS, lambda: int(SECRET))
    path.write_bytes(content := change(path.read_bytes()))
    with refuses(checkpoint.DamagedManifestError, path) as caught:
        checkpoint.open_manifest(path, FACTS, lambda: 1)
    assert not any(SECRET in said for said in chained(caught.value))
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "old, new", [('"seed": "1"', '"seed": "2"'), ("1.25", "2.5"), ("abc", "abd")]
)
def test_an_edited_manifest_is_refused(path, old, new):
    """Even where the edited fact is the one that the run would now have."""
    text = path.read_text()
    assert text.count(old) == 1 or old == "1.25"
    path.write_text(text.replace(old, new))
    with refuses(checkpoint.DamagedManifestError, "manifest.json", "checksum"):
        checkpoint.open_manifest(path, FACTS, lambda: 1)


def test_checkpoints_are_of_one_manifest(tmp_path):
    """An edit that mends the checksum as well meets the checkpoints' digest."""
    said = []
    store = checkpoint.CheckpointStore(tmp_path, say=said.append)
    store.bind(checkpoint.Manifest(1, "first"))
    store.save(make(2))
    assert store.load_newest().rows == make(2).rows
    store.save(make(4)).write_bytes(b"damaged")
    store.bind(checkpoint.Manifest(2, "second"))
    with refuses(checkpoint.DamagedManifestError, "checkpoint-00000002", "manifest"):
        store.load_newest()
    assert len(said) == 1


def test_changed_flags_are_named(path):
    wanted = "rounds", 3, 4, "seed", "flags", "output_dir"
    with refuses(checkpoint.ChangedFlagsError, *wanted) as caught:
        checkpoint.open_manifest(
            path, changed("flags", rounds=4, seed=98765), lambda: 1
        )
    assert not any(x in str(caught.value) for x in ("client_lr", "98765"))


def test_changed_noise_version_or_commit_is_named(path):
    """As under another dpfl, whose calibration gives the rounds that are left less."""
    for kind, name, value in (
        ("noise", "noise_multiplier", 0.625),
        ("versions", "numpy", "1.26.0"),
        ("source", "commit", "abd"),
    ):
        wanted = kind, name, FACTS[kind][name], value
        with refuses(checkpoint.ChangedFlagsError, *wanted):
            checkpoint.open_manifest(path, changed(kind, **{name: value}), lambda: 1)
