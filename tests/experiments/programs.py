# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs the binaries of `experiments` as a shell would."""

from __future__ import annotations

import functools
import importlib
import json
import os
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path

import tqdm
from absl import flags

from tests import forks, refusals

ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """A shell's: some library sets TensorFlow's log level for its children."""
    kept = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    return {**kept, "PYTHONPATH": str(ROOT)}


def command(binary: str, *args) -> list[str]:
    return [sys.executable, "-m", f"experiments.{binary}", *map(str, args)]


def python(*words, **options) -> subprocess.CompletedProcess:
    """The exit code and output of a Python, which reads nothing unless it is told to."""
    options = {
        "cwd": ROOT,
        "env": environment(),
        "stdin": subprocess.DEVNULL,
        **options,
    }
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def run(binary: str, *args) -> subprocess.CompletedProcess:
    """The exit code and output of a binary."""
    return python("-m", f"experiments.{binary}", *args)


def check_refused(done: subprocess.CompletedProcess, *parts: object) -> None:
    """Checks that a program has said one sentence, which names parts, and no more."""
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert refusals.names(done.stderr, *parts), (parts, done.stderr)


def forked(binary: str, *args, refused=()) -> subprocess.CompletedProcess:
    """A binary as a fork, which ends well, or is refused by a sentence with parts."""
    done = forks.run(f"experiments.{binary}", *args)
    if refused:
        check_refused(done, *refused)
    else:
        assert done.returncode == 0, done.stderr
    return done


_CONFIGS = """
import json, sys
from absl import flags
from experiments import train
for line in sys.stdin.read().splitlines():
    sys.argv = ["train", *json.loads(line)]
    flags.FLAGS.unparse_flags()
    for name in flags.FLAGS: flags.FLAGS[name].unparse()
    flags.FLAGS(sys.argv)
    train.forget_other_mechanisms()
    config = train.run_config()
    of, train.engine.of = train.engine.of, lambda name: "jax"
    is_apart = train.default_output_dir() != config.output_dir
    train.engine.of = of
    budget = config.epsilon, config.noise_multiplier
    print(json.dumps([config.task, *budget, sorted(config.flags), is_apart]))
"""


def configs(lines: list[list[str]]) -> tuple[list[list], str]:
    """What dpfl-train makes of command lines, in one process, and its stderr.

    Task, epsilon, noise, names of flags, and whether a run in JAX has another folder.
    """
    given = "\n".join(map(json.dumps, lines))
    done = python("-c", _CONFIGS, input=given, stdin=None)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(lines), done.stderr
    return found, done.stderr


def read_from(path: Path) -> None:
    """Has this process read a file as its stdin, and fork its trainers."""
    fork_trainers()
    sys.stdin = open(path)


def fork_trainers(binaries: str = "experiments") -> None:
    """Has this process fork the trainers of binaries, which then import nothing."""
    trainers = importlib.import_module(f"{binaries}.trainings.trainers")
    search = f"{binaries}.search"

    def main() -> None:
        # Some of its flags have the names of a training's.
        for flag in [*flags.FLAGS.flags_by_module_dict().get(search, ())]:
            delattr(flags.FLAGS, flag.name)
        # Those of a sweep are a training's, with several values.
        for name in flags.FLAGS:
            parser = flags.FLAGS[name].parser
            flags.FLAGS[name].parser = getattr(parser, "one", parser)
        trainers.main()

    popen = functools.partial(_Fork, main)
    trainers.subprocess = types.SimpleNamespace(Popen=popen, PIPE=subprocess.PIPE)


class _Fork:
    """A `Popen` of a function that reads stdin and writes to stdout."""

    def __init__(self, main: Callable[[], None], command: list[str], **more: object):
        from tools.soaks import runs

        (asked, stdin), (stdout, answers) = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(stdin, "w"), os.fdopen(stdout)
        self._process = runs.fork(self._serve, main, asked, answers)
        self.pid = self._process.pid
        os.close(asked)
        os.close(answers)

    def _serve(self, main: Callable[[], None], asked: int, answers: int) -> None:
        # Another thread, which draws a bar, may hold the old one for ever here.
        tqdm.tqdm.set_lock(threading.RLock())
        self.stdin.close()
        os.dup2(answers, 1)
        sys.stdin = os.fdopen(asked)
        # Its own, whatever the parent reads.
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        main()

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int:
        self._process.join()
        return self._process.exitcode
