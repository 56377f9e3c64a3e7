# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Next-word prediction on the docstrings of the running Python's standard library.

A client is a module. The text is read from the source files with `ast`; nothing is
imported. What comes out depends on the Python that runs, so compare results only
between runs with the same `Task.fingerprint`.
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Union

import numpy as np

from dpfl.tasks import task as task_lib
from dpfl.tasks import text
from dpfl.tasks.configs import DocsConfig

MINIMUM_MODULES = 20

DEFAULTS = task_lib.TrainingDefaults(
    client_lr=0.5,
    server_lr=0.5,
    server_momentum=0.9,
    clip_norm=0.3,
    cohort_size=50,
    rounds=60,
)

# Not the library itself: third-party packages, tests (often left out of packaged
# Pythons), and build by-products.
_SKIPPED_FOLDERS = frozenset(
    ["site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"]
    + ["lib-dynload", "ensurepip"]
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_Documented = Union[ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef]
_STATEMENTS = ("body", "handlers", "orelse", "finalbody", "cases")
_SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n")
_WORD = re.compile(r"[a-z_]+(?:'[a-z]+)?|[0-9]+|[^\sa-z0-9_]")
_DOCTEST = re.compile(r"^\s*(>>>|\.\.\. ).*$", re.MULTILINE)
_MINIMUM_WORDS = 3


def module_files(folder: str) -> Iterator[tuple[str, str]]:
    """Returns the modules with a source file below a folder.

    Args:
      folder: Path of a standard library.

    Yields:
      Pairs (dotted module name, path), sorted by name.
    """
    found = {}
    for parent, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if f.isidentifier() and _is_library(f)]
        prefix = os.path.relpath(parent, folder).split(os.sep)
        for name in files:
            stem, extension = os.path.splitext(name)
            if extension == ".py" and stem.isidentifier():
                parts = [p for p in prefix if p != "."]
                parts += [] if stem == "__init__" else [stem]
                found[".".join(parts)] = os.path.join(parent, name)
    yield from sorted(found.items())


def _is_library(folder: str) -> bool:
    return folder not in _SKIPPED_FOLDERS


def docstrings(path: str) -> list[str]:
    """Returns all docstrings of a source file, in the order of the source.

    Args:
      path: A Python source file.

    Returns:
      The docstrings, indentation removed; none if the file cannot be read or parsed
      by the running Python.
    """
    try:
        with tokenize.open(path) as source, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    return [doc for doc in map(ast.get_docstring, _documented(tree)) if doc]


def _documented(node: ast.AST) -> Iterator[_Documented]:
    """Yields what can have a docstring, in source order; looks into statements only."""
    if isinstance(node, _DOCUMENTED):
        yield node
    for field in _STATEMENTS:
        for child in getattr(node, field, ()):
            yield from _documented(child)


def sentences(docstring: str) -> list[tuple[str, ...]]:
    """Splits a docstring into sentences of lower-case words and punctuation.

    Args:
      docstring: Any text.

    Returns:
      The sentences of at least three words; lines of doctest input are left out.
    """
    pieces = _SENTENCE_END.split(_DOCTEST.sub("", docstring).lower())
    split = [tuple(_WORD.findall(piece)) for piece in pieces]
    return [words for words in split if len(words) >= _MINIMUM_WORDS]


@functools.lru_cache(maxsize=4)
def read_library(folder: str) -> Mapping[str, tuple[tuple[str, ...], ...]]:
    """Reads the sentences of every module of a standard library.

    Args:
      folder: Its path.

    Returns:
      From module name to its sentences, in sorted order of names; modules without a
      sentence are left out.
    """
    library = {}
    for name, path in module_files(folder):
        found = [s for docstring in docstrings(path) for s in sentences(docstring)]
        if found:
            library[name] = tuple(found)
    return library


def build_vocabulary(texts: Sequence[Sequence[Sequence[str]]], size: int) -> list[str]:
    """Returns the most frequent words, ties in alphabetical order.

    Args:
      texts: The sentences of each training client.
      size: Number of words.

    Returns:
      A list of `size` words.

    Raises:
      ValueError: If there are fewer different words.
    """
    counts = collections.Counter(w for client in texts for s in client for w in s)
    if len(counts) < size:
        raise ValueError(
            f"vocab_size must be at most the {len(counts)} different words of the"
            f" training modules: {size}"
        )
    return sorted(counts, key=lambda word: (-counts[word], word))[:size]


def encode(
    text_: Sequence[Sequence[str]], vocabulary: Sequence[str], sequence_length: int
) -> np.ndarray:
    """Returns sentences as rows of tokens.

    Args:
      text_: Sentences of words.
      vocabulary: The known words.
      sequence_length: Tokens of an input.

    Returns:
      int32 array of shape [sentences, sequence_length + 1]: begin, the words, end
      where there is room, padding.
    """
    tokens = text.Tokens(len(vocabulary))
    number = {word: i + 1 for i, word in enumerate(vocabulary)}
    rows = np.full((len(text_), sequence_length + 1), tokens.padding, np.int32)
    for row, words in zip(rows, text_):
        ids = [number.get(word, tokens.unknown) for word in words] + [tokens.end]
        ids = [tokens.begin, *ids][: sequence_length + 1]
        row[: len(ids)] = ids
    return rows


def _held_out(names: Sequence[str], fraction: float, seed: int) -> frozenset[str]:
    rng = np.random.RandomState(seed)
    count = int(round(fraction * len(names)))
    return frozenset(rng.permutation(list(names))[:count])


def _pairs(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])


def load(config: DocsConfig, folder: str | None = None) -> task_lib.Task:
    """Returns the task `docs`.

    Args:
      config: Its options.
      folder: Path of the standard library to read; None for the running Python's.

    Returns:
      A task with a client for each training module of at least
      `config.min_sentences` sentences; the evaluation set is all sentences of the
      modules held out. x and y are int32 [batch, sequence_length].

    Raises:
      ValueError: If the library comes without enough source files, has fewer different
        words than `config.vocab_size`, or no module is left for training or testing.
    """
    folder = folder or sysconfig.get_paths()["stdlib"]
    library = {
        name: lines
        for name, lines in read_library(folder).items()
        if len(lines) >= config.min_sentences
    }
    if len(library) < MINIMUM_MODULES:
        raise ValueError(
            f"docs needs at least {MINIMUM_MODULES} modules with docstrings in"
            f" {folder}, and found {len(library)}: use a Python that comes with the"
            " source of its standard library"
        )
    held_out = _held_out(list(library), config.test_fraction, config.partition_seed)
    clients = tuple(name for name in library if name not in held_out)
    task_lib.check_split(
        "test_fraction", config.test_fraction, len(clients), len(held_out)
    )
    vocabulary = build_vocabulary([library[c] for c in clients], config.vocab_size)

    def encoded(names: Iterable[str]) -> np.ndarray:
        text_ = [sentence for name in names for sentence in library[name]]
        return encode(text_, vocabulary, config.sequence_length)

    train, test = encoded(clients), encoded(sorted(held_out))
    digest = hashlib.sha256(b"docs 1")
    digest.update(
        "\n".join([*clients, "", *sorted(held_out), "", *vocabulary]).encode()
    )
    sizes = [len(library[name]) for name in clients]
    for array in (np.array(sizes, np.int64), train, test):
        digest.update(array.tobytes())
    return task_lib.Task(
        name="docs",
        description="Next word in the standard library's docstrings, by module.",
        client_ids=clients,
        dataset_from_index=task_lib.in_memory_datasets(*_pairs(train), sizes, config),
        evaluation_dataset=task_lib.evaluation_batches(*_pairs(test)),
        defaults=DEFAULTS,
        config=config,
        fingerprint=digest.hexdigest(),
        **text.next_word_pieces(config),
    )
