# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Refusals: an exception's type, argument and value, whatever its sentence says.

with refuses(ValueError, "clip_norm", -1.0):
    dpfl.GaussianConfig(clip_norm=-1.0)
"""

from __future__ import annotations

import contextlib
import re

import pytest


def names(text, *parts):
    """Whether each part is in a text: not within another word, name or number.

    Args:
      text: An exception's or a program's message.
      *parts: Arguments' names, values, paths; each is looked for as `str` writes it.
    """
    # A number must not be the end of another: 1.5 in -1.5, 5 in 0.5.
    words = (
        rf"(?<!\w)(?!(?<=[-.])\d){re.escape(str(part))}(?!\w|\.\d)" for part in parts
    )
    return all(re.search(word, text) for word in words)


@contextlib.contextmanager
def refuses(error, *parts):
    """Expects an exception whose text names an argument and the refused value.

    Args:
      error: The exception's type, or several in a tuple.
      *parts: The argument's name, then the value; or a path, where a file is at fault.

    Yields:
      pytest's ExceptionInfo, for further questions.
    """
    with pytest.raises(error) as caught:
        yield caught
    assert names(str(caught.value), *parts), (parts, caught.value)
