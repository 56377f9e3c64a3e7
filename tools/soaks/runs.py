# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Trainings to disturb: forked after the imports, killed, and compared bit by bit.

The imports of a training take longer than its rounds. So they are done once, in this
process, which then computes nothing; each training is a fork of it that runs the train
binary from its flags to its exit code.
"""

from __future__ import annotations

import atexit
import ctypes
import dataclasses
import importlib.util
import json
import multiprocessing
import os
import pathlib
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkProcess
from typing import Any, Optional

import psutil

from dpfl import mechanisms

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)
# Most seconds of a training, and of processes that survive a kill.
RUN_SECONDS = 3600.0
_LINGER_SECONDS = 60.0
# In an environment with JAX its engine is disturbed.
ENGINE = "tff" if importlib.util.find_spec("tensorflow") else "jax"

ROUNDS = 16
BASE = (
    *("--task=synthetic", "--model=small_cnn", "--num_clients=8", "--cohort_size=4"),
    *("--examples_per_client=2", "--batch_size=2", "--num_test_examples=4"),
    *(f"--rounds={ROUNDS}", "--checkpoint_every=2", "--eval_every=3", "--seed=5"),
    *("--noprogress", *(["--concurrency=2"] if ENGINE == "tff" else [])),
)
_ONCE = ("--participation=once_per_epoch", "--num_clients=16")
_FIXED = ("--participation=fixed",)
# Flags of a mechanism besides its example in `mechanisms.TEST_CONFIGS`.
_BESIDE: dict[str, tuple[str, ...]] = {
    "gaussian": ("--adaptive_clipping",),
    **dict.fromkeys(("distributed_discrete_gaussian", "distributed_skellam"), _FIXED),
    **dict.fromkeys(("sketched_ddg", "sparse_recovery"), _FIXED),
    **dict.fromkeys(("dome", "dome_ddg"), (*_FIXED, "--server_momentum=0")),
    **dict.fromkeys(("matrix_factorization", "sgmf"), _ONCE),
}


def prepare() -> None:
    """Imports everything that a training needs, and adopts its orphaned processes.

    This process must compute nothing afterwards: an engine's threads survive no fork.
    """
    from experiments import start

    start.import_engine(ENGINE)
    if ENGINE == "tff":
        import matplotlib.backends.backend_agg  # noqa: F401
        import tensorflow as tf
        import tensorflow_federated  # noqa: F401

        tf.get_logger().setLevel("ERROR")
    else:
        import dpfl.engines.jax.engine  # noqa: F401
    from dpfl.training import page  # noqa: F401
    from experiments import train  # noqa: F401

    # This process becomes the parent of its children's orphans.
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def flags_of(mechanism: str) -> list[str]:
    """The flags of a small training with a mechanism's example."""
    example = mechanisms.TEST_CONFIGS[mechanism]
    own = (
        f"--{field.name}={getattr(example, field.name)}"
        for field in dataclasses.fields(example)
        if field.name not in ("cohort_size", "noise_multiplier", "clip_norm")
        and getattr(example, field.name) != field.default
    )
    beside = _BESIDE.get(mechanism, ())
    private = ["--accounting_method=rdp", "--noise_multiplier=1"] * example.is_private
    return [*BASE, *private, f"--mechanism={mechanism}", *own, *beside]


def log_of(folder: pathlib.Path) -> pathlib.Path:
    """The file beside a run's folder that has its output."""
    return folder.with_name(f"{folder.name}.log")


def start(flags: Sequence[str], folder: pathlib.Path) -> ForkProcess:
    """Starts the train binary in a fork."""

    def train() -> None:
        # A shell that starts the soak in the background has some of them ignored.
        for which in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
            signal.signal(which, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from experiments import cli, train

        cli.run(train.main)

    words = ["dpfl-train", *flags, f"--output_dir={folder}"]
    return fork_program(train, words, log_of(folder), log_of(folder))


def fork(function: Callable[..., Any], *arguments: Any) -> ForkProcess:
    """Forks a process that calls a function and ends, with this one at the latest."""

    def be() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        try:
            function(*arguments)
        finally:
            # As by the interpreter at its end.
            atexit._run_exitfuncs()

    sys.stdout.flush()
    process = multiprocessing.get_context("fork").Process(target=be)
    process.start()
    return process


def fork_program(
    run: Callable[[], Any], words: Sequence[str], out: pathlib.Path, err: pathlib.Path
) -> ForkProcess:
    """Forks a program into a session of its own.

    Args:
      run: The program's function, to its exit code.
      words: The command line.
      out: File for stdout.
      err: File for stderr, which may be the same.
    """

    def be() -> None:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, flags, 0o600), number)
        sys.argv = list(words)
        run()

    for path in (out, err):
        path.write_text("")
    return fork(be)


def ended(process: ForkProcess, seconds: float = RUN_SECONDS) -> Optional[int]:
    """A process's exit code, or minus its signal.

    After so many seconds it is killed, and the code is None.
    """
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
        return None
    return process.exitcode


def newest_round(folder: pathlib.Path) -> int:
    """The round of the newest checkpoint, 0 if there is none."""
    names = (p.name for p in folder.glob("checkpoints/checkpoint-*"))
    return max((int(name.split("-")[1]) for name in names), default=0)


def left_behind() -> list[str]:
    """Kills processes left behind by ended trainings; returns them."""
    children = psutil.Process().children(recursive=True)
    _, alive = psutil.wait_procs(children, _LINGER_SECONDS)
    names = [f"process {child.pid} ({child.name()})" for child in alive]
    for child in alive:
        child.kill()
    return names


def results(folder: pathlib.Path) -> dict[str, Any]:
    """The results that equal runs share, to the last bit."""
    from dpfl.training import checkpoint, engine

    newest = checkpoint.CheckpointStore(folder / "checkpoints").load_newest()
    state = [newest.participations, newest.scores, *newest.leaves] if newest else []
    model = folder / engine.MODEL
    return {
        "metrics.csv": (folder / "metrics.csv").read_bytes(),
        "checkpoints": sorted(p.name for p in folder.glob("checkpoints/checkpoint-*")),
        "state": [a.tobytes() for a in state],
        "rows": json.dumps([newest.totals, newest.rows] if newest else None),
        "TensorBoard": [event[1:] for event in events(folder)],
        # The loop around a process that computes nothing has none.
        "model": model.read_bytes() if model.exists() else None,
    }


def differences(folder: pathlib.Path, expected: dict[str, Any]) -> list[str]:
    """Names of the results in which a training differs from another."""
    try:
        results_now = results(folder)
    except (OSError, ValueError) as error:
        return [f"its results cannot be read ({error})"]
    return [f"other {name}" for name in expected if results_now[name] != expected[name]]


def events(folder: pathlib.Path) -> list[tuple[float, int, str, float]]:
    """The (wall time, round, name, value) of all events, as TensorBoard reads them."""
    from tensorboard.backend.event_processing import event_file_loader

    from dpfl.training import record

    loader = event_file_loader.LegacyEventFileLoader(str(folder / record.EVENTS))
    return [
        (event.wall_time, event.step, value.tag, value.simple_value)
        for event in loader.Load()
        for value in event.summary.value
    ]


if __name__ == "__main__":
    print(" ".join(flags_of(sys.argv[1])))
