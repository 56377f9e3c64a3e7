# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Limits on time, and what is said of those who are waited for."""

import re
import sys
import threading
import time
from unittest import mock

import tqdm

from dpfl.engines.tff import engine as engine_lib
from dpfl.training import deadlines, engine
from tests.refusals import names
from tests.training import fakes


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
    process, worker = fakes.FakeEngine(), mock.MagicMock()
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
    assert state == 6 and worker.deadline.call_args_list == [mock.call(7.0)] * 3


def test_waiting_messages_are_late_and_rare(monkeypatch):
    said, begun = [], time.monotonic()
    monkeypatch.setattr(
        deadlines, "say", lambda text: said.append((time.monotonic() - begun, text))
    )
    monkeypatch.setattr(deadlines, "_SILENT_SECONDS", 0.02)
    with deadlines.waiting_for("a friend"):
        while len(said) < 3:
            time.sleep(0.01)
    assert all(names(text, "a friend") for _, text in said)
    assert all(at >= 0.02 * 4**number for number, (at, _) in enumerate(said))


def test_message_prints_on_its_own_line_above_progress_bar(capsys):
    with tqdm.tqdm(total=3, file=sys.stderr):
        deadlines.say("a worker is lost")
    assert "a worker is lost" in re.split(r"[\r\n]", capsys.readouterr().err)
