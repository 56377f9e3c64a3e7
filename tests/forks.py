# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Starts programs from a process that has imported TensorFlow Federated.

A fork takes milliseconds where imports take five seconds of a processor. What is forked
is a process of its own: it can be killed, has its own TensorFlow and starts its own
worker. That a program starts from nothing, and what imports write to stderr, is held by
the tests that use `tests.experiments.programs`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import itertools
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from tools import interpreters

ROOT = Path(__file__).resolve().parents[1]
# What a test waits for has stopped if it takes longer, on whatever machine: tests have no
# other limits, since a busy machine is slow, and one that sleeps slower.
SECONDS = 1200.0

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.imported"])


def start(program, *args, folder=ROOT, out=os.devnull, err=os.devnull, first=None):
    """Starts a program, as `python -m` or `python` does.

    Args:
      program: Name of a module, or the path of a file that ends in .py.
      *args: Its arguments.
      folder: Where it runs.
      out: Path of the file that takes its stdout.
      err: Path of the file that takes its stderr.
      first: What the process calls before it is the program; it can be pickled.

    Returns:
      The process, as `multiprocessing` has it.
    """
    words = [str(word) for word in (program, *args)]
    process = _CONTEXT.Process(
        target=_be, args=(words, str(folder), str(out), str(err), first)
    )
    process.start()
    return process


def run(program, *args, folder=ROOT, first=None):
    """Runs a program to its end, as `subprocess.run` does; see `start`."""
    with tempfile.TemporaryDirectory() as scratch:
        out, err = Path(scratch) / "out", Path(scratch) / "err"
        process = start(program, *args, folder=folder, out=out, err=err, first=first)
        process.join(SECONDS)
        if process.is_alive():
            process.kill()
            raise TimeoutError(f"{program} must end, found {err.read_text()[-2000:]}")
        said = [path.read_text("utf-8", "replace") for path in (out, err)]
    return subprocess.CompletedProcess([program, *args], process.exitcode, *said)


def import_anew(folders):
    """Has a process import dpfl again, from folders, but not what dpfl needs.

    It finds plugins that are installed there. For `first`.
    """
    for name in list(sys.modules):
        if name.partition(".")[0] in ("dpfl", "experiments", "configs"):
            del sys.modules[name]
    kept = [path for path in sys.path if path and Path(path).resolve() != ROOT]
    sys.path[:] = [*map(str, folders), *kept]
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, folders))


def kill_at(place, call, when, by=signal.SIGKILL):
    """Kills a process at a call of a function, for `first`.

    Args:
      place: "module:function" or "module:Class.method".
      call: The number of the call, from 1 on.
      when: "before" or "after" it.
      by: The signal.
    """
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner = functools.reduce(getattr, owners, importlib.import_module(module))
    function, calls = getattr(owner, name), itertools.count(1)

    @contextlib.contextmanager
    def counted():
        is_it = next(calls) == call
        if is_it and when == "before":
            os.kill(os.getpid(), by)
        yield
        if is_it:
            os.kill(os.getpid(), by)

    async def called_later(*args, **kwargs):
        with counted():
            return await function(*args, **kwargs)

    def called(*args, **kwargs):
        with counted():
            return function(*args, **kwargs)

    is_later = inspect.iscoroutinefunction(function)
    setattr(owner, name, called_later if is_later else called)


def until(is_so):
    """Waits for something to become true."""
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def has_ended(pid):
    """Whether a process has ended, as a zombie has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def stop(pid):
    """Stops a process with all of its threads; whether it had not ended before."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    while not has_ended(pid):
        if {t.read_text().rsplit(")")[-1][1] for t in tasks.glob("*/stat")} == {"T"}:
            return True
        time.sleep(0.001)
    return False


def _be(words, folder, out, err, first):
    """Acts as the program, from here to its end."""
    os.chdir(folder)
    if first is not None:
        first()
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), number)
    sys.argv = words
    if words[0].endswith(".py"):
        runpy.run_path(words[0], run_name="__main__")
    else:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def other_python(name):
    """The interpreter of an environment beside this one; skips the test without it."""
    python = interpreters.find_environment(name)
    if python is None:
        assert "CI" not in os.environ, f"tools/interpreters.py made no {name}"
        pytest.skip(f"there is no {name} here; tools/interpreters.py makes it")
    return str(python)
