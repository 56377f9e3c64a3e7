# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Docstrings of source files, and the sentences in them; nothing is imported."""

from __future__ import annotations

import ast
import os
import re
import tokenize
import warnings
from collections.abc import Iterator
from typing import Union

# Not the library itself: third-party packages, tests (often left out of packaged
# Pythons), and build by-products.
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
    """Returns the dotted name of the module in a source file.

    Args:
      path: Where it is below a folder of modules, with slashes.

    Returns:
      The name; None if it is no module, or one of tests.
    """
    stem, extension = os.path.splitext(path)
    parts = stem.split("/")
    if extension != ".py" or not all(part.isidentifier() for part in parts):
        return None
    if not SKIPPED_FOLDERS.isdisjoint(parts[:-1]):
        return None
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def module_files(folder: str) -> Iterator[tuple[str, str]]:
    """Returns the modules with a source file below a folder.

    Args:
      folder: Path of a standard library.

    Yields:
      Pairs (dotted module name, path), sorted by name.
    """
    found = {}
    for parent, folders, files in os.walk(folder):
        folders[:] = [
            f for f in folders if f.isidentifier() and f not in SKIPPED_FOLDERS
        ]
        for file in files:
            path = os.path.join(parent, file)
            name = module_name(os.path.relpath(path, folder).replace(os.sep, "/"))
            if name is not None:
                found[name] = path
    yield from sorted(found.items())


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
