# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs that signals end at random moments, and that are resumed until they are done."""

from __future__ import annotations

import itertools
import os
import pathlib
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.context import ForkProcess
from typing import Any, NamedTuple

from tools.soaks import runs

_SIGNALS_OF_A_RUN = 3
_LOOP_ROUNDS = 300
# Signals that end no training: Python ignores PIPE and XFSZ, and a session of its own
# has no terminal to stop it.
_NO_END = {
    getattr(signal, f"SIG{name}")
    for name in "CHLD CONT URG WINCH PIPE XFSZ TSTP TTIN TTOU".split()
}
# Signals that can be caught.
CATCHABLE = sorted(set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP})
# The number of disturbances, and a sentence for each fault.
Outcome = tuple[int, list[str]]


class Kind(NamedTuple):
    """A kind of run: a function that starts one in a folder, and its rounds."""

    start: Callable[[pathlib.Path], ForkProcess]
    rounds: int


def trainings(names: Sequence[str]) -> dict[str, Kind]:
    """Trainings with the examples of mechanisms."""

    def kind(name: str) -> Kind:
        return Kind(lambda folder: runs.start(runs.flags_of(name), folder), runs.ROUNDS)

    return {name: kind(name) for name in names}


def loops() -> dict[str, Kind]:
    """Loops that compute nothing, so that most kills come in writes."""

    def start(folder: pathlib.Path) -> ForkProcess:
        log = runs.log_of(folder)
        return runs.fork_program(lambda: _loop(folder), ["loop"], log, log)

    return {"loop": Kind(start, _LOOP_ROUNDS)}


def _loop(folder: pathlib.Path) -> None:
    """Runs the loop of a small plan, or its rest."""
    from experiments.benchmarks import programs

    folder.mkdir(exist_ok=True)
    plan = programs.make_plan(folder, _LOOP_ROUNDS, checkpoint_every=5)
    programs.run_stub(plan, folder)


def disturb(
    kinds: Mapping[str, Kind],
    signals: Sequence[int],
    seed: int,
    folder: pathlib.Path,
) -> Outcome:
    """Sends signals to runs of kinds in turn, at moments spread over all their work.

    Args:
      kinds: The kinds of runs by name.
      signals: The signals, in the order of their sending.
      seed: Seed of the moments.
      folder: Folder of the runs.
    """
    draw = random.Random(f"{seed} {'-'.join(kinds)}")
    whole: dict[str, tuple[dict[str, Any], float]] = {}
    left, faults = [*reversed(signals)], []
    for number, name in enumerate(itertools.cycle(kinds)):
        if not left:
            break
        kind, own = kinds[name], folder / f"{name}-{number}"
        if name not in whole:
            untouched, begun = folder / f"{name}-whole", time.monotonic()
            faults += _finished(kind, untouched, {})
            whole[name] = runs.results(untouched), time.monotonic() - begun
        expected, seconds = whole[name]
        drawn = (draw.randrange(kind.rounds + 1) for _ in left[-_SIGNALS_OF_A_RUN:])
        for target in sorted(drawn):
            run = kind.start(own)
            while run.is_alive() and runs.newest_round(own) < target:
                time.sleep(0.002)
            time.sleep(draw.random() * 2 * seconds / kind.rounds)
            if run.is_alive():
                os.kill(run.pid or 0, left[-1])
            code, wanted = runs.ended(run), _documented(left[-1])
            if code == wanted:
                left.pop()
            elif code != 0:
                faults.append(f"{name}, signal {left.pop()}: exit code {code}")
            if "Traceback" in runs.log_of(own).read_text(errors="replace"):
                faults.append(f"{name}: a traceback")
            faults += [f"{name}: {process} was left" for process in runs.left_behind()]
            if code == 0:
                break
        faults += _finished(kind, own, expected)
        done = len(signals) - len(left)
        said = f"{done} signals, {len(faults)} faults, last {name}"
        print(said, file=sys.stderr, flush=True)
    return len(signals) - len(left), faults


def _finished(kind: Kind, folder: pathlib.Path, expected: dict[str, Any]) -> list[str]:
    """Resumes a run to its end; returns its differences from what is expected."""
    code = runs.ended(kind.start(folder))
    if code == 0:
        found = runs.differences(folder, expected)
    else:
        tail = runs.log_of(folder).read_text(errors="replace")[-1000:]
        found = [f"the resumed run ended with {code}: {tail}"]
    found += [f"{left} was left" for left in runs.left_behind()]
    return [f"{folder.name}: {what}" for what in found]


def _documented(which: int) -> int:
    """The documented exit code of a signal; a shell says 128 + n for -n."""
    if which == signal.SIGINT:
        return 130
    return 0 if which in _NO_END else -which
