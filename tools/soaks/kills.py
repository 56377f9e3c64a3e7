# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Trainings that are killed at random moments, and resumed until they are done."""

from __future__ import annotations

import itertools
import os
import pathlib
import random
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from tools.soaks import runs

# Share of the kills during the start of a training.
_AT_START = 0.15
_KILLS_OF_A_RUN = 3
_LOOP_ROUNDS = 300
# The number of disturbances, and a sentence for each fault.
Outcome = tuple[int, list[str]]


class Reference(NamedTuple):
    """An undisturbed training, with its `runs.results`."""

    results: dict[str, Any]
    # Seconds to its first checkpoint, of a round, and from its last checkpoint to its
    # end.
    start_seconds: float
    round_seconds: float
    end_seconds: float
    rounds: int


def reference(flags: Sequence[str], folder: pathlib.Path) -> Reference:
    """Runs a training to its end.

    Raises:
      RuntimeError: If it fails.
    """
    begun = time.monotonic()
    training = runs.start(flags, folder)
    times: dict[int, float] = {}
    while runs.is_running(training) and time.monotonic() < begun + runs.RUN_SECONDS:
        times.setdefault(runs.newest_round(folder), time.monotonic() - begun)
        time.sleep(0.005)
    code = runs.wait(training)
    if code:
        raise RuntimeError(
            f"a training that nobody disturbs ended with {code}: "
            f"{training.log.read_text(errors='replace')[-2000:]}"
        )
    total = time.monotonic() - begun
    rounds = max(runs.newest_round(folder), *times)
    first = min(at for number, at in times.items() if number)
    last = times.get(rounds, total)
    return Reference(
        runs.results(folder), first, (last - first) / rounds, total - last, rounds
    )


def kill_all(
    names: Sequence[str], kills: int, seed: int, folder: pathlib.Path, end: float
) -> Outcome:
    """Kills trainings of mechanisms in turn, at moments spread over all their work.

    Args:
      names: Names of the mechanisms.
      kills: Number of kills of each mechanism.
      seed: Seed of the moments.
      folder: Folder of the trainings.
      end: Time, by `time.monotonic`, after which none is started.
    """
    draw = random.Random(f"{seed} kills")
    references: dict[str, Reference] = {}
    done, faults = 0, []
    for number, name in enumerate(itertools.cycle(names)):
        if done >= kills or time.monotonic() > end:
            break
        own, flags = folder / f"{name}-{number}", runs.flags_of(name)
        if name not in references:
            references[name] = reference(flags, folder / f"{name}-whole")
        wanted = min(_KILLS_OF_A_RUN, kills - done)
        for point in sorted(draw.random() for _ in range(wanted)):
            training = runs.start(flags, own)
            _await_moment(training, point, references[name], draw)
            os.kill(training.pid, signal.SIGKILL)
            code = runs.wait(training)
            faults += _left(name)
            if code != -signal.SIGKILL:
                # The training ended before the kill.
                break
            done += 1
        faults += _finish(name, flags, own, references[name])
        said = f"{done} kills, {len(faults)} faults, last {name}"
        print(said, file=sys.stderr, flush=True)
    return done, faults


def kill_loops(kills: int, seed: int, folder: pathlib.Path) -> Outcome:
    """Kills runs of a loop that computes nothing, so that most kills come in writes.

    Args:
      kills: Number of kills.
      seed: Seed of the moments.
      folder: Folder of the runs.
    """
    draw = random.Random(f"{seed} loops")
    whole = folder / "loop-whole"
    seconds = runs.fork_call(_loop, str(whole))
    expected = runs.record(whole)
    done, number, faults = 0, 0, []
    while done < kills:
        number += 1
        own = folder / f"loop-{number}"
        for point in sorted(draw.random() for _ in range(_KILLS_OF_A_RUN)):
            pid = runs.fork(_loop, str(own))
            target = int(point * _LOOP_ROUNDS)
            end = time.monotonic() + runs.RUN_SECONDS
            while runs.newest_round(own) < target and time.monotonic() < end:
                time.sleep(0.001)
            time.sleep(draw.random() * 20 * seconds / _LOOP_ROUNDS)
            os.kill(pid, signal.SIGKILL)
            done += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        runs.fork_call(_loop, str(own))
        record = runs.record(own)
        faults += [f"loop: other {k}" for k in expected if record[k] != expected[k]]
        shutil.rmtree(own)
    return done, faults


def _loop(name: str) -> float:
    """Runs the loop of a small plan, or its rest; returns the seconds that it took."""
    from experiments.benchmarks import programs

    folder = pathlib.Path(name)
    folder.mkdir(exist_ok=True)
    plan = programs.make_plan(folder, _LOOP_ROUNDS, checkpoint_every=5)
    begun = time.monotonic()
    programs.run_stub(plan, folder)
    return time.monotonic() - begun


def _left(name: str) -> list[str]:
    return [f"{name}: {left} was left" for left in runs.left_behind()]


def _finish(
    name: str, flags: Sequence[str], folder: pathlib.Path, untouched: Reference
) -> list[str]:
    """Resumes a training to its end; returns its differences from the reference."""
    training = runs.start(flags, folder)
    code = runs.wait(training)
    faults = _left(name)
    if code:
        tail = training.log.read_text(errors="replace")[-1000:]
        return [*faults, f"{name}: the resumed training ended with {code}: {tail}"]
    differences = runs.differences(folder, untouched.results)
    return faults + [f"{name}: {difference}" for difference in differences]


def _await_moment(
    training: runs.Training, point: float, untouched: Reference, draw: random.Random
) -> None:
    """Waits until a training is at a point of its work, in [0, 1), or has ended.

    The work consists of all rounds and the end; some points are in the start.
    """
    end = time.monotonic() + runs.RUN_SECONDS
    if draw.random() < _AT_START:
        end = time.monotonic() + draw.random() * untouched.start_seconds
        while time.monotonic() < end and runs.is_running(training):
            time.sleep(0.005)
        return
    seconds = untouched.round_seconds * untouched.rounds
    at = point * (seconds + untouched.end_seconds)
    target, delay = untouched.rounds, at - seconds
    if at < seconds:
        target = max(1, int(at / untouched.round_seconds) // 2 * 2)
        delay = draw.random() * 2 * untouched.round_seconds
    # A resumed training has its newest checkpoint before it begins.
    before = runs.newest_round(training.folder)
    while time.monotonic() < end and runs.is_running(training):
        newest = runs.newest_round(training.folder)
        log = training.log.read_text(errors="replace") if training.log.exists() else ""
        if newest >= target and (newest > before or "resuming after" in log):
            break
        time.sleep(0.002)
    time.sleep(delay)


def send_signals(count: int, seed: int, folder: pathlib.Path) -> Outcome:
    """Sends the first of the signals that a process can catch, at random moments.

    Args:
      count: Number of signals.
      seed: Seed of the moments.
      folder: Folder of the trainings.
    """
    draw = random.Random(f"{seed} signals")
    uncatchable = {signal.SIGKILL, signal.SIGSTOP}
    chosen = sorted(set(signal.valid_signals()) - uncatchable)[:count]
    flags = [*runs.flags_of("gaussian"), "--rounds=60"]
    untouched = reference(flags, folder / "signals-whole")
    faults: list[str] = []
    number, own = 0, folder / "signals-0"
    for which in chosen:
        before = runs.newest_round(own)
        if before >= untouched.rounds - 6:
            faults += _finish(f"signal run {number}", flags, own, untouched)
            number += 1
            own, before = folder / f"signals-{number}", 0
        training = runs.start(flags, own)
        while runs.is_running(training) and runs.newest_round(own) <= before:
            time.sleep(0.005)
        time.sleep(draw.random() * 2 * untouched.round_seconds)
        os.kill(training.pid, which)
        code = runs.wait(training)
        name = f"signal {int(which)}"
        if code != _documented(which):
            faults.append(f"{name}: exit code {code}")
        if "Traceback" in training.log.read_text(errors="replace"):
            faults.append(f"{name}: a traceback")
        faults += _left(name)
    faults += _finish(f"signal run {number}", flags, own, untouched)
    return len(chosen), faults


def _documented(which: int) -> int:
    """The documented exit code of a signal; a shell says 128 + n for -n."""
    if which == signal.SIGINT:
        return 130
    # Python ignores PIPE and XFSZ, and a session of its own has no terminal to stop it.
    names = "CHLD CONT URG WINCH PIPE XFSZ TSTP TTIN TTOU".split()
    no_end = [getattr(signal, f"SIG{name}") for name in names]
    return 0 if which in no_end else -which
