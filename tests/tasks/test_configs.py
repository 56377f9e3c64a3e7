# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math

import pytest

from dpfl.tasks import configs, registry

WRONG = [
    ("digits", "batch_size", 0, ValueError),
    ("digits", "batch_size", True, TypeError),
    ("digits", "batch_size", 2.5, TypeError),
    ("digits", "client_epochs", -1, ValueError),
    ("digits", "max_examples_per_client", 0, ValueError),
    ("digits", "shuffle_seed", -1, ValueError),
    ("digits", "model", "lstm", ValueError),
    ("digits", "num_clients", 0, ValueError),
    ("digits", "dirichlet_alpha", math.nan, ValueError),
    ("digits", "dirichlet_alpha", math.inf, ValueError),
    ("digits", "dirichlet_alpha", 0.0, ValueError),
    ("digits", "dirichlet_alpha", 1e-300, ValueError),
    ("digits", "dirichlet_alpha", 1e300, ValueError),
    ("digits", "client_epochs", 10**6, ValueError),
    ("digits", "dirichlet_alpha", True, TypeError),
    ("digits", "dirichlet_alpha", "1", TypeError),
    ("digits", "test_fraction", 1.0, ValueError),
    ("docs", "vocab_size", 0, ValueError),
    ("docs", "sequence_length", 1, ValueError),
    ("docs", "lstm_size", 0, ValueError),
    ("docs", "min_sentences", 0, ValueError),
    ("docs", "docs_source", "site-packages", ValueError),
    ("docs", "data_dir", "/tmp", ValueError),
    ("docs", "data_dir", 3, TypeError),
    ("docs", "validation_fraction", 1.0, ValueError),
    ("docs", "max_test_examples", 0, ValueError),
    ("emnist", "model", "small_cnn", ValueError),
    ("emnist", "data_dir", "", TypeError),
    ("emnist", "data_dir", 3, TypeError),
    ("emnist", "download", 1, TypeError),
    ("emnist", "verify", "none", ValueError),
    ("stackoverflow", "max_test_examples", 0, ValueError),
    ("stackoverflow", "embedding_size", -3, ValueError),
    ("synthetic", "examples_per_client", 0, ValueError),
    ("synthetic", "model", None, ValueError),
]


@pytest.mark.parametrize("task, name, value, error", WRONG)
def test_wrong_option_is_refused_in_one_sentence_with_its_value(
    task, name, value, error
):
    with pytest.raises(error) as caught:
        registry.make_config(task, **{name: value})
    message = str(caught.value)
    assert message.startswith(name)
    assert repr(value) in message
    assert "\n" not in message and not message.endswith(".")


def test_unknown_task_and_option_name_what_there_is():
    with pytest.raises(ValueError, match="digits, docs, emnist.*'cifar'"):
        registry.make_config("cifar")
    with pytest.raises(
        ValueError, match="option of digits must be one of .*num_clients.*vocab"
    ):
        registry.make_config("digits", vocab=3)


def test_options_carry_type_default_and_help():
    options = {o.name: o for o in registry.task_options("digits")}
    assert options["num_clients"].value_type is int
    assert options["num_clients"].default == 100
    assert not options["num_clients"].optional
    assert options["max_examples_per_client"].value_type is int
    assert options["max_examples_per_client"].optional
    assert options["dirichlet_alpha"].value_type is float
    assert options["model"].value_type is str


@pytest.mark.parametrize("task", registry.task_names())
def test_every_option_has_one_type_and_help_and_a_default_that_passes(task):
    for option in registry.task_options(task):
        assert option.value_type in (int, float, str, bool)
        assert option.help.endswith(".") and "\n" not in option.help
    assert registry.make_config(task) == registry.TASKS[task].config_class()


def test_configs_are_frozen():
    with pytest.raises(AttributeError):
        configs.DigitsConfig().batch_size = 3


def test_literature_defaults():
    words = configs.StackOverflowConfig()
    assert words.vocab_size == 10_000
    assert words.sequence_length == 20
    assert words.max_examples_per_client == 256
    assert configs.EmnistConfig().model == "cnn"
    assert not words.download
