# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import hashlib
import io
import json
import os
import subprocess
import sys
import warnings
import zipfile

import numpy as np
import pytest

from dpfl import files
from dpfl.training import checkpoint
from tests.refusals import names, refuses


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
        with refuses(ValueError, "checksum"):
            checkpoint.decode(bytes(damaged))


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


def test_no_intact_checkpoint_loads_none(tmp_path):
    said = []
    store = checkpoint.CheckpointStore(tmp_path, say=said.append)
    assert store.load_newest() is None
    store.save(make(2)).write_bytes(b"")
    assert store.load_newest() is None
    assert len(said) == 1


def test_keeps_only_the_newest_and_ignores_temporary_files(tmp_path):
    store = checkpoint.CheckpointStore(tmp_path, keep=2)
    (tmp_path / ".checkpoint-00000009.tmp").write_bytes(b"half a file")
    for r in range(5):
        store.save(make(r))
    found = sorted(p.name for p in tmp_path.iterdir() if p.name[0] != ".")
    assert found == ["checkpoint-00000003", "checkpoint-00000004"]
    assert store.load_newest().round_index == 4


def test_foreign_files_are_neither_replaced_nor_removed(tmp_path):
    store = checkpoint.CheckpointStore(tmp_path, keep=2)
    mine = [tmp_path / f"checkpoint-0000000{r}" for r in (0, 3)]
    for path in mine:
        path.write_bytes(b"another program's")
    for r in range(6):
        store.save(make(r))
    assert {path.read_bytes() for path in mine} == {b"another program's"}
    found = sorted({path.name for path in tmp_path.iterdir()} - {p.name for p in mine})
    assert found == ["checkpoint-00000004", "checkpoint-00000005"]


def test_directory_named_like_a_checkpoint_is_reported_and_skipped(tmp_path):
    (tmp_path / "checkpoint-00000003").mkdir()
    (tmp_path / "checkpoint-00000003-1").mkdir()
    said = []
    store = checkpoint.CheckpointStore(tmp_path, keep=2, say=said.append)
    for sentence, name in zip(said, ("checkpoint-00000003", "checkpoint-00000003-1")):
        assert names(sentence, tmp_path / name)
    assert len(said) == 2
    assert store.is_empty and store.load_newest() is None
    for r in range(5):
        path = store.save(make(r))
        assert store.load_newest().round_index == r
        assert r != 3 or path.name == "checkpoint-00000003-2"
    found = sorted(p.name for p in tmp_path.iterdir() if p.is_file())
    assert found == ["checkpoint-00000003-2", "checkpoint-00000004"]


POPULATION, ROUNDS = 4, 8


def saved(**changes):
    """The checkpoint of a run of three rounds, of which some info is another."""
    progress = checkpoint.beginning(POPULATION)
    for number in (1, 2, 3):
        row = {
            **{"round": number, "exact_clients": 2, "exact_train_loss": 0.5},
            **{"eval_accuracy": 0.5, "eval_loss": 1.5, "epsilon": float(number)},
            **{"noise_multiplier": 1.0, "exact_total_uplink_bits": 64 * number},
            "exact_total_downlink_bits": 64 * number,
        }
        progress = progress.advanced(row, [0, number], 0.25)
    progress = progress._replace(leaves=[np.ones([2, 3], np.float32)])
    found = progress.to_checkpoint({"metrics.csv": [0, "digest"]})
    changes = {
        key: v(found.info[key]) if callable(v) else v for key, v in changes.items()
    }
    return found._replace(info={**found.info, **changes})


def archive(members, compression=zipfile.ZIP_STORED):
    """A checkpoint's file of an archive of any members."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", compression) as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, content in members:
            made.writestr(f"{name}.npy", content)
    return signed(body.getvalue())


def signed(body):
    digest = hashlib.sha256(body).hexdigest().encode()
    return b"".join([checkpoint.MAGIC, digest, b"\n", body])


def npy(array, pickled=False):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), allow_pickle=pickled)
    return file.getvalue()


def shaped(shape):
    """An array's file that promises a shape and holds nothing."""
    file = io.BytesIO()
    about = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, about)
    return file.getvalue()


def of(info, *arrays):
    text = info if isinstance(info, bytes) else json.dumps(info).encode()
    members = [("info", npy(np.frombuffer(text, np.uint8)))]
    return archive([*members, *((f"array_{i:04d}", a) for i, a in enumerate(arrays))])


def written(found):
    return b"".join(checkpoint.encode(found))


INFO = {"round_index": 3, "manifest": "own", **saved().info}
COUNTS = npy(saved().arrays[0])
WRONG = {
    "totals": (
        *(None, {}, [], lambda t: {**t, "rounds": 2}, lambda t: {**t, "clients": 5}),
        *(lambda t: {**t, "last": None}, lambda t: {**t, "last": {"round": 3}}),
        lambda t: {**t, "evaluated": {"round": 3}},
        lambda t: {**t, "last": {**t["last"], "epsilon": "much"}},
        lambda t: {**t, "last": {**t["last"], "epsilon": 10**400}},
    ),
    "rows": (
        *(None, {}, [1], [{}], lambda r: r[:2], lambda r: [*r, *r]),
        lambda r: [{**row, "another": 1} for row in r],
        lambda r: [{**row, "epsilon": True} for row in r],
    ),
    "times": (
        *(None, [None], lambda r: r[1:2], [{"round": 3, "x": "y"}]),
        lambda r: [{**row, "exact_seconds": None} for row in r],
    ),
    "seconds": (None, -1.0, "1", [1.0]),
    "marks": (None, [], {"metrics.csv": 3}, {"metrics.csv": [-1, "x"]}),
}
FORGED = {
    "no archive": lambda: signed(b"some text"),
    "nothing": lambda: signed(b""),
    "an archive cut off": lambda: signed(written(saved())[100:-30]),
    "one array": lambda: signed(npy(np.ones(3))),
    "no info": lambda: archive([("array_0000", COUNTS)]),
    "no JSON": lambda: of(b"{", COUNTS),
    "bytes": lambda: of(b"\xff\x80", COUNTS),
    "deep": lambda: of(b"[" * 100_000 + b"]" * 100_000, COUNTS),
    "a list": lambda: of([1], COUNTS),
    "a name twice": lambda: of(b'{"round_index": 3, "round_index": 3}', COUNTS),
    "an infinite round": lambda: of({**INFO, "round_index": float("inf")}, COUNTS),
    "a round of text": lambda: of({**INFO, "round_index": "3"}, COUNTS),
    "a round that is true": lambda: of({**INFO, "round_index": True}, COUNTS),
    "a negative round": lambda: of({**INFO, "round_index": -3}, COUNTS),
    "a huge round": lambda: of({**INFO, "round_index": 10**40}, COUNTS),
    "a round of no file": lambda: of({**INFO, "round_index": 2}, COUNTS),
    "no participations": lambda: of(INFO),
    "other participations": lambda: of(INFO, npy(np.zeros(3, np.int64))),
    "participations of floats": lambda: of(INFO, npy(np.zeros(POPULATION))),
    "negative ones": lambda: of(INFO, npy(np.array([9, -1, -1, -1]))),
    "more than rounds": lambda: of(INFO, npy(np.array([6, 0, 0, 0]))),
    "objects": lambda: of(INFO, npy(np.array([{}, 1]), pickled=True)),
    "another name": lambda: archive([("info", npy(0)), ("x", COUNTS)]),
    "members twice": lambda: archive([("info", npy(0))] * 2),
    "a bomb": lambda: archive([("info", npy(np.zeros(10**6)))], zipfile.ZIP_DEFLATED),
    "a promise": lambda: of(INFO, shaped((1 << 60,))),
    "a negative promise": lambda: of(INFO, shaped((-1,))),
    **{
        f"{name} {number}": lambda name=name, value=value: written(
            saved(**{name: value})
        )
        for name, values in WRONG.items()
        for number, value in enumerate(values)
    },
}


def check(found):
    checkpoint.check_progress(found, POPULATION, ROUNDS)


def test_saved_progress_decodes_as_progress_of_its_run():
    check(checkpoint.decode(written(saved())))


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_forged_checkpoint_is_refused_and_stays(tmp_path, forge):
    """One with its own checksum, of which no part is what it should be."""
    store = checkpoint.CheckpointStore(tmp_path, say=pytest.fail)
    path = tmp_path / "checkpoint-00000003"
    path.write_bytes(content := forge())
    with pytest.raises(checkpoint.DamagedCheckpointError) as caught:
        store.bind(checkpoint.Manifest(1, None), check)
    assert str(path) in str(caught.value) and path.read_bytes() == content


def test_oversized_checkpoint_is_refused_before_reading(tmp_path):
    said = []
    store = checkpoint.CheckpointStore(tmp_path, say=said.append, at_most=10**6)
    store.save(make(2))
    with (tmp_path / "checkpoint-00000004").open("wb") as file:
        file.truncate(20 * 10**9)
    store.bind(checkpoint.Manifest(1, None))
    assert store.load_newest().round_index == 2
    assert len(said) == 1 and "20000000000" in said[0]


def test_damaged_later_checkpoint_does_not_evict_intact_ones(tmp_path):
    """Else the newest that is whole were removed as soon as it is there."""
    store = checkpoint.CheckpointStore(tmp_path, keep=1, say=lambda sentence: None)
    (tmp_path / "checkpoint-99999999").write_bytes(b"damaged")
    for r in (2, 3):
        store.save(make(r))
        assert store.load_newest().round_index == r
    found = sorted(p.name for p in tmp_path.iterdir())
    assert found == ["checkpoint-00000003", "checkpoint-99999999"]


def test_symlinks_are_not_followed(tmp_path):
    folder, said = tmp_path / "checkpoints", []
    folder.mkdir()
    (tmp_path / "other").write_bytes(written(make(3)))
    for target, name in (("other", "3"), ("nowhere", "4")):
        (folder / f"checkpoint-0000000{name}").symlink_to(tmp_path / target)
    store = checkpoint.CheckpointStore(folder, say=said.append)
    assert store.is_empty and len(said) == 2
    for r in (3, 4):
        assert store.save(make(r)).name == f"checkpoint-0000000{r}-1"
    assert (tmp_path / "other").read_bytes() == written(make(3))
    assert not (tmp_path / "nowhere").exists()


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
def test_damaged_manifest_is_refused_and_kept(tmp_path, content):
    path = tmp_path / "manifest.json"
    path.write_text(content)
    with refuses(checkpoint.DamagedManifestError, path):
        checkpoint.open_manifest(path, FACTS, lambda: 1)
    assert path.read_text() == content


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
        lambda text: b"\xff" + text,
        lambda text: text[:-3],
        lambda text: text.replace(b'"seed"', b'"seed'),
        lambda text: text.replace(SECRET.encode(), SECRET.encode() + b"x"),
        lambda text: text.replace(b'"1.25.2"', b'"\n"'),
        lambda text: text[:-2] + b', "seed": "1"}',
    ],
)
def test_errors_do_not_leak_the_manifest_s_seed(path, change):
    path.unlink()
    checkpoint.open_manifest(path, FACTS, lambda: int(SECRET))
    path.write_bytes(content := change(path.read_bytes()))
    with pytest.raises(checkpoint.DamagedManifestError) as caught:
        checkpoint.open_manifest(path, FACTS, lambda: 1)
    assert not any(SECRET in said for said in chained(caught.value))
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "changes",
    [
        *({"seed": seed} for seed in (1, -1, "-1", "1" * 5000, f"{SECRET}x", None)),
        *({"seed": seed} for seed in ("\u0661", float("inf"), [], "9" * 79)),
        *({"flags": facts} for facts in (None, [], "rounds", 3)),
    ],
)
def test_manifest_with_valid_checksum_is_still_validated(path, changes):
    content = json.loads(path.read_text())
    del content["checksum"]
    content.update(changes)
    files.write_json(path, {**content, "checksum": files.digest(content)})
    with pytest.raises(checkpoint.DamagedManifestError) as caught:
        checkpoint.open_manifest(path, FACTS, lambda: 1)
    assert not any(SECRET in said for said in chained(caught.value))


def test_fifo_manifest_is_refused_without_blocking(tmp_path):
    os.mkfifo(path := tmp_path / "manifest.json")
    with refuses(ValueError, path):
        checkpoint.open_manifest(path, FACTS, lambda: 1)


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
    assert store.load_newest().info == make(2).info
    store.save(make(4)).write_bytes(b"damaged")
    with refuses(checkpoint.DamagedManifestError, "manifest"):
        store.bind(checkpoint.Manifest(2, "second"))
    assert not said
    with refuses(checkpoint.DamagedManifestError, "checkpoint-00000002"):
        store.load_newest()
    assert len(said) == 1


def test_changed_flags_are_named(path):
    wanted = "rounds", 3, 4, "seed", "flags", "output_dir"
    with refuses(checkpoint.ChangedFlagsError, *wanted) as caught:
        checkpoint.open_manifest(path, changed("flags", rounds=4, seed=2), lambda: 1)
    assert "client_lr" not in str(caught.value)


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


def test_output_dir_is_locked_by_one_run(tmp_path):
    code = (
        "import pathlib, sys\n"
        "from dpfl import files\n"
        "with files.locked(pathlib.Path(sys.argv[1])): pass\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with files.locked(tmp_path):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode != 0
        assert names(done.stderr, tmp_path, os.getpid())
    assert subprocess.run(command).returncode == 0
