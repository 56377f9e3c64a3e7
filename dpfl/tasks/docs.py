# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Next-word prediction on the docstrings of Python's standard library.

    task = docs.load(configs.DocsConfig(vocab_size=2000))

A client is a module. The text is read from the source files with `ast`; nothing is
imported. The data depend on the running Python, so compare results only between runs
with the same `Task.fingerprint`.
"""

from __future__ import annotations

import ast
import collections
import functools
import hashlib
import os
import re
import sysconfig
import tokenize
import warnings
from collections.abc import Mapping, Sequence

import numpy as np

from dpfl import checks
from dpfl.tasks import task as task_lib
from dpfl.tasks import text
from dpfl.tasks.clients import ArrayClients
from dpfl.tasks.configs import DocsConfig

MINIMUM_MODULES = 20

DEFAULTS = task_lib.TrainingDefaults(
    client_lr=0.5, server_lr=0.5, clip_norm=0.3, cohort_size=50, rounds=60
)

# Folders outside of the library itself: third-party packages, tests (often left out of
# packaged Pythons), and build by-products.
_SKIPPED_FOLDERS = frozenset(
    ["site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"]
    + ["lib-dynload", "ensurepip"]
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n")
_WORD = re.compile(r"[a-z_]+(?:'[a-z]+)?|[0-9]+|[^\sa-z0-9_]")
_DOCTEST = re.compile(r"^\s*(>>>|\.\.\. ).*$", re.MULTILINE)
_MINIMUM_WORDS = 3

Sentence = tuple[str, ...]


def module_files(folder: str) -> dict[str, str]:
    """The paths of the modules below a folder by their dotted names, sorted."""
    paths = {}
    for parent, folders, names in os.walk(folder):
        folders[:] = [
            f for f in folders if f.isidentifier() and f not in _SKIPPED_FOLDERS
        ]
        place = os.path.relpath(parent, folder)
        parts = [] if place == os.curdir else place.split(os.sep)
        for file in names:
            stem, extension = os.path.splitext(file)
            if extension == ".py" and stem.isidentifier():
                own = [] if stem == "__init__" else [stem]
                paths[".".join([*parts, *own])] = os.path.join(parent, file)
    return dict(sorted(paths.items()))


def docstrings(path: str) -> list[str]:
    """All docstrings of a source file, in its order, indentation removed.

    The list is empty if the running Python cannot read or parse the file.
    """
    try:
        with tokenize.open(path) as source, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    documented = [node for node in ast.walk(tree) if isinstance(node, _DOCUMENTED)]
    documented.sort(key=lambda node: getattr(node, "lineno", 0))
    return [text for text in map(ast.get_docstring, documented) if text]


def split(docstring: str) -> list[Sentence]:
    """Splits a docstring into sentences of at least three words, lower-case.

    Punctuation marks are words; lines of doctest input are left out.
    """
    pieces = _SENTENCE_END.split(_DOCTEST.sub("", docstring).lower())
    sentences = [tuple(_WORD.findall(piece)) for piece in pieces]
    return [words for words in sentences if len(words) >= _MINIMUM_WORDS]


@functools.lru_cache(maxsize=4)
def read_library(folder: str) -> Mapping[str, Sequence[Sentence]]:
    """The sentences of every module of the standard library in a folder, by name."""
    return {
        name: [words for docstring in docstrings(path) for words in split(docstring)]
        for name, path in module_files(folder).items()
    }


def build_vocabulary(sentences: Sequence[Sentence], size: int) -> list[str]:
    """The `size` most frequent words of some sentences, ties in alphabetical order.

    Raises:
      ValueError: If there are fewer distinct words.
    """
    counts = collections.Counter(word for words in sentences for word in words)
    limit = "the number of different words in the training modules"
    checks.integer("vocab_size", size, None, len(counts), limit)
    return sorted(counts, key=lambda word: (-counts[word], word))[:size]


def encode(
    sentences: Sequence[Sentence], vocabulary: Sequence[str], sequence_length: int
) -> np.ndarray:
    """Encodes sentences as rows of tokens, int32 [sentences, sequence_length + 1].

    A row has begin, the words, end if there is room, and padding.

    Args:
      sentences: The sentences.
      vocabulary: The known words.
      sequence_length: Most words of a row.
    """
    tokens = text.Tokens(len(vocabulary))
    number = {word: i + 1 for i, word in enumerate(vocabulary)}
    known = [[number.get(w, tokens.unknown) for w in words] for words in sentences]
    return tokens.rows(known, sequence_length)


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


def load(config: DocsConfig, folder: str | None = None) -> task_lib.Task:
    """Loads the task `docs`.

    It has a client for each training module of at least `config.min_sentences`
    sentences; the evaluation set is all sentences of the held-out modules. x and y are
    int32 [batch, sequence_length].

    Args:
      config: Options of the task.
      folder: Path of the standard library; None for the running Python's.

    Raises:
      ValueError: If the library has too few source files, there are fewer distinct
        words than `config.vocab_size`, or no module is left for training or testing.
    """
    folder = folder or sysconfig.get_paths()["stdlib"]
    modules = {
        name: sentences
        for name, sentences in read_library(folder).items()
        if len(sentences) >= config.min_sentences
    }
    if len(modules) < MINIMUM_MODULES:
        raise ValueError(
            f"docs needs at least {MINIMUM_MODULES} modules with docstrings, and "
            f"{folder} has {len(modules)}: use a Python that comes with the source of "
            "its standard library"
        )
    clients, evaluated = held_out(list(modules), config)
    sentences, tested = (
        [words for name in names for words in modules[name]]
        for names in (clients, evaluated)
    )
    vocabulary = build_vocabulary(sentences, config.vocab_size)
    train = encode(sentences, vocabulary, config.sequence_length)
    test = encode(tested, vocabulary, config.sequence_length)
    test = text.evaluated(test, config)
    owners = np.repeat(evaluated, [len(modules[name]) for name in evaluated])
    owners = text.evaluated(owners, config)
    sizes = np.array([len(modules[name]) for name in clients], np.int64)
    digest = hashlib.sha256(b"docs 1")
    digest.update("\n".join([*clients, "", *evaluated, "", *vocabulary]).encode())
    for array in (sizes, train, test):
        digest.update(array.tobytes())
    return task_lib.Task(
        name="docs",
        description="Next word in docstrings of the library, by module.",
        client_ids=clients,
        clients=ArrayClients(*text.pairs(train), sizes),
        test_examples=lambda: text.pairs(test),
        test_owners=lambda: owners,
        defaults=DEFAULTS,
        config=config,
        fingerprint=digest.hexdigest(),
        # A module is evaluated on as a whole or is a client, never both.
        clients_hold_test_examples=False,
        **text.next_word_pieces(config),
    )
