# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The sentences of many modules as arrays, and a file to keep them in.

Millions of words are an integer each. To find them takes a minute, to load them again
a fraction of a second.
"""

from __future__ import annotations

import array
import dataclasses
import hashlib
import pathlib
import zipfile
import zlib
from collections.abc import Iterable, Sequence

import numpy as np

from dpfl import files
from dpfl.tasks import docstrings

_UNREADABLE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Modules, each a list of sentences, each a list of words.

    Attributes:
      names: Dotted names of the modules, sorted; each has a sentence.
      words: The different words, in the order in which they are first met.
      tokens: int32[words], places in `words`, sentence after sentence.
      lengths: int32[sentences], words of each, module after module.
      sizes: int64[modules], sentences of each.
    """

    names: tuple[str, ...]
    words: tuple[str, ...]
    tokens: np.ndarray
    lengths: np.ndarray
    sizes: np.ndarray

    def sentences_of(self, modules: Sequence[int]) -> np.ndarray:
        """Returns the places of the sentences of some modules, in that order."""
        ends = np.cumsum(self.sizes)
        spans = [np.arange(ends[m] - self.sizes[m], ends[m]) for m in modules]
        return np.concatenate([np.zeros(0, np.int64), *spans])

    def word_counts(self, sentences: np.ndarray) -> np.ndarray:
        """Returns how often each of `words` stands in some sentences: int64[words]."""
        chosen = np.zeros(len(self.lengths), bool)
        chosen[sentences] = True
        tokens = self.tokens[np.repeat(chosen, self.lengths)]
        return np.bincount(tokens, minlength=len(self.words))

    def rows(self, sentences: np.ndarray, width: int, filler: int) -> np.ndarray:
        """Returns the first words of some sentences.

        Args:
          sentences: Their places.
          width: Words of a row.
          filler: Stands after the last word of a shorter sentence.

        Returns:
          int32[sentences, width], places in `words`.
        """
        starts = np.cumsum(self.lengths, dtype=np.int64) - self.lengths
        found = np.full((len(sentences), width), filler, np.int32)
        for column in range(width):
            rows = np.flatnonzero(self.lengths[sentences] > column)
            found[rows, column] = self.tokens[starts[sentences[rows]] + column]
        return found


def read(modules: Iterable[tuple[str, str]], once: bool = False) -> Corpus:
    """Reads the docstrings of source files, one file at a time.

    Args:
      modules: Pairs (dotted name, path), sorted by name.
      once: Whether a sentence counts in the first module alone that has it, and there
        once.

    Returns:
      Their sentences; modules without one are left out.
    """
    places: dict[str, int] = {}
    tokens, lengths, sizes = array.array("i"), array.array("i"), array.array("q")
    names: list[str] = []
    seen: set[bytes] = set()
    for name, path in modules:
        size = 0
        for docstring in docstrings.docstrings(path):
            for words in docstrings.sentences(docstring):
                found = array.array(
                    "i", [places.setdefault(word, len(places)) for word in words]
                )
                if once:
                    if found.tobytes() in seen:
                        continue
                    seen.add(found.tobytes())
                tokens.extend(found)
                lengths.append(len(found))
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


def _packed(texts: Sequence[str]) -> np.ndarray:
    """Returns texts without line ends as bytes; they may hold half a surrogate pair."""
    content = "\n".join(texts).encode("utf-8", "surrogatepass")
    return np.frombuffer(content, np.uint8)


def _unpacked(content: np.ndarray) -> tuple[str, ...]:
    text = content.tobytes().decode("utf-8", "surrogatepass")
    return tuple(text.split("\n")) if text else ()


def _digest(source: str, parts: Sequence[np.ndarray]) -> bytes:
    digest = hashlib.sha256(source.encode())
    for part in parts:
        digest.update(np.ascontiguousarray(part).data)
    return digest.digest()


def save(path: pathlib.Path, corpus: Corpus, source: str) -> None:
    """Writes a corpus to a file, whole or not at all.

    Args:
      path: The file; its folder must be there.
      corpus: What is kept.
      source: Digest of what it was made from.
    """
    parts = [_packed(corpus.names), _packed(corpus.words)]
    parts += [corpus.tokens, corpus.lengths, corpus.sizes]
    check = np.frombuffer(_digest(source, parts), np.uint8)
    with files.atomically(path) as file:
        np.savez(file, *parts, check)


def load(path: pathlib.Path, source: str) -> Corpus | None:
    """Returns what `save` wrote.

    Args:
      path: The file.
      source: Digest of what it should be made from.

    Returns:
      None if there is no such file, it is damaged, or was made from something else.
    """
    try:
        with np.load(path) as kept:
            *parts, check = [kept[f"arr_{i}"] for i in range(6)]
    except _UNREADABLE:
        return None
    if check.tobytes() != _digest(source, parts):
        return None
    return Corpus(_unpacked(parts[0]), _unpacked(parts[1]), *parts[2:])
