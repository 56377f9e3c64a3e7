# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math

import numpy as np
import pytest

from dpfl.tasks import configs, metrics, models, registry, text
from dpfl.tasks import task as task_lib
from dpfl.tasks.registry import load_task
from tests.refusals import refuses


def test_table_has_dimensions_of_the_default_models():
    found = {name: registry.task_entry(name) for name in registry.task_names()}
    for name, entry in found.items():
        own = entry.config_class()
        if isinstance(own, configs.RecurrentConfig):
            network = text.next_word_pieces(own)["network"]
        else:
            classes = 62 if own.model == "cnn" else 10
            network = models.IMAGE_MODELS[own.model](classes)
        assert network.dimension == entry.dimension, name


def test_each_task_s_metric_is_one_of_its_own():
    found = {name: registry.task_entry(name).metric for name in registry.task_names()}
    assert [name for name, m in found.items() if m.lower_is_better] == ["docs"]
    columns = found["docs"].column, found["docs"].final_column
    assert columns == ("eval_loss", "final_loss")
    assert found["digits"].label == "test accuracy"
    for name in ("digits", "synthetic"):
        assert found[name].name in load_task(name).metric_names


@pytest.mark.parametrize(
    "names", [["accuracy"], ["loss"], ["loss", "loss", "accuracy"], ["loss", "a/b"]]
)
def test_task_without_its_metrics_is_refused(monkeypatch, names):
    rows = tuple(metrics.LabelMetric(name, None, "unscored") for name in names)
    changed = metrics.Objective(metrics=rows)
    real = task_lib.Task
    monkeypatch.setattr(
        task_lib, "Task", lambda **parts: real(**parts, objective=changed)
    )
    wrong = repr("a/b" if "a/b" in names else names)
    with refuses(ValueError, wrong):
        load_task("synthetic", num_clients=2, examples_per_client=2)


# Values out of range, by task and option; then values of another type.
VALUES = {
    "digits": {
        **dict.fromkeys(["batch_size", "max_examples_per_client", "num_clients"], (0,)),
        **{"client_epochs": (-1, 10**6), "shuffle_seed": (-1,), "model": ("lstm",)},
        "dirichlet_alpha": (math.nan, math.inf, 0.0, 1e-300, 1e300),
        "test_fraction": (1.0,),
    },
    "docs": {
        **dict.fromkeys(["vocab_size", "lstm_size", "min_sentences"], (0,)),
        **{"sequence_length": (1,), "max_test_examples": (0,)},
        "validation_fraction": (1.0,),
    },
    "emnist": {"model": ("small_cnn",)},
    "stackoverflow": {"max_test_examples": (0,), "embedding_size": (-3,)},
    "synthetic": {
        **{"examples_per_client": (0,), "model": (None,)},
        # Other models have sizes of their own; 2NN alone has so many at most.
        "hidden_units": (0, 300, 9585),
    },
}
TYPES = {
    "digits": {"batch_size": (True, 2.5), "dirichlet_alpha": (True, "1")},
    "emnist": {"data_dir": ("", 3), "download": (1,)},
}
WRONG = [
    (task, name, value, error)
    for error, table in ((ValueError, VALUES), (TypeError, TYPES))
    for task, options in table.items()
    for name, values in options.items()
    for value in values
]


@pytest.mark.parametrize("task, name, value, error", WRONG)
def test_wrong_option_is_refused_with_its_value(task, name, value, error):
    with refuses(error, name, repr(value)):
        registry.make_config(task, **{name: value})


def test_unknown_task_or_option_lists_the_choices():
    with refuses(ValueError, "digits", "docs", "emnist", "cifar"):
        registry.make_config("cifar")
    with refuses(ValueError, "digits", "num_clients", "vocab"):
        registry.make_config("digits", vocab=3)


@pytest.mark.parametrize(
    "model, count",
    [("cnn", 1_018_174), ("2nn", 209_662), ("lstm", 4_050_748), ("small_cnn", 15_994)],
)
def test_paper_size_shapes(model, count):
    task = load_task("synthetic", model=model, num_clients=50, examples_per_client=45)
    assert task.benchmark_only and not task.clients_hold_test_examples
    assert task.dimension == count
    x, y = task.clients.read(np.array([task.population - 1]))
    assert len(x) == len(y) == 45
    for part, spec in zip((x, y), task.element_spec):
        assert part.dtype == spec.dtype and part.shape[1:] == spec.shape[1:]
    *_, (last, shape) = task.network.with_shapes()
    *inner, classes = last.output_shape(shape)
    assert inner == list(y.shape[1:]) and 0 <= np.min(y) and np.max(y) < classes


def test_examples_are_a_function_of_the_client():
    def labels(index):
        task = load_task("synthetic", examples_per_client=20)
        return task.clients.read(np.array([index]))[1].tolist()

    assert labels(5) == labels(5) != labels(6)


def test_any_number_of_clients():
    wide = load_task("synthetic", model="2nn", hidden_units=30)
    assert wide.dimension == 784 * 30 + 30 + 30 * 30 + 30 + 30 * 62 + 62
    task = load_task("synthetic", num_clients=1_000_000, examples_per_client=1)
    assert task.population == 1_000_000
    assert task.client_index("client_999999") == 999_999
    assert len(task.clients.read(np.array([999_999]))[1]) == 1


def test_a_cohort_without_clients_has_no_examples():
    clients = load_task("synthetic", examples_per_client=3).clients
    for none, some in zip(clients.read(np.arange(0)), clients.read(np.arange(2))):
        assert len(none) == 0 and len(some) == 6
        assert (none.shape[1:], none.dtype) == (some.shape[1:], some.dtype)


def test_fingerprint_follows_the_shape():
    prints = {
        load_task("synthetic", num_clients=n, model=m).fingerprint
        for n in (3, 4)
        for m in ("cnn", "2nn")
    }
    assert len(prints) == 4


def test_entry_s_fields_are_checked():
    given = {"config_class": configs.TaskConfig, "module": "x", "dimension": 100}
    for wrong in ({"config_class": int}, {"module": 3}, {"metric": "x"}):
        [field] = wrong
        with refuses(TypeError, field, wrong[field]):
            registry.TaskEntry(**{**given, **wrong})
