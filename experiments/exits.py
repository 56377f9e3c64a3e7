# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""How a binary ends: its exit codes, and one line for an error.

with exits.exit_codes():
    exits.fail("epsilon must be above 0, found -1")
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import NoReturn

FAULT_EXIT_CODE = 1
USAGE_EXIT_CODE = 2
INTERRUPTED_EXIT_CODE = 130
BROKEN_PIPE_EXIT_CODE = 141


def fail(message: str, code: int = USAGE_EXIT_CODE) -> NoReturn:
    """Prints 'error: ' and the message as one line on stderr, and exits with a code."""
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


@contextlib.contextmanager
def exit_codes() -> Iterator[None]:
    """Makes Ctrl-C and a closed pipe end the process with the documented exit codes."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A path may have characters that the encoding does not.
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED_EXIT_CODE)
    except BrokenPipeError:
        # `binary | head` has seen enough: Python's flush at exit must not fail too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(BROKEN_PIPE_EXIT_CODE)
