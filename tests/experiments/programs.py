# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs the binaries of `experiments` as a shell would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """A shell's: some library sets TensorFlow's log level for its children."""
    kept = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    return {**kept, "PYTHONPATH": str(ROOT)}


def command(binary: str, *args) -> list[str]:
    return [sys.executable, "-m", f"experiments.{binary}", *map(str, args)]


def run(binary: str, *args, cwd=ROOT) -> subprocess.CompletedProcess:
    """The exit code and output of a binary that reads nothing."""
    return subprocess.run(
        command(binary, *args),
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def may_be_interrupted() -> None:
    """Has an interrupt raise, which it does not in the background of a shell."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def read_from(path: Path) -> None:
    """Has this process read a file as its stdin."""
    sys.stdin = open(path)


def fork_trainers() -> None:
    """Has this process fork its trainers, which then import nothing."""
    from experiments.papers import trainers

    trainers.subprocess = types.SimpleNamespace(Popen=_Fork, PIPE=subprocess.PIPE)


class _Fork:
    """A `Popen` of the program of trainers."""

    def __init__(self, command: list[str], **more: object):
        from tools.soaks import runs

        (asked, stdin), (stdout, answers) = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(stdin, "w"), os.fdopen(stdout)
        self.pid = runs.fork(self._serve, asked, answers)
        os.close(asked)
        os.close(answers)

    def _serve(self, asked: int, answers: int) -> None:
        from experiments.papers import trainers

        self.stdin.close()
        os.dup2(answers, 1)
        sys.stdin = os.fdopen(asked)
        trainers.main()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
