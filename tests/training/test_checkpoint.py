# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from dpfl import files
from dpfl.training import checkpoint


def make(round_index):
    arrays = [
        np.arange(6, dtype=np.float32).reshape(2, 3) + np.float32(round_index),
        np.asarray(np.int64(7 + round_index)),
        np.zeros([0, 2], np.float64),
    ]
    return checkpoint.Checkpoint(round_index, arrays, {"rows": [{"epsilon": 1.5}]})


def test_round_trip_keeps_every_bit():
    found = checkpoint.decode(b"".join(checkpoint.encode(make(3))))
    assert found.round_index == 3
    assert found.info == {"rows": [{"epsilon": 1.5}]}
    for a, b in zip(make(3).arrays, found.arrays):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)


def test_any_damage_is_noticed():
    content = b"".join(checkpoint.encode(make(3)))
    lengths = (0, 10, len(content) // 2, len(content) - 1)
    damages = [content[:length] for length in lengths]
    for place in range(0, len(content), 97):
        damages.append(bytearray(content))
        damages[-1][place] ^= 1
    for damaged in damages:
        with pytest.raises(ValueError, match="checksum"):
            checkpoint.decode(bytes(damaged))


def test_the_newest_whole_one_is_found_and_damage_is_said(tmp_path):
    said = []
    store = checkpoint.CheckpointStore(tmp_path, keep=3, say=said.append)
    for r in (2, 4, 6):
        path = store.save(make(r))
    assert store.load_newest().round_index == 6
    assert not said
    path.write_bytes(path.read_bytes()[:-1])
    assert store.load_newest().round_index == 4
    assert len(said) == 1 and str(path) in said[0] and "damaged" in said[0]
    assert "trying the one before" in said[0]


def test_nothing_whole_is_nothing(tmp_path):
    said = []
    store = checkpoint.CheckpointStore(tmp_path, say=said.append)
    assert store.load_newest() is None
    store.save(make(2)).write_bytes(b"")
    assert store.load_newest() is None
    assert len(said) == 1


def test_only_the_newest_stay_and_leftovers_do_not_matter(tmp_path):
    store = checkpoint.CheckpointStore(tmp_path, keep=2)
    (tmp_path / ".checkpoint-00000009.tmp").write_bytes(b"half a file")
    for r in range(5):
        store.save(make(r))
    names = sorted(p.name for p in tmp_path.iterdir() if p.name[0] != ".")
    assert names == ["checkpoint-00000003", "checkpoint-00000004"]
    assert store.load_newest().round_index == 4


def test_a_folder_in_the_place_of_a_checkpoint_is_named_and_stepped_over(tmp_path):
    (tmp_path / "checkpoint-00000003").mkdir()
    (tmp_path / "checkpoint-00000003-1").mkdir()
    said = []
    store = checkpoint.CheckpointStore(tmp_path, keep=2, say=said.append)
    assert [sentence.split(" is no file")[0] for sentence in said] == [
        str(tmp_path / "checkpoint-00000003"),
        str(tmp_path / "checkpoint-00000003-1"),
    ]
    assert store.is_empty and store.load_newest() is None
    for r in range(5):
        path = store.save(make(r))
        assert store.load_newest().round_index == r
        assert r != 3 or path.name == "checkpoint-00000003-2"
    names = sorted(p.name for p in tmp_path.iterdir() if p.is_file())
    assert names == ["checkpoint-00000003-2", "checkpoint-00000004"]


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


@pytest.mark.parametrize(
    "content",
    [
        '{"seed"',
        "{}",
        "[]",
        '{"seed": "x", "flags": {}, "checksum": ""}',
        "[" * 10_000 + "]" * 10_000,
    ],
)
def test_a_damaged_manifest_is_said(tmp_path, content):
    path = tmp_path / "manifest.json"
    path.write_text(content)
    with pytest.raises(checkpoint.DamagedManifestError, match="found it damaged"):
        checkpoint.open_manifest(path, FACTS, lambda: 1)
    assert path.read_text() == content


def test_a_manifest_that_is_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(path := tmp_path / "manifest.json")
    with pytest.raises(ValueError, match="manifest.json must be a regular file"):
        checkpoint.open_manifest(path, FACTS, lambda: 1)


@pytest.mark.parametrize(
    "old, new", [('"seed": "1"', '"seed": "2"'), ("1.25", "2.5"), ("abc", "abd")]
)
def test_an_edited_manifest_is_refused(path, old, new):
    """Even where the edited fact is the one that the run would now have."""
    text = path.read_text()
    assert text.count(old) == 1 or old == "1.25"
    path.write_text(text.replace(old, new))
    with pytest.raises(checkpoint.DamagedManifestError, match="checksum does not"):
        checkpoint.open_manifest(path, FACTS, lambda: 1)


def test_checkpoints_are_of_one_manifest(tmp_path):
    """An edit that mends the checksum as well meets the checkpoints' digest."""
    said = []
    store = checkpoint.CheckpointStore(tmp_path, say=said.append)
    store.bind(checkpoint.Manifest(1, "first"))
    store.save(make(2))
    assert store.load_newest().info == make(2).info
    store.save(make(4)).write_bytes(b"damaged")
    with pytest.raises(checkpoint.DamagedManifestError, match="manifest was changed"):
        store.bind(checkpoint.Manifest(2, "second"))
    assert not said
    with pytest.raises(checkpoint.DamagedManifestError, match="00000002 must be of"):
        store.load_newest()
    assert len(said) == 1


def test_changed_flags_are_named(path):
    with pytest.raises(checkpoint.ChangedFlagsError) as caught:
        checkpoint.open_manifest(path, changed("flags", rounds=4, seed=2), lambda: 1)
    message = str(caught.value)
    assert "rounds (was 3, now 4)" in message and "seed (was None, now 2)" in message
    assert "client_lr" not in message and "only go on with the flags that" in message
    assert message.endswith("choose another output_dir")


def test_other_noise_versions_and_commits_are_named(path):
    """As under another dpfl, whose calibration gives the rounds that are left less."""
    for kind, name, value in (
        ("noise", "noise_multiplier", 0.625),
        ("versions", "numpy", "1.26.0"),
        ("source", "commit", "abd"),
    ):
        with pytest.raises(checkpoint.ChangedFlagsError) as caught:
            checkpoint.open_manifest(path, changed(kind, **{name: value}), lambda: 1)
        was = FACTS[kind][name]
        assert f"the {kind} that it was started with" in str(caught.value)
        assert f"changed: {name} (was {was}, now {value});" in str(caught.value)


def test_one_run_a_directory(tmp_path):
    code = (
        "import pathlib, sys\n"
        "from dpfl import files\n"
        "with files.locked(pathlib.Path(sys.argv[1])): pass\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with files.locked(tmp_path):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode != 0
        assert f"in use by process {os.getpid()}" in done.stderr
    assert subprocess.run(command).returncode == 0
