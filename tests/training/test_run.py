# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The folder of a run: its files, and whose noise they can bring back."""

import contextlib
import dataclasses
import functools
import importlib
import json
import shutil
import sys
from types import SimpleNamespace

import pytest

from dpfl import disk_cache, files, privacy_coverage
from dpfl.tasks import registry
from dpfl.training import checkpoint, engine, provenance, record, selection
from dpfl.training import config as config_lib
from dpfl.training import loop as loop_lib
from dpfl.training import run as run_lib
from tests.refusals import refuses
from tests.training import fakes
from tests.training.test_loop import run as run_loop


@pytest.fixture
def plan(make_plan, tmp_path):
    return fakes.made(make_plan, tmp_path)


@pytest.fixture(autouse=True)
def one_source(monkeypatch):
    """Has each test look at the source tree once, which stays as it is."""
    for name in ("git_state", "source_digest"):
        monkeypatch.setattr(
            provenance, name, functools.cache(getattr(provenance, name))
        )


def begun(plan):
    """The key of a run as its folder has it, of which all noise and cohorts are."""
    with run_lib.Run(plan, pytest.fail) as run:
        return run._key


def with_checkpoint(plan):
    """A run that has done its rounds; its key, and its newest checkpoint's path."""
    store = fakes.FakeStore()
    run_loop(plan, store)
    with run_lib.Run(plan, pytest.fail) as run:
        return run._key, run._store.save(store.saved[-1])


REPLACED = [
    p
    for p in privacy_coverage.FILES
    if "/" not in p and p not in (".lock", "worker.log")
]
REPLACED += [record.EVENTS]


def test_foreign_files_are_not_replaced(plan):
    folder = plan.config.output_dir
    for place in (*REPLACED, "checkpoints/checkpoint-00000003"):
        path = folder / place.replace("*", "mine")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        with pytest.raises(ValueError) as caught, run_lib.Run(plan):
            pass
        assert str(folder) in str(caught.value) and path.read_text() == "mine"
        path.unlink()
        with run_lib.Run(plan):
            pass
        if place in REPLACED and place != "manifest.json":
            # Beside its manifest they are the run's.
            path.write_text("the run's")
            with run_lib.Run(plan):
                pass
        shutil.rmtree(folder)


def test_nobody_else_can_read_the_files_of_the_seed(plan):
    # Other users may see the folder.
    plan.config.output_dir.mkdir(mode=0o755)
    _, saved = with_checkpoint(plan)
    for path in (plan.config.output_dir / "manifest.json", saved, saved.parent):
        assert path.stat().st_mode & 0o077 == 0


@pytest.fixture
def each_engine(monkeypatch):
    """As if each engine were installed."""
    monkeypatch.setattr(engine, "of", {"auto": "tff", "jax": "jax"}.__getitem__)
    monkeypatch.setattr(engine, "about", lambda plan: ON_A_CARD)
    monkeypatch.setattr(engine, "check_same", lambda plan, digest: None)


# A change of each setting that a release may depend on.
CHANGES = {
    "task": "docs",
    "task_config": fakes.FakeTaskConfig(batch_size=4),
    "mechanism": "none",
    "mechanism_options": {"clip_norm": 0.25},
    "participation": "fixed",
    "cohort_size": 6,
    "rounds": 7,
    "rounds_per_epoch": 3,
    "min_separation": 2,
    "canaries": 100,
    "client_lr": 0.2,
    "server_lr": 0.5,
    "server_momentum": 0.5,
    "server_optimizer": "adam",
    "weighted": True,
    "engine": "jax",
    "precision": "tf32",
    "clients_at_once": 4,
    "noise_multiplier": 2.0,
    "epsilon": 1e5,
    "delta": 1e-4,
    "accounting_method": "auto",
    "eval_every": 2,
    "seed": 6,
}
TOGETHER = {"coordinator_address": "h:1", "num_processes": 4, "process_id": 0}
# What a setting needs beside it to have a meaning, in both runs.
BESIDE = {
    "rounds_per_epoch": {"participation": "once_per_epoch"},
    "min_separation": {"participation": "b_min_separation", "min_separation": 3},
    "weighted": {"mechanism": "none"},
    "server_optimizer": {"server_momentum": 0.5},
    "precision": {"engine": "jax"},
    "clients_at_once": {"engine": "jax"},
    "profile": {"engine": "jax"},
    **dict.fromkeys(TOGETHER, {"engine": "jax", **TOGETHER}),
    "mechanism_options": {"mechanism_options": {"clip_norm": 0.5}},
}
OTHERS = {
    "worker_isolation": "anyone_can_connect",
    "coordinator_address": "host:2",
    "flags": {"rounds": 9},
    "progress": True,
    "profile": True,
}


def test_every_setting_has_a_test_case():
    fields = {field.name for field in dataclasses.fields(config_lib.RunConfig)}
    assert fields == {*CHANGES, "measure", *config_lib.HARMLESS}


@pytest.fixture
def changed(make_plan, each_engine, tmp_path):
    """The key of a run, and its plan with a setting changed, in the run's folder."""
    keys = {}

    def change(name, value, **settings):
        settings.update(BESIDE.get(name, {}))
        folder = tmp_path / (name if name in BESIDE else "own")
        if folder not in keys:
            keys[folder] = begun(fakes.made(make_plan, folder, **settings))
        return keys[folder], fakes.made(make_plan, folder, **{**settings, name: value})

    return change


def test_changed_settings_are_refused_and_draw_other_noise(changed):
    accepted = []
    for name, value in CHANGES.items():
        own, other = changed(name, value, seed=5)
        with contextlib.suppress(checkpoint.ChangedFlagsError):
            accepted.append((name, begun(other)))
        key = selection.run_key(other.config.seed, provenance.digest(other))
        assert key != own, name
    assert not accepted


ON_A_CARD = engine.About({"device": "a card", "clients_at_once": 4}, False)


def test_another_device_is_refused_and_has_other_noise(
    make_plan, monkeypatch, tmp_path
):
    monkeypatch.setattr(engine, "of", lambda name: "jax")
    devices = {}
    for facts in ({}, {"device": "another"}, {"clients_at_once": 8}):
        about = ON_A_CARD._replace(facts={**ON_A_CARD.facts, **facts})
        monkeypatch.setattr(engine, "about", lambda plan, about=about: about)
        plan = fakes.made(make_plan, tmp_path, seed=5)
        if facts:
            [(name, value)] = facts.items()
            with refuses(checkpoint.ChangedFlagsError, name, value):
                begun(plan)
            plan = fakes.made(make_plan, tmp_path / name, seed=5)
        devices[begun(plan)] = plan
    assert len(devices) == 3


def test_facts_of_last_bits_stay_and_decide_no_seed(make_plan, monkeypatch, tmp_path):
    monkeypatch.setattr(engine, "of", lambda name: "jax")
    digests = set()
    for threads in (2, 3):
        about = engine.About({"device": "cpu"}, True, {"threads": threads})
        monkeypatch.setattr(engine, "about", lambda plan, about=about: about)
        plan = fakes.made(make_plan, tmp_path, seed=5)
        digests.add(provenance.digest(plan))
        if threads == 2:
            begun(plan)
    with refuses(checkpoint.ChangedFlagsError, "threads", 2, 3):
        begun(plan)
    assert len(digests) == 1


def test_processor_and_settings_of_tensorflow_stay(make_plan, monkeypatch, tmp_path):
    plan = fakes.made(make_plan, tmp_path, seed=5)
    begun(plan)
    names_of = ("TF_ENABLE_ONEDNN_OPTS", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
    for name in (*names_of, "kind of processor"):
        with monkeypatch.context() as patch:
            if name in names_of:
                patch.setenv(name, "another")
            else:
                kind = [*disk_cache.ADDING_UP[:2], ["another"]]
                patch.setattr(disk_cache, "ADDING_UP", kind)
            other = fakes.made(make_plan, tmp_path, seed=5)
            assert provenance.digest(other) == provenance.digest(plan)
            with refuses(checkpoint.ChangedFlagsError, name):
                begun(other)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    begun(fakes.made(make_plan, tmp_path, seed=5))


def test_harmless_settings_may_change_on_resume(changed):
    for name in {*config_lib.HARMLESS} - {"output_dir"}:
        own, other = changed(name, OTHERS.get(name, 2))
        assert begun(other) == own, name


def test_exact_metrics_keep_the_seed_but_not_the_run(make_plan, tmp_path):
    """The same clients and noise, so that nothing is learned from both."""
    plan = fakes.made(make_plan, tmp_path)
    begun(plan)
    other = fakes.made(make_plan, tmp_path, measure="released")
    assert provenance.digest(other) == provenance.digest(plan)
    with refuses(checkpoint.ChangedFlagsError, "measure", "released"):
        begun(other)


@pytest.mark.parametrize(
    "changes",
    [
        {"fingerprint": "g"},
        {"population": fakes.POPULATION + 1},
        {"dimension": fakes.DIMENSION + 1},
    ],
)
def test_changed_data_or_model_draws_other_noise(plan, changes, tmp_path):
    own = begun(plan)
    task = SimpleNamespace(**{**vars(plan.task), **changes})
    other = dataclasses.replace(plan, task=task)
    with pytest.raises(checkpoint.ChangedFlagsError):
        begun(other)
    # Nor by files that are made to fit.
    path = plan.config.output_dir / "manifest.json"
    seed = json.loads(path.read_text())["seed"]
    assert selection.run_key(int(seed), provenance.digest(other)) != own


def signed(path, content):
    """Writes a manifest with the checksum of what it says."""
    content = {name: part for name, part in content.items() if name != "checksum"}
    files.write_json(path, {**content, "checksum": files.digest(content)})


def test_forged_files_do_not_repeat_noise(make_plan, tmp_path):
    """A manifest of another run, a checkpoint of another manifest, and both."""
    plan = fakes.made(make_plan, tmp_path)
    own, saved = with_checkpoint(plan)
    path = plan.config.output_dir / "manifest.json"
    kept, content = path.read_bytes(), saved.read_bytes()
    # Another seed under the same flags.
    facts = json.loads(kept)
    signed(path, {**facts, "seed": "6"})
    with pytest.raises(checkpoint.DamagedManifestError):
        begun(plan)
    # Other flags under the same seed.
    other = fakes.made(make_plan, tmp_path, client_lr=0.2)
    signed(path, {**facts, **files.plain(provenance.manifest(other))})
    with pytest.raises(checkpoint.DamagedManifestError):
        begun(other)
    # A checkpoint that says that it is of that manifest goes on with other noise.
    header, arrays = files.read_arrays(saved)
    digest = json.loads(path.read_text())["checksum"]
    files.write_arrays(saved, {**header, "manifest": digest}, arrays)
    assert begun(other) != own
    # As it does without a checkpoint.
    saved.unlink()
    assert begun(other) != own
    # That of a run of the same flags.
    shutil.rmtree(plan.config.output_dir)
    begun(plan)
    saved.write_bytes(content)
    with pytest.raises(checkpoint.DamagedManifestError):
        begun(plan)


def of_random_layers(plan, draws):
    task = SimpleNamespace(**{**vars(plan.task), "draws_in_training": draws})
    return dataclasses.replace(plan, task=task)


@pytest.mark.parametrize("draws", [False, True])
@pytest.mark.parametrize("lost", ["damaged", "removed", "damaged before its rows"])
def test_published_round_is_not_repeated_with_random_layers(plan, lost, draws):
    """Dropout trains other weights under the same noise."""
    _, newest = with_checkpoint(plan)
    # The rows of a checkpoint are written behind it.
    rows = range(1, 2 if lost == "damaged before its rows" else 7)
    lines = "".join(f"{number}\n" for number in rows)
    (plan.config.output_dir / "metrics.csv").write_text(f"round\n{lines}")
    other = of_random_layers(plan, draws)
    begun(other)
    if lost == "removed":
        newest.unlink()
    else:
        newest.write_bytes(newest.read_bytes()[:-1])
    before = fakes.everything(plan.config.output_dir)
    if draws:
        with pytest.raises(checkpoint.DamagedCheckpointError):
            begun(other)
    else:
        begun(other)
    assert fakes.everything(plan.config.output_dir) == before


def test_rounds_with_random_layers_are_saved_before_display(plan, monkeypatch):
    shown = []
    monkeypatch.setattr(
        loop_lib.report, "postfix", lambda plan, totals: shown.append(totals.rounds)
    )
    for draws, rounds in ((False, [1, 2, 3, 4, 5, 6]), (True, [1, 6])):
        shown.clear()
        store = fakes.FakeStore()
        run_loop(of_random_layers(plan, draws), store)
        assert [saved.round_index for saved in store.saved] == [1, 6]
        assert shown == rounds


def test_another_matrix_in_the_same_file_is_another_run(plan, monkeypatch):
    begun(plan)
    monkeypatch.setattr(type(plan.mechanism), "file_digest", "another")
    with refuses(checkpoint.ChangedFlagsError, "mechanism's file", "another"):
        begun(plan)


PLUG_IN = """
import dataclasses
from tests.training.fakes import FakeTaskConfig

@dataclasses.dataclass(frozen=True)
class Config(FakeTaskConfig):
    layers: int = {layers}
"""


@pytest.mark.parametrize("place", ["dpfl_plug_in.py", "dpfl_plug_in/__init__.py"])
def test_changed_plug_in_source_is_another_run(make_plan, tmp_path, monkeypatch, place):
    """Its updates may be others under the same data and settings."""
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_text(PLUG_IN.format(layers=1))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "dpfl_plug_in", raising=False)
    config = importlib.import_module("dpfl_plug_in").Config()
    plan = fakes.made(make_plan, tmp_path, task_config=config)
    begun(plan)
    begun(plan)
    changed = path if place.endswith("in.py") else path.with_name("model.py")
    changed.write_text("LAYERS = 2\n")
    with refuses(checkpoint.ChangedFlagsError, "plug-ins' files"):
        begun(plan)
    monkeypatch.delitem(sys.modules, "dpfl_plug_in")


def test_changed_plug_in_data_is_another_run(make_plan, tmp_path, monkeypatch):
    entry = dataclasses.replace(registry.TASKS["digits"], module="mine.tasks")
    monkeypatch.setitem(registry.TASKS, "mine", entry)
    plan = fakes.made(make_plan, tmp_path, task="mine", seed=5)

    def with_data(digest):
        task = SimpleNamespace(**{**vars(plan.task), "sample_digest": digest})
        return dataclasses.replace(plan, task=task)

    own = begun(with_data("a"))
    assert begun(with_data("a")) == own
    with refuses(checkpoint.ChangedFlagsError, "task fingerprint"):
        begun(with_data("b"))
    assert selection.run_key(5, provenance.digest(with_data("b"))) != own


def test_correlated_noise_resumes_only_on_equal_processor_count(
    make_plan, tmp_path, monkeypatch
):
    """On another number its last bits are others; integers are not."""
    stream = {"matrix_method": "banded", "matrix_bands": 2}
    of_floats = fakes.made(
        *(make_plan, tmp_path / "a"),
        **{"mechanism": "matrix_factorization", "mechanism_options": stream},
        **{"participation": "once_per_epoch", "rounds_per_epoch": 4, "rounds": 4},
    )
    of_integers = fakes.made(make_plan, tmp_path / "b")
    keys = [begun(of_floats), begun(of_integers)]
    digest = provenance.digest(of_floats)
    count, *others = disk_cache.ADDING_UP
    monkeypatch.setattr(disk_cache, "ADDING_UP", [count + 1, *others])
    assert begun(of_integers) == keys[1]
    with refuses(checkpoint.ChangedFlagsError, "processors", count, count + 1):
        begun(of_floats)
    # What a seed gives is a matter of the version alone.
    assert provenance.digest(of_floats) == digest
