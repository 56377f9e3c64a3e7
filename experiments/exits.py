# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""How a binary ends: exit codes, and its streams, whatever the shell made of them.

with exits.exit_codes():
    exits.fail("epsilon must be above 0, found -1")
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from . import early

FAULT_EXIT_CODE = 1
USAGE_EXIT_CODE = 2
BROKEN_PIPE_EXIT_CODE = 141
# Most characters of a word that a message repeats.
_LONGEST_WORD = 500


def fail(message: str, code: int = USAGE_EXIT_CODE) -> NoReturn:
    """Prints 'error: ' and the message as one line on stderr, and exits with a code.

    A very long word, such as a path, is truncated.
    """
    words = (
        word if len(word) <= _LONGEST_WORD else f"{word[:_LONGEST_WORD]}..."
        for word in message.split()
    )
    # The disk may be full.
    with contextlib.suppress(OSError):
        print(f"error: {' '.join(words)}", file=sys.stderr)
    sys.exit(code)


def _open_streams() -> None:
    """Reopens streams that the shell has closed, and allows characters of any encoding.

    Otherwise a file would get the number of a closed stream, and with it whatever a
    library prints.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The opened file gets the lowest free number.
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


class _PrintError(Exception):
    """The output cannot be written."""


class _Stdout:
    """Standard output whose errors are distinguished from those of other files."""

    def __init__(self, stream: Any):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        if self._stream is None:
            raise _PrintError("it is closed")
        return self._call(self._stream.write, text)

    def flush(self) -> None:
        if self._stream is not None:
            self._call(self._stream.flush)

    def discard(self) -> None:
        """Makes Python's flush at exit discard output that could not be written."""
        if self._stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def _call(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _PrintError(error.strerror) from error


@contextlib.contextmanager
def exit_codes() -> Iterator[None]:
    """Makes Ctrl-C and failed output end the process with the documented exit codes."""
    _open_streams()
    stdout: Any = _Stdout(sys.stdout)
    with contextlib.redirect_stdout(stdout):
        try:
            try:
                yield
            finally:
                sys.stdout.flush()
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(early.INTERRUPTED_EXIT_CODE)
        except BrokenPipeError:
            # `binary | head` has seen enough.
            stdout.discard()
            sys.exit(BROKEN_PIPE_EXIT_CODE)
        except _PrintError as error:
            stdout.discard()
            fail(f"stdout cannot be written: {error}", FAULT_EXIT_CODE)
