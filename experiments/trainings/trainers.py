# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Processes that train runs of a figure, one after another.

    with contextlib.closing(trainers.Trainer()) as trainer:
        trainer.train(work, folder / work.folder)

This module is also their program. Each line of its stdin is a JSON object: the
`arguments` of `dpfl-train`, the `log` that takes its output, and whether it
`only_checks` them and the data. The original stdout takes `{"round": 3, "of": 60}`
after each round and `{"code": 0, "device": "cpu"}` at the end of the run. Imports are
done once, and so is the tracing of runs that differ in their seed alone.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from absl import flags

from dpfl import files, launcher

from .. import cli, exits, flag_files
from .sweep import Training

# Names of our packages, in the source tree or installed.
_BINARIES = __package__.rpartition(".")[0]
_TRAIN = f"{_BINARIES}.train"
# The folder that holds the outermost of them.
_ROOT = Path(__file__).resolve().parents[len(__package__.split("."))]
_ERROR = "error: "
# Parts of the messages of a run that left no number, and of a folder in use.
DIVERGED, _IN_USE = "training diverged in round", "is in use by process"


class WorkFailedError(RuntimeError):
    """A training run of a figure ended with an error.

    Attributes:
      exit_code: The run's exit code.
      said: The run's error message; "" for none.
    """

    def __init__(self, sentence: str, exit_code: int, said: str = ""):
        super().__init__(sentence)
        self.exit_code = exit_code
        self.said = said

    @property
    def is_divergence(self) -> bool:
        """Whether the run's training diverged."""
        return DIVERGED in self.said

    @property
    def is_elsewhere(self) -> bool:
        """Whether another process is training the run."""
        return _IN_USE in self.said


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Raises ValueError in place of a run's refusal of its flags or data."""
    try:
        yield
    except WorkFailedError as error:
        if error.exit_code == exits.USAGE_EXIT_CODE and error.said:
            raise ValueError(error.said) from error
        raise


def end(error: WorkFailedError) -> NoReturn:
    """Ends a binary whose run failed, after work was done."""
    is_refused = error.exit_code == exits.USAGE_EXIT_CODE
    print(f"error: {is_refused and error.said or error}", file=sys.stderr)
    if is_refused:
        sys.exit(exits.USAGE_EXIT_CODE)
    print("the same command goes on where it was stopped", file=sys.stderr)
    sys.exit(exits.FAULT_EXIT_CODE)


class Trainer:
    """A process that trains one run at a time, and ends with its parent thread."""

    def __init__(self, program: Sequence[str] = (sys.executable, "-m", __name__)):
        """Starts the process, of this module or a program that calls its `main`."""
        self._process = subprocess.Popen(
            launcher.ends_with_parent(program),
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
        """Trains a run, or the rest of it, with results and train.log in a folder.

        Args:
          work: The run.
          folder: Folder of the results.
          on_round: Called with the number of rounds done and in all.
          **more: More flags; see `Training.arguments`.

        Raises:
          WorkFailedError: If the run does not end with exit code 0.
        """
        files.public_folder(folder)
        arguments = work.arguments(folder, **more)
        self._do(arguments, folder / "train.log", on_round, only_checks=False)

    def check(self, work: Training, folder: Path) -> str:
        """Checks a run's flags and data; the folder is not touched.

        Returns:
          The kind of JAX's device; "" if the run is TFF's, which has none but
          processors.

        Raises:
          WorkFailedError: If they are refused.
        """
        descriptor, name = tempfile.mkstemp(prefix="dpfl-check-", suffix=".log")
        os.close(descriptor)
        log = Path(name)
        try:
            arguments = work.arguments(folder)
            done = self._do(arguments, log, lambda *_: None, only_checks=True)
        except WorkFailedError as error:
            if error.said:
                log.unlink(missing_ok=True)
            raise
        log.unlink(missing_ok=True)
        return done["device"]

    def close(self) -> None:
        """Ends the process immediately."""
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
    ) -> dict[str, Any]:
        try:
            open(log, "ab").close()
        except OSError as error:
            said = f"{log} must be a file that can be added to ({error})"
            raise WorkFailedError(said, exits.USAGE_EXIT_CODE, said) from error
        order = {"arguments": list(arguments), "log": os.fspath(log)}
        begin = log.stat().st_size
        done = self._answered({**order, "only_checks": only_checks}, on_round)
        code = done["code"]
        if not code:
            return done
        command = f"-m {_TRAIN} {' '.join(arguments)}"
        said = _last_error(log, begin)
        raise WorkFailedError(
            f"'{command}' ended with exit code {code}{said and ': '}{said}; its output "
            f"is in {log}",
            code,
            said,
        )

    def _answered(
        self, order: Any, on_round: Callable[[int, int], Any]
    ) -> dict[str, Any]:
        """Sends an order and returns the last answer, which has its exit code."""
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the trainer must have pipes, found none")
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
        for line in process.stdout:
            answer = json.loads(line)
            if "code" in answer:
                return answer
            on_round(answer["round"], answer["of"])
        # The process ended early: killed, perhaps for lack of memory.
        return {"code": process.wait() or exits.FAULT_EXIT_CODE}


def _last_error(log: Path, begin: int) -> str:
    """The last error in a log after a number of bytes; "" for none."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode(errors="replace").splitlines()
    errors = [line[len(_ERROR) :] for line in lines if line.startswith(_ERROR)]
    return errors[-1] if errors else ""


def _environment() -> dict[str, str]:
    """The environment in which a child finds our packages as this process does."""
    if "." in _BINARIES:
        # Installed packages are found by Python itself, unless the working folder is a
        # source tree, which `-m` would search first.
        return {**os.environ, "PYTHONSAFEPATH": "1"}
    before = os.environ.get("PYTHONPATH")
    paths = [str(_ROOT), before] if before else [str(_ROOT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def main() -> None:
    """Executes orders until stdin ends."""
    from dpfl.training import engine

    train = importlib.import_module(_TRAIN)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)

    def answer(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")

    last = engine.LastProcess()
    for line in sys.stdin:
        order = json.loads(line)
        work: Callable[..., Any] = functools.partial(
            train.main, last=last, on_round=lambda r, of: answer(round=r, of=of)
        )
        if order["only_checks"]:
            work = train.check
        code = _exit_code(work, order["arguments"], order["log"])
        answer(code=code, device="" if code else _device())
        if code == exits.INTERRUPTED_EXIT_CODE:
            break


def _device() -> str:
    """The kind of JAX's device for the flags of the last order; "" for TFF's."""
    from dpfl.training import engine

    if engine.of(flags.FLAGS["engine"].value) == "tff":
        return ""
    return importlib.import_module("jax").devices()[0].device_kind


def _exit_code(work: Callable[..., Any], arguments: list[str], log: str) -> int:
    """Runs a command line and returns its exit code."""
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
        return exits.FAULT_EXIT_CODE
    finally:
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, KeyboardInterrupt):
        # The parent is gone, or was interrupted too.
        sys.exit(exits.INTERRUPTED_EXIT_CODE)
