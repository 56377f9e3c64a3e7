# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import pathlib
import subprocess
import sys

import pytest

from dpfl.tasks import models, registry

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "does, heavy",
    [
        ("t.make_config('digits'); t.task_options('emnist')", "tensorflow"),
        ("t.load_task('synthetic')", "tensorflow_federated"),
    ],
)
def test_importing_tasks_and_what_needs_little_is_light(does, heavy):
    modules = ("sklearn", "tensorflow_federated", heavy)
    code = (
        f"import sys, dpfl.tasks as t; {does}; "
        f"sys.exit(any(name in sys.modules for name in {modules}))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_load_task_hands_over_the_options():
    task = registry.load_task("synthetic", model="2nn", num_clients=7, batch_size=3)
    assert task.name == "synthetic"
    assert task.population == 7
    assert task.config == registry.make_config(
        "synthetic", model="2nn", num_clients=7, batch_size=3
    )


@pytest.mark.parametrize("name", ["digits", "docs", "synthetic"])
def test_the_table_knows_the_model_without_building_it(name):
    assert registry.task_entry(name).dimension == registry.load_task(name).dimension


def test_the_table_knows_the_models_whose_data_are_downloaded():
    emnist, words = (registry.task_entry(n) for n in ("emnist", "stackoverflow"))
    assert models.cnn(62, 0).count_params() == emnist.dimension
    o = words.config_class()
    built = models.lstm(
        o.vocab_size + 4, o.sequence_length, o.embedding_size, o.lstm_size, 0
    )
    assert built.count_params() == words.dimension


def test_each_task_is_judged_by_a_metric_that_it_has():
    found = {name: registry.task_entry(name).measure for name in registry.task_names()}
    assert [name for name, m in found.items() if m.lower_is_better] == ["docs"]
    columns = found["docs"].column, found["docs"].final_column
    assert columns == ("eval_loss", "final_loss")
    assert found["digits"].label == "test accuracy"
    for name in ("digits", "docs", "synthetic"):
        metrics = registry.load_task(name).metrics()
        assert found[name].metric in [metric.name for metric in metrics]


def test_flag_files_are_there():
    for name in registry.task_names():
        flag_file = registry.task_entry(name).flag_file
        if flag_file is not None:
            assert list((ROOT / "configs").rglob(flag_file)), flag_file
    with pytest.raises(ValueError, match="task must be one of .* found 'cifar'"):
        registry.task_entry("cifar")
