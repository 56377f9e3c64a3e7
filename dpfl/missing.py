# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Errors for want of a library, which name what runs on this Python.

with missing.explained("dpfl.jax_aggregator"):
    import jax
"""

from __future__ import annotations

import contextlib
import importlib.util
import platform
import sys
from collections.abc import Iterator

PYTHONS_OF_TFF = ((3, 9), (3, 10), (3, 11))
# dpfl is in no registry.
_INSTALLS_JAX = "pip install -e '.[jax]' in a clone of dpfl"
_LIBRARIES = ("jax", "sklearn", "tensorflow", "tensorflow_federated")


@contextlib.contextmanager
def explained(part: str, instead: str = "") -> Iterator[None]:
    """Explains that an import in the block fails for want of a library.

    Args:
      part: The part of dpfl, as its user knows it.
      instead: A clause on what takes its place; "" for that of mechanisms.

    Raises:
      ImportError: Of `error`, in place of Python's.
    """
    try:
        yield
    except ModuleNotFoundError as wrong:
        if wrong.name not in _LIBRARIES:
            raise
        name = wrong.name
    else:
        return
    raise error(part, name, instead)


def error(part: str, library: str, instead: str = "") -> ImportError:
    """The exception for a part of dpfl that lacks a library.

    Args:
      part: As for `explained`.
      library: The module that is not there, one of `_LIBRARIES`.
      instead: As for `explained`.
    """
    sentence = f"{part} needs {_needed(library)}; {instead or _instead(library)}"
    return ImportError(sentence, name=library)


def _needed(library: str) -> str:
    if library == "jax":
        return f"JAX, which {_INSTALLS_JAX} brings for Python 3.11 and later"
    if library == "sklearn":
        return "scikit-learn, which pip install scikit-learn brings"
    system = (sys.platform, platform.machine())
    if system == ("linux", "x86_64") and sys.version_info[:2] in PYTHONS_OF_TFF:
        return (
            "TensorFlow Federated 0.87, which is not installed; python -m pip install "
            '--no-deps -r "$(python -m dpfl requirements)" installs it'
        )
    return (
        "TensorFlow Federated 0.87, which is published for Linux on x86_64 with Python "
        f"3.9, 3.10 and 3.11; this is Python {platform.python_version()} on "
        f"{sys.platform} {platform.machine()}"
    )


def _instead(library: str) -> str:
    here = "dpfl.Server and dpfl.make_codec run mechanisms here in numpy"
    if importlib.util.find_spec("jax") is not None:
        return f"{here}, and dpfl.jax_aggregator and dpfl-train in JAX"
    if library != "jax" and sys.version_info >= (3, 11):
        return f"{here}, and {_INSTALLS_JAX} brings training and audits in JAX"
    return here
