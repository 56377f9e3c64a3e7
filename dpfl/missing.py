# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Errors for want of a library, which say what brings it.

with missing.explained("dpfl.jax_aggregator"):
    import jax
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_TFF = (
    "TensorFlow Federated 0.87, for Linux on x86_64 with Python 3.9 to 3.11, which "
    'python -m pip install --no-deps -r "$(python -m dpfl requirements)" installs'
)
# What each library is, and how it comes; dpfl is in no registry.
_NEEDED = {
    "jax": "JAX, which pip install -e '.[jax]' in a clone of dpfl brings for Python "
    "3.11 and later",
    "sklearn": "scikit-learn, which pip install scikit-learn brings",
    "tensorflow": _TFF,
    "tensorflow_federated": _TFF,
}
_INSTEAD = "dpfl.Server and dpfl.make_codec run mechanisms in numpy"


@contextlib.contextmanager
def explained(part: str, instead: str = _INSTEAD) -> Iterator[None]:
    """Explains that an import in the block fails for want of a library.

    Args:
      part: The part of dpfl, as its user knows it.
      instead: A clause on what takes its place.

    Raises:
      ImportError: Of `error`, in place of Python's.
    """
    try:
        yield
    except ModuleNotFoundError as wrong:
        if wrong.name not in _NEEDED:
            raise
        name = wrong.name
    else:
        return
    raise error(part, name, instead)


def error(part: str, library: str, instead: str = _INSTEAD) -> ImportError:
    """The exception for a part of dpfl that lacks a library.

    Args:
      part: As for `explained`.
      library: The module that is not there, one of `_NEEDED`.
      instead: As for `explained`.
    """
    return ImportError(f"{part} needs {_NEEDED[library]}; {instead}", name=library)
