# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Limits on a clock that jumps, and what is said of those who are waited for."""

import re
import subprocess
import sys
import threading

import pytest
import tqdm

from dpfl.engines.tff import engine as engine_lib
from dpfl.training import deadlines, engine
from tests.refusals import names
from tests.training import fakes


@pytest.fixture
def now(monkeypatch):
    """The time of the monotonic clock, in a list."""
    found = [0.0]
    monkeypatch.setattr(deadlines.time, "monotonic", lambda: found[0])
    return found


def test_clock_jump_counts_as_one_step(now):
    clock = deadlines.Clock(step=1.0)
    for time in (0.5, 1.25, 61.25, 61.5):
        now[0] = time
        found = clock.seconds()
    assert found == 1.25 + 1.0 + 0.25


def test_deadline_fires_once_and_only_within_its_block():
    over, late = threading.Event(), []
    with deadlines.time_limit(0.05, lambda seconds: late.append(seconds) or over.set()):
        over.wait()
    with deadlines.time_limit(3600.0, late.append):
        pass
    with deadlines.time_limit(None, late.append):
        pass
    assert late == [0.05]


def test_first_state_and_each_round_have_a_deadline(make_plan, monkeypatch):
    process, worker = fakes.FakeEngine(), fakes.FakeWorker()
    process.next = process.round
    monkeypatch.setattr(engine_lib.TffEngine, "_build", lambda *unused: process)
    monkeypatch.setattr(
        engine_lib.federated_averaging, "Evaluator", lambda *unused: None
    )
    setup = engine.Setup(None, 1, 2, print, engine.LastProcess())
    plan = make_plan(cohort_size=5, rounds=6, noise_multiplier=1.0, round_deadline=7.0)
    own = engine_lib.TffEngine(plan, setup, 1, worker)
    state = own.initialize()
    for clients in ([1, 2], [3]):
        state = own.round(state, clients).state
    assert state == 6 and worker.deadlines == [7.0] * 3


STOPPED = """
import os, signal, subprocess, sys, time
from dpfl.training import deadlines
late = []
with deadlines.time_limit(1.5, late.append):
    stopped = f"until grep -q State:.T /proc/{os.getpid()}/status; do sleep 0.1; done"
    subprocess.Popen(["sh", "-c", f"{stopped}; sleep 2; kill -CONT {os.getpid()}"])
    begun = time.monotonic()
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.5)
    print(time.monotonic() - begun > 1.5, late, flush=True)
"""


@pytest.mark.slow
def test_suspended_time_does_not_count_towards_deadlines():
    done = subprocess.run(
        [sys.executable, "-c", STOPPED], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True []\n"


def test_waiting_messages_are_late_and_rare(now, monkeypatch):
    """The thread's part, at times of ours."""
    said, tells = [], []
    monkeypatch.setattr(deadlines, "say", said.append)
    counting = deadlines.counting
    monkeypatch.setattr(
        deadlines, "counting", lambda tell: tells.append(tell) or counting(tell, 3600.0)
    )
    with deadlines.waiting_for("a friend"):
        assert not any(tells[0](float(passed)) for passed in range(500))
    seconds = [int(re.search(r"\d+", text)[0]) for text in said]
    assert seconds == [30, 120, 480]
    assert names(said[0], "a friend")


def test_message_prints_on_its_own_line_above_progress_bar(capsys):
    with tqdm.tqdm(total=3, file=sys.stderr):
        deadlines.say("a worker is lost")
    assert "a worker is lost" in re.split(r"[\r\n]", capsys.readouterr().err)
