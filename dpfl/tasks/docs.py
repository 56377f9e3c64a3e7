# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Next-word prediction on docstrings of Python's library or of installed packages.

    task = docs.load(configs.DocsConfig(vocab_size=2000))

A client is a module. The text is read from the source files with `ast`; nothing is
imported. The data depend on the running Python, so compare results only between runs
with the same `Task.fingerprint`.
"""

from __future__ import annotations

import functools
import hashlib
import pathlib
import sysconfig
from collections.abc import Sequence

import numpy as np

from dpfl import files
from dpfl.tasks import corpus as corpora
from dpfl.tasks import data_files, packages, text
from dpfl.tasks import task as task_lib
from dpfl.tasks.configs import DocsConfig

MINIMUM_MODULES = 20

DEFAULTS = task_lib.TrainingDefaults(
    client_lr=0.5, server_lr=0.5, clip_norm=0.3, cohort_size=50, rounds=60
)
PACKAGES_DEFAULTS = task_lib.TrainingDefaults(
    client_lr=1.0, server_lr=1.0, clip_norm=0.5, cohort_size=100, rounds=128
)


@functools.lru_cache(maxsize=4)
def read_library(folder: str) -> corpora.Corpus:
    """The sentences of every module of the standard library in a folder."""
    return corpora.read(corpora.module_files(folder))


def read_packages(
    config: DocsConfig, folder: str | None = None
) -> tuple[corpora.Corpus, list[packages.Package]]:
    """The sentences of the packages that dpfl pins, cached, and these packages.

    Args:
      config: Options with the cache's folder.
      folder: Folder of the installed packages; None for the running Python's path.

    Raises:
      ValueError: If a package is missing or has another version, or the folder cannot
        be written.
    """
    installed = packages.installed(packages.pinned(), folder)
    kept = pathlib.Path(data_files.data_folder(config))
    return packages.read(installed, files.output_folder("data_dir", kept)), installed


def build_vocabulary(
    corpus: corpora.Corpus, sentences: np.ndarray, size: int
) -> list[str]:
    """The `size` most frequent words of some sentences, ties in alphabetical order.

    Args:
      corpus: The corpus.
      sentences: Indices of the sentences.
      size: Number of words.

    Raises:
      ValueError: If there are fewer distinct words.
    """
    counts = corpus.word_counts(sentences)
    known = np.flatnonzero(counts)
    if len(known) < size:
        raise ValueError(
            f"vocab_size must be at most {len(known)}, the number of different words "
            f"in the training modules, found {size}"
        )
    return [
        corpus.words[place]
        for place in sorted(known, key=lambda p: (-counts[p], corpus.words[p]))[:size]
    ]


def encode(
    corpus: corpora.Corpus,
    sentences: np.ndarray,
    vocabulary: Sequence[str],
    sequence_length: int,
) -> np.ndarray:
    """Encodes sentences as rows of tokens, int32 [sentences, sequence_length + 1].

    A row has begin, the words, end if there is room, and padding.

    Args:
      corpus: The corpus.
      sentences: Indices of the sentences.
      vocabulary: The known words.
      sequence_length: Most words of a row.
    """
    tokens = text.Tokens(len(vocabulary))
    number = {word: i + 1 for i, word in enumerate(vocabulary)}
    # The last entry fills the row after a sentence.
    known = [number.get(word, tokens.unknown) for word in corpus.words]
    translated = np.array([*known, tokens.padding], np.int32)
    rows = np.empty((len(sentences), sequence_length + 1), np.int32)
    rows[:, 0] = tokens.begin
    rows[:, 1:] = translated[corpus.first_words(sentences, sequence_length, len(known))]
    lengths = corpus.lengths[sentences]
    short = np.flatnonzero(lengths < sequence_length)
    rows[short, lengths[short] + 1] = tokens.end
    return rows


def held_out(
    names: Sequence[str], config: DocsConfig
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Splits all modules, which are sorted, into training and evaluation modules.

    Raises:
      ValueError: If either part is empty.
    """
    rng = np.random.RandomState(config.partition_seed)
    training = tuple(names)
    for option in ("test_fraction", "validation_fraction"):
        fraction = getattr(config, option)
        if fraction:
            count = int(round(fraction * len(training)))
            chosen = frozenset(rng.permutation(list(training))[:count])
            evaluated = tuple(name for name in training if name in chosen)
            training = tuple(name for name in training if name not in chosen)
            task_lib.check_split(option, fraction, len(training), len(evaluated))
    return training, evaluated


def _evaluated(rows: np.ndarray, config: DocsConfig) -> np.ndarray:
    """The rows to evaluate on, as many as the options ask for, in their order."""
    most = config.max_test_examples
    if most is None or most >= len(rows):
        return rows
    rng = np.random.RandomState(config.partition_seed)
    return rows[np.sort(rng.permutation(len(rows))[:most])]


def _pairs(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])


def _read(config: DocsConfig, folder: str | None) -> tuple[corpora.Corpus, str]:
    """The sentences, and words on their source."""
    if config.docs_source == "packages":
        corpus, installed = read_packages(config, folder)
        return corpus, " ".join(["docs of packages 1", *map(str, installed)])
    return read_library(folder or sysconfig.get_paths()["stdlib"]), "docs 1"


def _check_modules(count: int, config: DocsConfig, folder: str | None) -> None:
    """Raises ValueError if there are too few modules to read."""
    if count >= MINIMUM_MODULES:
        return
    if config.docs_source == "packages":
        place, remedy = "the packages", "packages that come with their source"
    else:
        place = folder or sysconfig.get_paths()["stdlib"]
        remedy = "a Python that comes with the source of its standard library"
    raise ValueError(
        f"docs needs at least {MINIMUM_MODULES} modules with docstrings, and {place} "
        f"has {count}: use {remedy}"
    )


def load(config: DocsConfig, folder: str | None = None) -> task_lib.Task:
    """Loads the task `docs`.

    It has a client for each training module of at least `config.min_sentences`
    sentences; the evaluation set is all sentences of the held-out modules. x and y are
    int32 [batch, sequence_length].

    Args:
      config: Options of the task.
      folder: Path of the standard library, or of the installed packages; None for the
        running Python's.

    Raises:
      ValueError: If the library has too few source files, packages are missing or of
        other versions than pinned, there are fewer distinct words than
        `config.vocab_size`, or no module is left for training or testing.
    """
    corpus, source = _read(config, folder)
    places = {
        name: place
        for place, name in enumerate(corpus.names)
        if corpus.sizes[place] >= config.min_sentences
    }
    _check_modules(len(places), config, folder)
    clients, evaluated = held_out(list(places), config)
    sentences, tested = (
        corpus.sentences_of([places[name] for name in names])
        for names in (clients, evaluated)
    )
    vocabulary = build_vocabulary(corpus, sentences, config.vocab_size)
    train = encode(corpus, sentences, vocabulary, config.sequence_length)
    test = encode(corpus, tested, vocabulary, config.sequence_length)
    test = _evaluated(test, config)
    sizes = corpus.sizes[[places[name] for name in clients]]
    digest = hashlib.sha256(source.encode())
    digest.update("\n".join([*clients, "", *evaluated, "", *vocabulary]).encode())
    for array in (sizes, train, test):
        digest.update(array.tobytes())
    is_library = config.docs_source == "library"
    return task_lib.Task(
        name="docs",
        description=f"Next word in docstrings of the {config.docs_source}, by module.",
        client_ids=clients,
        dataset_from_index=task_lib.in_memory_datasets(*_pairs(train), sizes, config),
        evaluation_dataset=task_lib.evaluation_batches(*_pairs(test)),
        defaults=DEFAULTS if is_library else PACKAGES_DEFAULTS,
        config=config,
        fingerprint=digest.hexdigest(),
        # A module is evaluated on as a whole or is a client, never both.
        clients_hold_test_examples=False,
        **text.next_word_pieces(config),
    )
