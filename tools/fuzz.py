# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs malformed and extreme command lines: each must end well, or with a sentence.

  .venv/bin/python -m tools.fuzz --lines=5000 --seed=1

A line must end within a minute, with exit code 0, or with exit code 2 and one sentence
on stderr that names a flag or the word that is wrong. A traceback, a warning of numpy,
"nan" in what is printed, another exit code, a kill by the memory limit or a device that
was replaced is a fault. Each binary is imported once, and a process forked for each
line. Trainings, measurements and figures stop where their work would begin, since the
arguments are all checked then; `--work` lets them go on.

Prints a row for each binary, and each fault with the line to run again. The exit code
is 1 if there is a fault.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib
import itertools
import json
import os
import re
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Optional

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 600.0
_MEMORY = 4 * 2**30
_DEVICES = ("/dev/full", "/dev/null")
_POLL = 0.002


class Result(NamedTuple):
    """How a line ended.

    Attributes:
      line: The words behind the binary's name.
      code: Its exit code, or minus the signal that ended it; None if time was up.
      seconds: How long it took.
      fault: What was wrong; None if nothing was.
      said: The end of what it wrote to stderr.
    """

    line: Sequence[str]
    code: Optional[int]
    seconds: float
    fault: Optional[str]
    said: str


def prepare(folder: Path) -> None:
    """Fills a folder with what a path may lead to."""
    (folder / "folder").mkdir()
    (folder / "file").write_text("--rounds=2\n")
    os.mkfifo(folder / "pipe")
    for name, target in (
        *(("full", "/dev/full"), ("dangling", "missing/x"), ("loop", "loop")),
    ):
        (folder / name).symlink_to(target)


def fault_of(
    line: Sequence[str], code: Optional[int], out: str, err: str, names: Sequence[str]
) -> Optional[str]:
    """Returns what is wrong with how a line ended, None if nothing is.

    Args:
      line: The words behind the binary's name.
      code: Exit code; None if time was up.
      out: What it wrote to stdout.
      err: What it wrote to stderr.
      names: Of all flags.
    """
    if code is None:
        return "no end"
    if "Traceback" in err or "Fatal Python error" in err:
        return "traceback"
    if re.search(r"\w+Warning: ", err):
        return "warning"
    if code == 0:
        return "nan" if re.search(r"\bnan\b", out, re.I) else None
    if code != 2:
        return f"exit code {code}"
    sentences = [text for text in err.splitlines() if text.startswith("error: ")]
    if len(sentences) != 1 or not err.endswith(f"{sentences[0]}\n"):
        return "no sentence"
    known = {*names, *(word.lstrip("-").partition("=")[0] for word in line), "command"}
    words = set(re.findall(r"[\w./-]+", sentences[0].replace("--", " ")))
    if (known - {""}) & words or any(repr(word) in sentences[0] for word in line):
        return None
    return "no name"


class Binary:
    """A binary that is imported and waits to be forked."""

    def __init__(self, name: str, work: bool):
        """Imports the binary.

        Args:
          name: Of its module in `experiments`.
          work: Whether what was asked for is done too.
        """
        self._name = name
        self._work = work
        self._module = importlib.import_module(f"experiments.{name}")
        from absl import flags

        by_module = flags.FLAGS.flags_by_module_dict()
        self.table = by_module[self._module.__name__]
        self._names = sorted(flags.FLAGS)
        if name in ("train", "benchmark", "reproduce"):
            import tensorflow  # noqa: F401
        if not work:
            self._leave_work_out()

    def _leave_work_out(self) -> None:
        """Has the long part of a binary end it at once."""
        if self._name == "train":
            self._module.training.Run.train = lambda run: sys.exit(0)
        elif self._name == "factorize":
            self._module.factorizations.measure = lambda *arguments, **options: (
                sys.exit(0)
            )
        elif self._name == "benchmark":
            self._module.cli.work_begins = lambda: sys.exit(0)
        elif self._name == "reproduce":
            self._module._do_work = lambda *arguments: sys.exit(0)

    def run(self, line: Sequence[str], seconds: float = SECONDS) -> Result:
        """Runs a line, and again if it did not end: a busy machine may be why."""
        found = self._run_once(line, seconds)
        return self._run_once(line, seconds) if found.code is None else found

    def _run_once(self, line: Sequence[str], seconds: float) -> Result:
        """Runs a line in a folder of its own."""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            folder = Path(name)
            prepare(folder)
            begun = time.monotonic()
            child = os.fork()
            if not child:
                self._be(line, folder)
            code = _wait(child, begun + seconds)
            taken = time.monotonic() - begun
            out, err = (
                (folder / name).read_text("utf-8", "replace")
                for name in (".out", ".err")
            )
        fault = fault_of(line, code, out, err, self._names)
        for device in _DEVICES:
            if not stat.S_ISCHR(os.stat(device).st_mode):
                fault = f"{device} was replaced"
        return Result(line, code, round(taken, 3), fault, err[-600:])

    def _be(self, line: Sequence[str], folder: Path) -> NoReturn:
        """Acts as the line's process, from here to its end."""
        code = 1
        try:
            os.setsid()
            os.chdir(folder)
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
            for number, name in ((1, ".out"), (2, ".err")):
                os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY, 0o600), number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.argv = [f"dpfl-{self._name}", *line]
            try:
                self._module.run()
                code = 0
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else bool(error.code)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _wait(child: int, deadline: float) -> Optional[int]:
    """Returns a child's exit code, or None after a kill of it and of all it started."""
    code: Optional[int] = None
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(_POLL)
    # The line's session has its number, and whatever it left behind is in there.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if code is None:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
    return code


def serve(options: Any) -> Iterator[Result]:
    """Yields the results of a binary's lines, chosen or as stdin gives them."""
    from tools import fuzz_lines

    binary = Binary(options.serve, options.work)
    chosen = fuzz_lines.lines(options.serve, binary.table, options.seed)
    if options.given:
        chosen = (json.loads(line) for line in sys.stdin)
    for line in itertools.islice(chosen, options.lines):
        yield binary.run(line)


def shares(total: int, names: Sequence[str]) -> dict[str, int]:
    """Returns how many lines each binary gets; at least one."""
    from tools import fuzz_lines

    whole = sum(fuzz_lines.SHARES[name] for name in names)
    return {n: max(1, round(total * fuzz_lines.SHARES[n] / whole)) for n in names}


def _results(name: str, count: int, options: Any) -> Iterator[dict[str, Any]]:
    """Yields the results of a binary from a process of its own, as they come."""
    command = [sys.executable, "-m", "tools.fuzz", f"--serve={name}"]
    command += [f"--lines={count}", f"--seed={options.seed}"]
    command += ["--work"] if options.work else []
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
    if process.returncode:
        raise RuntimeError(f"{name} must be there to be run, found {process}")


def _arguments() -> Any:
    from tools import fuzz_lines

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lines", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", action="store_true")
    parser.add_argument("--binaries", default=",".join(fuzz_lines.SHARES))
    parser.add_argument("--serve", help="a binary of which to print each result")
    parser.add_argument(
        "--given", action="store_true", help="with --serve: lines of JSON from stdin"
    )
    return parser.parse_args()


def main() -> int:
    """Runs the lines; returns the exit code."""
    options = _arguments()
    if options.serve:
        # What a line writes goes elsewhere, but not what libraries say at import.
        for result in serve(options):
            print(json.dumps(result._asdict()), flush=True)
        return 0
    print("binary        lines  seconds  exit 0  exit 2  faults")
    faults = []
    for name, count in shares(options.lines, options.binaries.split(",")).items():
        begun, codes = time.monotonic(), collections.Counter()
        for found in _results(name, count, options):
            codes[found["code"]] += 1
            if found["fault"]:
                codes["faults"] += 1
                faults.append({"binary": name, **found})
                print(json.dumps(faults[-1]), file=sys.stderr, flush=True)
        seconds = time.monotonic() - begun
        cells = f"{codes[0]:8}{codes[2]:8}{codes['faults']:8}"
        print(f"{name:12}{count:7}{seconds:9.0f}{cells}", flush=True)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
