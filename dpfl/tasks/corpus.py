# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Sentences of the docstrings of many modules as arrays, and their cache file.

    sentences = corpus.read(modules, once=True)    # pairs of a name and a path
    corpus.save(path, sentences, source)
    sentences = corpus.load(path, source)

They are read from the source files with `ast`; nothing is imported. Each word is an
integer. Reading millions of them takes a minute, loading them again a fraction of a
second.
"""

from __future__ import annotations

import array
import ast
import dataclasses
import os
import pathlib
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Union

import numpy as np

from dpfl import files

# Folders outside of the library itself: third-party packages, tests (often left out of
# packaged Pythons), and build by-products.
SKIPPED_FOLDERS = frozenset(
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


def module_name(path: str) -> str | None:
    """The dotted name of the module in a source file; None for other files and tests.

    The path is relative to a folder of modules, with slashes.
    """
    stem, extension = os.path.splitext(path)
    parts = stem.split("/")
    if extension != ".py" or not all(part.isidentifier() for part in parts):
        return None
    if not SKIPPED_FOLDERS.isdisjoint(parts[:-1]):
        return None
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def module_files(folder: str) -> Iterator[tuple[str, str]]:
    """Yields the modules below a folder: pairs (dotted name, path), sorted by name."""
    paths = {}
    for parent, folders, names in os.walk(folder):
        folders[:] = [
            f for f in folders if f.isidentifier() and f not in SKIPPED_FOLDERS
        ]
        for file in names:
            path = os.path.join(parent, file)
            name = module_name(os.path.relpath(path, folder).replace(os.sep, "/"))
            if name is not None:
                paths[name] = path
    yield from sorted(paths.items())


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
    return [doc for doc in map(ast.get_docstring, _documented(tree)) if doc]


def _documented(node: ast.AST) -> Iterator[_Documented]:
    """Yields nodes that can have a docstring, in source order; statements only."""
    if isinstance(node, _DOCUMENTED):
        yield node
    for field in _STATEMENTS:
        for child in getattr(node, field, ()):
            yield from _documented(child)


def split(docstring: str) -> list[tuple[str, ...]]:
    """Splits a docstring into sentences of at least three words, lower-case.

    Punctuation marks are words; lines of doctest input are left out.
    """
    pieces = _SENTENCE_END.split(_DOCTEST.sub("", docstring).lower())
    sentences = [tuple(_WORD.findall(piece)) for piece in pieces]
    return [words for words in sentences if len(words) >= _MINIMUM_WORDS]


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Modules, each a list of sentences, each a list of words.

    Attributes:
      names: Dotted names of the modules, sorted; each has a sentence.
      words: The distinct words, in the order of their first occurrence.
      tokens: int32[words], indices into `words`, sentence after sentence.
      lengths: int32[sentences], number of words of each, module after module.
      sizes: int64[modules], number of sentences of each.
    """

    names: tuple[str, ...]
    words: tuple[str, ...]
    tokens: np.ndarray
    lengths: np.ndarray
    sizes: np.ndarray

    def sentences_of(self, modules: Sequence[int]) -> np.ndarray:
        """The indices of the sentences of some modules, in that order."""
        ends = np.cumsum(self.sizes)
        spans = [np.arange(ends[m] - self.sizes[m], ends[m]) for m in modules]
        return np.concatenate([np.zeros(0, np.int64), *spans])

    def word_counts(self, sentences: np.ndarray) -> np.ndarray:
        """The number of occurrences of each word in some sentences, int64[words]."""
        chosen = np.zeros(len(self.lengths), bool)
        chosen[sentences] = True
        tokens = self.tokens[np.repeat(chosen, self.lengths)]
        return np.bincount(tokens, minlength=len(self.words))

    def first_words(self, sentences: np.ndarray, width: int, filler: int) -> np.ndarray:
        """The first words of some sentences as indices, int32[sentences, width].

        Args:
          sentences: Indices of the sentences.
          width: Number of words.
          filler: Index that fills the row of a shorter sentence.
        """
        starts = np.cumsum(self.lengths, dtype=np.int64) - self.lengths
        words = np.full((len(sentences), width), filler, np.int32)
        for column in range(width):
            rows = np.flatnonzero(self.lengths[sentences] > column)
            words[rows, column] = self.tokens[starts[sentences[rows]] + column]
        return words


def read(modules: Iterable[tuple[str, str]], once: bool = False) -> Corpus:
    """Reads the sentences of modules from their docstrings.

    Args:
      modules: Pairs (dotted name, path), sorted by name.
      once: Whether a repeated sentence counts only at its first occurrence.
    """
    places: dict[str, int] = {}
    tokens, lengths, sizes = array.array("i"), array.array("i"), array.array("q")
    names: list[str] = []
    seen: set[bytes] = set()
    for name, path in modules:
        size = 0
        for docstring in docstrings(path):
            for words in split(docstring):
                indices = array.array(
                    "i", [places.setdefault(word, len(places)) for word in words]
                )
                if once:
                    if indices.tobytes() in seen:
                        continue
                    seen.add(indices.tobytes())
                tokens.extend(indices)
                lengths.append(len(indices))
                size += 1
        if size:
            names.append(name)
            sizes.append(size)
    return Corpus(
        tuple(names),
        tuple(places),
        np.array(tokens, np.int32),
        np.array(lengths, np.int32),
        np.array(sizes, np.int64),
    )


def save(path: pathlib.Path, corpus: Corpus, source: str) -> None:
    """Writes a corpus to a file, with the digest of its source.

    The file is written atomically; its folder must exist. Half a surrogate pair is
    kept, since no word has two halves, which JSON would join to one character.

    Args:
      path: Path of the file.
      corpus: The corpus.
      source: Digest of the files that it was read from.
    """
    header = {"source": source, "names": corpus.names, "words": corpus.words}
    arrays = {name: getattr(corpus, name) for name in ("tokens", "lengths", "sizes")}
    files.write_arrays(path, header, arrays)


def load(path: pathlib.Path, source: str) -> Corpus | None:
    """Loads the corpus that `save` wrote for the digest `source`.

    The result is None if the file is missing, damaged, or of another source.
    """
    try:
        header, arrays = files.read_arrays(path)
        if header.pop("checksum") != files.arrays_checksum(header, arrays):
            return None
        if header["source"] != source:
            return None
        return Corpus(tuple(header["names"]), tuple(header["words"]), **arrays)
    # A damaged archive may raise any kind of error.
    except Exception:
        return None
