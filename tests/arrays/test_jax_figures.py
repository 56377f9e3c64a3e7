# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Lines of the papers' figures at their own scale, in JAX, on small real formats."""

import functools

import pytest
from absl import flags

from dpfl import machine
from dpfl.tasks import registry
from dpfl.training import plan as plan_lib
from experiments import train
from experiments.papers.index import FIGURES
from experiments.trainings import sweep, tuning
from tests.arrays import test_jax_tasks
from tests.arrays.test_jax_engine import opened

TASKS = ("emnist", "stackoverflow")
# Writers and users, as many as the largest cohorts; the epochs of correlated noise are
# short, since its matrices take minutes.
CLIENTS, ROUNDS = 1000, {"rounds": 8, "rounds_per_epoch": 8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("papers")
    test_jax_tasks.write_emnist(path, CLIENTS, 1)
    words = [f"word{number}" for number in range(10_000)]
    test_jax_tasks.write_stackoverflow(path, words, CLIENTS, 1)
    return path


@pytest.fixture
def loaded_once(monkeypatch):
    once = functools.lru_cache(maxsize=None)(registry.load_config)
    monkeypatch.setattr(registry, "load_config", once)
    # A plan takes none of the memory that it names.
    monkeypatch.setattr(machine, "free_memory", lambda: None)


def runs(name):
    """The runs of a figure at the scale of its paper, with its data."""
    figure = FIGURES[name]
    works = figure.grid("paper") if "paper" in figure.scales else []
    runs = [work for work in works if isinstance(work, sweep.Training)]
    return [work for work in runs if work.all_flags["task"] in TASKS]


def planned(work, folder, tmp_path):
    """The plan of a run of a few rounds, with noise in place of a budget."""
    left_out = "flagfile", "epsilon"
    given = {n: v for n, v in work.all_flags.items() if n not in left_out}
    given.update(engine="jax", data_dir=folder, allow_partial_data=True)
    given.setdefault("noise_multiplier", 1.0)
    given.update((n, v) for n, v in ROUNDS.items() if n in given)
    words = sweep.training_work(work.labels, given).arguments(tmp_path)
    flags.FLAGS.unparse_flags()
    for flag in flags.FLAGS:
        flags.FLAGS[flag].unparse()
    flags.FLAGS(["dpfl-train", *words])
    train.forget_other_mechanisms()
    return plan_lib.make_plan(train.run_config())


@pytest.mark.parametrize("name", filter(runs, FIGURES))
def test_lines_of_the_papers_are_plans_of_jax(name, folder, tmp_path, loaded_once):
    """Runs with the ends of every number of a figure, and each word."""
    for work in tuning.ends(runs(name)):
        plan = planned(work, folder, tmp_path)
        assert plan.config.engine == "jax" and plan.task.name == work.all_flags["task"]
        with opened(plan, tmp_path):
            pass
