# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Trains one run after another in one process, as `trainers.Trainer` tells it to.

Its argument is the module of `dpfl-train`. Each line of stdin is a JSON object: the
`arguments` of `dpfl-train`, the `log` that takes its output, and whether it
`only_checks` them and the data. What was stdout takes `{"round": 3, "of": 60}` after
each round and `{"code": 0}` at the end of the run. Imports are done once, and so is the
tracing of runs that differ in their seed alone.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from absl import flags

from dpfl import interrupts
from dpfl.training import run as run_lib

from .. import cli, flag_files


def main() -> None:
    """Does what is asked for until nobody asks any more."""
    train = importlib.import_module(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)

    def answer(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")

    last = run_lib.LastProcess()
    for line in sys.stdin:
        order = json.loads(line)
        work: Callable[..., Any] = functools.partial(
            train.main, last=last, on_round=lambda r, of: answer(round=r, of=of)
        )
        if order["only_checks"]:
            work = train.check
        code = _exit_code(work, order["arguments"], order["log"])
        answer(code=code)
        if code == interrupts.EXIT_CODE:
            break


def _exit_code(work: Callable[..., Any], arguments: list[str], log: str) -> int:
    """Returns with what code a command line ends."""
    with open(log, "ab") as output:
        for descriptor in (1, 2):
            os.dup2(output.fileno(), descriptor)
    for name in flags.FLAGS:
        flags.FLAGS[name].unparse()
    sys.argv = ["dpfl-train", *map(flag_files.resolved, arguments)]
    try:
        cli.run(work)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:
        traceback.print_exc()
        return cli.FAULT_EXIT_CODE
    finally:
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, KeyboardInterrupt):
        # Whoever asked is gone, or was interrupted too.
        sys.exit(interrupts.EXIT_CODE)
