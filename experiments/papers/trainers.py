# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Processes that train runs of a figure, one after another."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Optional

import psutil

from dpfl import files
from dpfl.training import launcher

from .. import cli
from .trainings import Training

# Our packages, whether they are in the source tree or installed.
_BINARIES = __package__.rpartition(".")[0]
_TRAIN = f"{_BINARIES}.train"
_TRAINER = f"{__package__}.trainer"
# The folder that holds the outermost of them.
_ROOT = Path(__file__).resolve().parents[len(__package__.split("."))]
_ERROR = "error: "


class WorkFailedError(RuntimeError):
    """A training run of a figure ended with an error.

    Attributes:
      exit_code: The run's.
      said: What it gave as its error; "" for nothing.
    """

    def __init__(self, sentence: str, exit_code: int, said: str = ""):
        super().__init__(sentence)
        self.exit_code = exit_code
        self.said = said


class Trainer:
    """A process that does one run at a time; it ends with the thread that made it."""

    def __init__(self) -> None:
        """Starts the process."""
        self._process = subprocess.Popen(
            launcher.ends_with_parent([sys.executable, "-m", _TRAINER, _TRAIN]),
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def train(
        self,
        work: Training,
        folder: Path,
        on_round: Callable[[int, int], Any] = lambda done, of: None,
        **more: Any,
    ) -> None:
        """Does a run, or what is left of it.

        Args:
          work: The run.
          folder: Where its results go, and train.log.
          on_round: Called with how many rounds are done, and of how many.
          **more: See `Training.arguments`.

        Raises:
          WorkFailedError: If it does not end with exit code 0.
        """
        files.public_folder(folder)
        arguments = work.arguments(folder, **more)
        self._do(arguments, folder / "train.log", on_round, only_checks=False)

    def check(self, work: Training, folder: Path) -> None:
        """Checks a run's flags and data.

        Raises:
          WorkFailedError: If they are refused.
        """
        log = folder / "check.log"
        try:
            self._do(work.arguments(folder), log, lambda *_: None, only_checks=True)
        except WorkFailedError as error:
            if not error.said:
                raise
            log.unlink(missing_ok=True)
            raise
        log.unlink(missing_ok=True)

    def memory(self) -> int:
        """Returns how many bytes the process and its children hold now."""
        total = 0
        with contextlib.suppress(psutil.Error):
            own = psutil.Process(self._process.pid)
            for process in (own, *own.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    total += process.memory_info().rss
        return total

    def close(self) -> None:
        """Ends the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _do(
        self,
        arguments: Sequence[str],
        log: Path,
        on_round: Callable[[int, int], Any],
        *,
        only_checks: bool,
    ) -> None:
        order = {
            "arguments": list(arguments),
            "log": os.fspath(log),
            "only_checks": only_checks,
        }
        begin = log.stat().st_size if log.exists() else 0
        code = self._answered(json.dumps(order) + "\n", on_round)
        if not code:
            return
        command = f"-m {_TRAIN} {' '.join(arguments)}"
        said = _last_error(log, begin)
        raise WorkFailedError(
            f"'{command}' ended with exit code {code}{said and ': '}{said}; its output "
            f"is in {log}",
            code,
            said,
        )

    def _answered(self, order: str, on_round: Callable[[int, int], Any]) -> int:
        """Returns the exit code of what was ordered."""
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the trainer must have pipes, found none")
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(order)
            process.stdin.flush()
        for line in process.stdout:
            answer = json.loads(line)
            if "code" in answer:
                return answer["code"]
            on_round(answer["round"], answer["of"])
        # It ended in the middle: killed, perhaps for want of memory.
        return process.wait() or cli.FAULT_EXIT_CODE


def _last_error(log: Path, begin: int) -> str:
    """Returns what a binary gave as its error since its log had so many bytes."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode(errors="replace").splitlines()
    errors = [line[len(_ERROR) :] for line in lines if line.startswith(_ERROR)]
    return errors[-1] if errors else ""


def _environment() -> Optional[dict[str, str]]:
    """Returns the environment in which a child finds our packages where we did."""
    if "." in _BINARIES:
        # Installed: Python finds them by itself.
        return None
    before = os.environ.get("PYTHONPATH")
    found = [str(_ROOT), before] if before else [str(_ROOT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(found)}
