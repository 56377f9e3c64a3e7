# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The options of every task, checked when they are made.

    config = configs.DigitsConfig(num_clients=10, model="small_cnn")

TensorFlow is not imported here: a binary can turn the fields into flags, and refuse a
bad value, before anything slow is imported.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Optional

from dpfl import checks
from dpfl.fields import Checked, option

DIGITS_MODELS = ("small_cnn", "tiny_cnn", "cnn", "2nn")
EMNIST_MODELS = ("cnn", "2nn")
# Sets to evaluate on: examples of users that are trained on, and of users that are not.
EVALUATED = ("test", "validation", "unseen_test", "unseen_validation")
SYNTHETIC_MODELS = ("cnn", "2nn", "lstm", "small_cnn")
# Limits beyond which numbers are mistakes: the graph, the list of the clients or one
# client's examples would fill a machine before anything is learned.
_MOST_EXAMPLES = 10**9
_MOST_MADE_UP_EXAMPLES = 10**5
_MOST_MADE_UP_CLIENTS = 10**7
_MOST_PARAMETERS = 10**8
# Each token, and each pass, is a part of the graph.
_MOST_STEPS = _MOST_PASSES = 1000
# Limits beyond which numpy's gamma variates are all zero or infinite.
_LARGEST_CONCENTRATION = 1e6
# Units of 2NN, and the units with which it has 1e8 parameters.
_HIDDEN_UNITS, _MOST_HIDDEN_UNITS = 200, 9584
# Largest seed of both TensorFlow and numpy.
_LARGEST_SEED = 2**63 - 1
_LARGEST_SPLIT_SEED = 2**32 - 1

# Options that several tasks have, with defaults of their own.
_OF_EXAMPLES = {"at_least": 1, "at_most": _MOST_EXAMPLES}
_batch = functools.partial(
    option, text="Number of examples in a local batch.", **_OF_EXAMPLES
)
_epochs = functools.partial(
    option,
    text="Local epochs of a client in one round.",
    at_least=1,
    at_most=_MOST_PASSES,
)
_most_of_client = functools.partial(
    option, text="Most examples in a local epoch; 'none' for all.", **_OF_EXAMPLES
)
_most_tested = functools.partial(
    option, text="Most examples in the evaluation set; 'none' for all.", **_OF_EXAMPLES
)
_folder = functools.partial(option, text="Folder of the data files.", check=checks.path)


def _model(default: str, choices: Collection[str]) -> Any:
    return option(default, f"One of {', '.join(choices)}.", choices=choices)


@dataclasses.dataclass(frozen=True)
class TaskConfig(Checked):
    """Options of every task: the conversion of a client's examples to batches.

    The local order of examples is a function of `shuffle_seed`, the client, the round
    and the pass alone. A pass is cut after shuffling; its last batch may be smaller.

    Attributes:
      former_fields: Values of fields that are gone, which a run's digest still has.
    """

    former_fields: ClassVar[Mapping[str, Any]] = {}

    batch_size: int = _batch(16)
    client_epochs: int = _epochs(1)
    max_examples_per_client: Optional[int] = _most_of_client(None)
    shuffle_seed: Optional[int] = option(
        0,
        "Seed of the local order of examples; 'none' keeps the stored order.",
        at_least=0,
        at_most=_LARGEST_SEED,
    )


@dataclasses.dataclass(frozen=True)
class SeededConfig(TaskConfig):
    """Options of tasks that dpfl splits by itself, whatever the run's seed."""

    partition_seed: int = option(
        0,
        "Seed of the split: who has what, and what is held out.",
        at_least=0,
        at_most=_LARGEST_SPLIT_SEED,
    )


@dataclasses.dataclass(frozen=True)
class SplitConfig(SeededConfig):
    """Options of tasks whose share for validation may be chosen."""

    validation_fraction: float = option(
        0.0,
        "Share of training data to evaluate on instead of the test set.",
        at_least=0,
        below=1,
    )


@dataclasses.dataclass(frozen=True)
class DealtConfig(SplitConfig):
    """Options of tasks whose images have no owners, and are dealt to clients.

    The share `validation_fraction` of each label's images outside of the test set is
    evaluated on in its place; 0 means the test set. The split is independent of the
    run's seed.
    """

    model: str = _model("small_cnn", DIGITS_MODELS)
    num_clients: int = option(
        100,
        "Number of clients that the images are split over.",
        at_least=1,
        at_most=_MOST_MADE_UP_CLIENTS,
    )
    dirichlet_alpha: float = option(
        0.5,
        "Concentration of a client's labels; small is heterogeneous.",
        at_least=0.01,
        at_most=_LARGEST_CONCENTRATION,
    )


@dataclasses.dataclass(frozen=True)
class DigitsConfig(DealtConfig):
    """Options of `digits`."""

    client_epochs: int = _epochs(5)
    test_fraction: float = option(
        0.2, "Share of each label's images held out for testing.", above=0, below=1
    )


@dataclasses.dataclass(frozen=True)
class FashionConfig(DealtConfig):
    """Options of `fashion`, whose test set is the published one.

    Attributes:
      data_dir: Folder of the four files, or of their folder `fashion-mnist`; by default
        that of Debian's package `dataset-fashion-mnist`.
    """

    batch_size: int = _batch(20)
    num_clients: int = option(2000, "Number of clients that the images are split over.")
    data_dir: Optional[str] = _folder("/usr/share/datasets")


@dataclasses.dataclass(frozen=True)
class RecurrentConfig(TaskConfig):
    """Options of tasks that predict the next word."""

    vocab_size: int = option(
        10_000, "Number of words in the vocabulary.", at_least=1, at_most=10**7
    )
    sequence_length: int = option(
        20,
        "Tokens in a sentence, cut or padded.",
        at_least=2,
        at_most=_MOST_STEPS,
    )
    embedding_size: int = option(
        96, "Width of the word embedding.", at_least=1, at_most=10**5
    )
    lstm_size: int = option(670, "Units of the LSTM.", at_least=1, at_most=10**5)

    def __post_init__(self) -> None:
        super().__post_init__()
        words, width, units = self.vocab_size, self.embedding_size, self.lstm_size
        parameters = 2 * words * width + 4 * units * (units + width) + units * width
        if parameters > _MOST_PARAMETERS:
            raise ValueError(
                "vocab_size, embedding_size and lstm_size must be so small that the "
                f"model has at most {_MOST_PARAMETERS:.0e} parameters, found {words}, "
                f"{width} and {units}, which make {parameters:.2g}"
            )


@dataclasses.dataclass(frozen=True)
class DocsConfig(RecurrentConfig, SplitConfig):
    """Options of `docs`.

    Modules are held out whole. Tune settings with a `validation_fraction` of the
    modules outside of the test set.
    """

    former_fields = {"docs_source": "library"}

    max_examples_per_client: Optional[int] = _most_of_client(64)
    vocab_size: int = option(2000, "Number of words in the vocabulary.")
    embedding_size: int = option(32, "Width of the word embedding.")
    lstm_size: int = option(64, "Units of the LSTM.")
    min_sentences: int = option(
        8,
        "Least number of sentences in a module that is a client.",
        at_least=1,
        at_most=_MOST_EXAMPLES,
    )
    test_fraction: float = option(
        0.1, "Share of the modules held out for testing.", above=0, below=1
    )
    max_test_examples: Optional[int] = _most_tested(None)


@dataclasses.dataclass(frozen=True)
class FilesConfig(TaskConfig):
    """Options of tasks that are read from files: a folder, `~/.tff` if None."""

    data_dir: Optional[str] = _folder(None)
    download: bool = option(False, "Download a missing data file.")


@dataclasses.dataclass(frozen=True)
class MnistConfig(FilesConfig, SplitConfig):
    """Options of `mnist`.

    A share of each writer's digits is at least one digit. Tune settings with a
    `validation_fraction`, which leaves the test set unread.
    """

    batch_size: int = _batch(20)
    model: str = _model("small_cnn", DIGITS_MODELS)
    test_fraction: float = option(
        0.1, "Share of each writer's digits held out.", above=0, below=1
    )


@dataclasses.dataclass(frozen=True)
class SqlConfig(FilesConfig):
    """Options of the two tasks that are read from a SQLite file.

    Attributes:
      allow_partial_data: Accept a file with other counts, or a download with another
        SHA-256, than the published ones (a damaged file is refused all the same).
    """

    allow_partial_data: bool = option(
        False, "Accept a data file with other counts than the published ones."
    )
    max_test_examples: Optional[int] = _most_tested(None)


@dataclasses.dataclass(frozen=True)
class EmnistConfig(SqlConfig):
    """Options of `emnist`."""

    batch_size: int = _batch(20)
    model: str = _model("cnn", EMNIST_MODELS)


@dataclasses.dataclass(frozen=True)
class FemnistConfig(SeededConfig):
    """Options of `femnist`.

    The sets are the same whichever is evaluated on: tune settings on `validation`.

    Attributes:
      data_dir: Folder with `femnist.npz`, or with LEAF's json files below it; `~/.tff`
        if None.
    """

    batch_size: int = _batch(20)
    model: str = _model("cnn", EMNIST_MODELS)
    data_dir: Optional[str] = _folder(None)
    evaluate_on: str = option("test", "Set to evaluate on", choices=EVALUATED)


@dataclasses.dataclass(frozen=True)
class CourtConfig(RecurrentConfig, SeededConfig):
    """Options of `court`, whose speakers are held out whole.

    Tune settings on `validation`.

    Attributes:
      data_dir: Folder with `court.npz`, or with the transcripts below it; `~/.tff` if
        None.
    """

    batch_size: int = _batch(10)
    max_examples_per_client: Optional[int] = _most_of_client(20)
    data_dir: Optional[str] = _folder(None)
    evaluate_on: str = option("test", "Set to evaluate on", choices=EVALUATED[:2])
    max_test_examples: Optional[int] = _most_tested(None)


@dataclasses.dataclass(frozen=True)
class StackOverflowConfig(RecurrentConfig, SqlConfig):
    """Options of `stackoverflow`, with the literature's values as defaults."""

    max_examples_per_client: Optional[int] = _most_of_client(256)
    max_test_examples: Optional[int] = _most_tested(10_000)


@dataclasses.dataclass(frozen=True)
class SyntheticConfig(TaskConfig):
    """Options of `synthetic`: any model of the other tasks, with made-up examples.

    Attributes:
      model: 'cnn' or '2nn' (62 classes, as `emnist`), 'lstm' (as `stackoverflow`) or
        'small_cnn' (as `digits`).
    """

    batch_size: int = _batch(20)
    model: str = _model("cnn", SYNTHETIC_MODELS)
    hidden_units: int = option(
        _HIDDEN_UNITS,
        "Units of a hidden layer of '2nn'.",
        at_least=1,
        at_most=_MOST_HIDDEN_UNITS,
    )
    num_clients: int = option(
        3400, "Number of clients.", at_least=1, at_most=_MOST_MADE_UP_CLIENTS
    )
    examples_per_client: int = option(
        100,
        "Number of examples of each client.",
        at_least=1,
        at_most=_MOST_MADE_UP_EXAMPLES,
    )
    num_test_examples: int = option(
        1000,
        "Number of examples in the evaluation set.",
        at_least=1,
        at_most=_MOST_MADE_UP_EXAMPLES,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        is_right = self.model == "2nn" or self.hidden_units == _HIDDEN_UNITS
        wanted = f"{_HIDDEN_UNITS} for the model {self.model!r}"
        checks.require(is_right, "hidden_units", wanted, self.hidden_units)
