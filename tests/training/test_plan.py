# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from dpfl import accounting, machine, mechanisms, planning
from dpfl.training import engine, provenance
from tests.refusals import refuses
from tests.training import fakes


def test_missing_settings_default_to_the_task_s(make_plan):
    plan = make_plan()
    config = plan.config
    assert (config.cohort_size, config.rounds) == (5, 8)
    assert (plan.client_lr, plan.server_lr, config.server_momentum) == (0.1, 1.0, 0.9)
    assert config.epsilon == 8.0 and config.delta == 1e-3
    assert plan.participation == mechanisms.PoissonSampling(fakes.POPULATION, 5, 8)
    assert isinstance(plan.mechanism, mechanisms.Gaussian)
    assert plan.mechanism.clip_norm == 0.5
    assert 7.9 < plan.cost.planned.epsilon <= 8
    assert plan.last_round == 8
    assert make_plan(server_optimizer="adam").config.server_momentum is None
    without = make_plan(mechanism="none", weighted=True)
    assert without.config.epsilon is None and without.last_round == 8


def test_given_settings_are_kept(make_plan):
    plan = make_plan(
        mechanism_options={"clip_norm": 0.25},
        cohort_size=4,
        rounds=3,
        client_lr=0.3,
        server_momentum=0.0,
        noise_multiplier=1.5,
        delta=1e-4,
        accounting_method="tight",
    )
    assert plan.mechanism == mechanisms.Gaussian(4, 0.25, 1.5)
    assert plan.config.epsilon is None and plan.config.server_momentum == 0.0
    event = plan.mechanism.dp_event(plan.participation, fakes.DIMENSION)
    expected = accounting.epsilon(event, 1e-4, accounting_method="tight")
    assert plan.cost.planned == expected


def test_compression_rate_has_a_default_and_aliases_keep_fraction(make_plan):
    for options, expected in (({}, 0.01), ({"compression_rate": 10}, 0.1)):
        plan = make_plan(
            mechanism="l2_csgm", mechanism_options=options, noise_multiplier=1.0
        )
        assert plan.mechanism.keep_fraction == expected


def test_insufficient_memory_is_refused_before_work(make_plan, monkeypatch):
    """An update has 100 parameters of four bytes."""
    plan = make_plan(noise_multiplier=1.0, concurrency=2)
    vectors = plan.mechanism.run_vectors(fakes.DIMENSION)
    more = make_plan(noise_multiplier=1.0, concurrency=5)
    assert more.memory > plan.memory > 400 * vectors
    stream = {"noise_stream": "run", "matrix_method": "toeplitz"}
    banded = [
        make_plan(
            mechanism="matrix_factorization",
            participation="cyclic_poisson",
            min_separation=4,
            noise_multiplier=1.0,
            mechanism_options={**stream, "matrix_bands": bands},
        )
        for bands in (1, 4)
    ]
    assert banded[1].memory - banded[0].memory == 400 * 3
    monkeypatch.setattr(machine, "free_memory", lambda: int(400 * vectors))
    make_plan(noise_multiplier=1.0, concurrency=2)
    monkeypatch.setattr(machine, "free_memory", lambda: int(400 * vectors) - 1)
    monkeypatch.setattr(planning, "calibrate", None)
    with refuses(ValueError, "gaussian", "0.0 GB"):
        make_plan(epsilon=4.0, concurrency=2)


@pytest.mark.parametrize(
    ("mechanism", "participation"),
    [("matrix_factorization", "cyclic_poisson"), ("sgmf", "once_per_epoch")],
)
def test_run_long_noise_stream_spans_all_rounds(make_plan, mechanism, participation):
    options = {"noise_stream": "run", "matrix_method": "banded", "matrix_bands": 3}
    settings = {
        "mechanism": mechanism,
        "participation": participation,
        "min_separation": 3,
        "mechanism_options": options,
    }
    plan = make_plan(epsilon=4.0, **settings)
    stream = plan.mechanism
    assert (stream.rounds, stream.stream_rounds) == (8, 8)
    assert stream.factorization.factors.diagonals.shape == (8, 3)
    assert plan.participation.separation == 3
    assert 0.99 < plan.cost.planned.epsilon / 4.0 <= 1
    # The run ends early, and the noise stays that of all eight rounds.
    given = {**settings, "epsilon": 2.0, "noise_multiplier": stream.noise_multiplier}
    halved = make_plan(**given)
    assert 0 < halved.last_round < 8
    assert halved.mechanism.stddev == stream.stddev


def test_settings_hold_only_what_affects_results(make_plan):
    found = provenance.settings(make_plan(checkpoint_every=2, seed=4))
    for name in ("output_dir", "checkpoint_every", "progress", "data_dir", "flags"):
        assert name not in found
    assert found["mechanism"] == "gaussian" and found["seed"] == 4
    assert found["batch_size"] == 3 and found["clip_norm"] == 0.5
    assert found["task fingerprint"] == "f"
    # As it was given: the calibrated one follows from the others.
    assert found["noise_multiplier"] is None and found["epsilon"] == 8.0


def test_the_manifest_says_noise_and_versions(make_plan):
    plan = make_plan(seed=4)
    found = provenance.manifest(plan)
    assert found["noise"] == {"noise_multiplier": plan.mechanism.noise_multiplier}
    assert found["noise"]["noise_multiplier"] > 0.5
    for name in ("dpfl", "python", "tensorflow", "numpy", "scipy", "dp-accounting"):
        assert found["versions"][name]
    assert found["flags"]["population"] == fakes.POPULATION
    assert set(found["source"]) == {"dpfl's files", "plug-ins' files"}
    assert found["source"]["dpfl's files"] == provenance.source_digest()


def test_source_digest_changes_with_a_module_s_text(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance.dpfl, "__file__", str(tmp_path / "__init__.py"))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.py").write_text("x = 1\n")
    before = provenance.source_digest()
    (tmp_path / "a" / "b.pyc").write_bytes(b"compiled")
    assert provenance.source_digest() == before
    (tmp_path / "a" / "b.py").write_text("x = 2\n")
    changed = provenance.source_digest()
    (tmp_path / "a" / "b.py").rename(tmp_path / "b.py")
    assert len({before, changed, provenance.source_digest()}) == 3


def test_renamed_settings_keep_their_names_in_the_digest(make_plan, monkeypatch):
    plan, poisson = (
        make_plan(seed=4, participation=p) for p in ("random_allocation", "poisson")
    )
    of_jax = {"engine", "precision", "clients_at_once"}
    # Runs without canaries have the digests of runs before there were any.
    of_manifest = {"seed", "measure", "canaries", *of_jax} ^ set(
        provenance.settings(plan)
    )
    monkeypatch.setattr(provenance.files, "digest", lambda content: content)
    in_digest = provenance.digest(plan)["flags"]
    assert in_digest["accountant"] == plan.config.accounting_method == "rdp"
    assert of_manifest ^ set(in_digest) == {"accounting_method", "accountant"}
    assert in_digest["participation"] == "random_slot"
    assert provenance.digest(poisson)["flags"]["participation"] == "poisson"


def test_jax_beside_tff_is_refused(make_plan):
    assert make_plan().config.engine == "tff"
    with refuses(ValueError, "engine", "jax"):
        make_plan(engine="jax")


def test_budget_needing_too_much_noise_is_refused(make_plan):
    with refuses(ValueError, 10000, "epsilon", 1e-6):
        make_plan(epsilon=1e-6, delta=1e-9)


@pytest.mark.parametrize(
    "changes, parts",
    [
        *(
            (changes, [*changes, *changes.values()])
            for changes in (
                {"measure": "everything"},
                {"rounds": 0},
                {"noise_multiplier": 1e30},
                {"client_lr": -1.0},
                {"delta": 1.0},
                {"server_momentum": 1.0},
                {"task": "cifar"},
                {"mechanism": "laplace"},
            )
        ),
        ({"rounds_per_epoch": 2}, ["rounds_per_epoch", 2]),
        ({"mechanism": "sgmf"}, ["participation", "once_per_epoch", "sgmf"]),
        ({"weighted": True}, ["weighted", "gaussian"]),
        ({"mechanism": "none", "epsilon": 1.0}, ["epsilon", "none"]),
        ({"profile": True, "measure": "released"}, ["profile", True]),
        ({"mechanism_options": {"clip_norm": -1.0}}, ["clip_norm", -1.0]),
    ],
)
def test_bad_settings_are_refused_without_the_task(changes, parts):
    with refuses(ValueError, *parts):
        fakes.run_config(**changes)


@pytest.mark.parametrize(
    "changes, parts",
    [
        ({"cohort_size": 21}, ("cohort_size", 20, 21)),
        ({"noise_multiplier": 1e-9}, ("noise_multiplier", 5.96e-08, 1e-9)),
        (
            {"mechanism": "dome", "mechanism_options": {"sketch_size": 16}},
            ("participation", "once_per_epoch", "fixed", "poisson"),
        ),
        (
            {"server_optimizer": "adam_debiased", "mechanism": "l2_csgm"},
            ("server_optimizer", "adam_debiased"),
        ),
    ],
)
def test_settings_unfit_for_the_task_are_refused(
    make_plan, monkeypatch, changes, parts
):
    # Before a calibration, which would fail of another error.
    monkeypatch.setattr(planning, "calibrate", None)
    with refuses(ValueError, *parts):
        make_plan(**changes)


def test_exact_metrics_of_updates_need_the_simulation_flag(make_plan):
    energy = {
        "mechanism": "dome",
        "participation": "fixed",
        "server_momentum": 0.0,
        "noise_multiplier": 1.0,
        "mechanism_options": {"measures_energy": True, "sketch_size": 4},
    }
    with refuses(ValueError, "measure", "exact_for_simulation"):
        make_plan(**energy)
    make_plan(**energy, measure="exact_for_simulation")


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("tff", "precision", "bfloat16"),
        ("tff", "clients_at_once", 4),
        ("tff", "profile", True),
        *(("jax", "round_deadline", 5.0), ("jax", "concurrency", 2)),
        ("jax", "worker_isolation", "anyone_can_connect"),
    ],
)
def test_settings_of_the_other_engine_are_refused(
    make_plan, monkeypatch, name, setting, value
):
    monkeypatch.setattr(engine, "of", lambda given: name)
    with refuses(ValueError, setting, name, value):
        make_plan(**{setting: value})


@pytest.mark.parametrize("place", ["a", "a:", ":1", "a:b", "", None])
def test_an_address_is_a_host_and_a_port(place):
    given = {"num_processes": 2, "process_id": 1}
    with refuses(ValueError, "coordinator_address", repr(place)):
        fakes.run_config(**given, coordinator_address=place)
    for right in ("a.b:1", "10.0.0.1:65535", "[::1]:80"):
        fakes.run_config(**given, coordinator_address=right)


def test_a_model_of_the_other_engine_is_refused(make_plan, monkeypatch):
    task = fakes.fake_task()
    task.engines = ("jax",)
    monkeypatch.setattr(fakes, "fake_task", lambda: task)
    with refuses(ValueError, "engine", "jax", "tff"):
        make_plan()
