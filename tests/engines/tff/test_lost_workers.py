# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Workers that share a round, as fakes that are lost and come back."""

import threading

import pytest

from dpfl.engines.tff import remote_workers
from dpfl.engines.tff.connection import WorkerDiedError
from dpfl.training import config
from tests.refusals import names, refuses


class FakeWorker:
    """One that squares numbers until it is lost."""

    def __init__(self, name, losses=(), answers=True):
        self.address = name
        self.is_connected = False
        self.answers = answers
        self.calls = []
        self.seconds = []
        self._losses = set(losses)

    def connect(self):
        self.is_connected = self.answers
        return self.answers

    def call(self, computation, *arguments, seconds):
        self.calls.append(arguments)
        self.seconds.append(seconds)
        if len(self.calls) in self._losses:
            raise WorkerDiedError(f"the worker at {self.address} does not answer")
        return computation(*arguments)

    def close(self):
        self.is_connected = False


@pytest.fixture(autouse=True)
def no_wait(monkeypatch):
    monkeypatch.setattr(remote_workers, "_WAIT_SECONDS", 0)


def squares(workers, said, parts, **kwargs):
    made = remote_workers.Workers(workers, said.append, **kwargs)
    return made, made.run(lambda base, x: base + x * x, [100], parts)


def test_unknown_host_does_not_answer():
    assert not remote_workers.RemoteWorker("nobody.invalid:1").connect()


def test_results_keep_the_order_of_parts():
    workers, said = [FakeWorker("a:1"), FakeWorker("b:2")], []
    _, found = squares(workers, said, range(20))
    assert found == [100 + x * x for x in range(20)]
    assert sum(len(w.calls) for w in workers) == 20 and not said


def test_workers_work_at_the_same_time():
    """Each part waits for the other."""
    both = threading.Barrier(2)
    made = remote_workers.Workers([FakeWorker("a:1"), FakeWorker("b:2")], print)
    assert made.run(lambda x: both.wait() >= 0 and x, [], [1, 2]) == [1, 2]


def test_lost_worker_s_parts_are_recomputed():
    lost, other, said = FakeWorker("a:1", losses=[1]), FakeWorker("b:2"), []
    made, found = squares([lost, other], said, range(4))
    assert found == [100, 101, 104, 109]
    assert not lost.is_connected and len(other.calls) == 4
    assert [names(text, "a:1") for text in said] == [True]
    assert made.run(lambda x: x, [], [1, 2, 3]) == [1, 2, 3]
    assert lost.is_connected and [names(text, "a:1") for text in said] == [True] * 2


def test_slowly_timing_out_worker_is_retried_rarely(monkeypatch):
    """Ten seconds of one round in twenty, and not of each."""
    clock, asked = [0.0], []
    monkeypatch.setattr(remote_workers.time, "monotonic", lambda: clock[0])
    gone, other, said = FakeWorker("a:1", answers=False), FakeWorker("b:2"), []
    answer = gone.connect

    def connect():
        asked.append(clock[0])
        clock[0] += 10
        return answer()

    gone.connect = connect
    made = remote_workers.Workers([gone, other], said.append)
    for _ in range(60):
        made.run(lambda x: x, [], [1, 2])
        clock[0] += 5
    assert asked == [0.0, 210.0]
    gone.answers = True
    clock[0] += 200
    made.run(lambda x: x, [], [1, 2])
    assert gone.is_connected and names(said[-1], "a:1")
    # Without any other it is asked at once.
    gone.answers = other.answers = False
    gone.close()
    other.close()
    with pytest.raises(WorkerDiedError):
        made.run(lambda x: x, [], [1, 2])
    assert asked[-1] == clock[0] - 10


def test_round_without_workers_raises():
    said = []
    # Lost, used again, and lost once more.
    workers = [FakeWorker("a:1", [1, 2]), FakeWorker("b:2", [1, 2])]
    with refuses(WorkerDiedError, "a:1", "b:2"):
        squares(workers, said, range(4))
    assert [len(w.calls) for w in workers] == [2, 2]
    said = []
    with refuses(WorkerDiedError, "c:3"):
        squares([FakeWorker("c:3", answers=False)], said, range(4))
    assert [names(text, "c:3") for text in said] == [True]


def test_workers_are_awaited_if_none_answers(monkeypatch):
    """With another that answers, a worker is left for later."""
    monkeypatch.setattr(remote_workers, "_WAIT_SECONDS", 60)
    monkeypatch.setattr(remote_workers, "_TICK_SECONDS", 0.001)
    late, said, tries = FakeWorker("a:1", answers=False), [], []
    answer = late.connect

    def connect():
        tries.append(1)
        late.answers = len(tries) == 50
        return answer()

    late.connect = connect
    made, found = squares([late], said, [2, 3])
    assert found == [104, 109] and len(tries) == 50
    assert [names(text, "a:1") for text in said] == [True] * 2
    late.close()
    made, found = squares([late, FakeWorker("b:2")], said, [2, 3])
    assert found == [104, 109] and len(tries) == 51


def test_restarted_worker_takes_over_when_the_last_is_lost():
    """What used it before is found to be gone in the round that loses the other."""
    lost, restarted, said = FakeWorker("a:1", [2]), FakeWorker("b:2", [1]), []
    lost.close = lambda: FakeWorker.close(lost) or setattr(lost, "answers", False)
    made, found = squares([lost, restarted], said, range(9))
    assert found == [100 + x * x for x in range(9)]
    assert restarted.is_connected and not lost.is_connected
    assert names(said[-1], "b:2") and len(said) == 3


def test_worker_lost_between_rounds_is_reported():
    lost, said = FakeWorker("a:1"), []
    made, _ = squares([lost, FakeWorker("b:2")], said, [1])
    lost.answers = False
    lost.close()
    for _ in range(3):
        assert made.run(lambda x: x, [], [1, 2]) == [1, 2]
    assert [names(text, "a:1") for text in said] == [True]


def test_incompatible_worker_is_not_used():
    bad, good, said = FakeWorker("a:1"), FakeWorker("b:2"), []

    def problem(worker, seconds):
        return "the data of a:1" if worker is bad else None

    made, found = squares([bad, good], said, [2, 3], problem=problem)
    assert found == [104, 109] and not bad.calls
    made.run(lambda x: x, [], [1])
    assert [names(text, "the data of a:1") for text in said] == [True]


def test_computation_error_is_not_a_lost_worker():
    workers, said = [FakeWorker("a:1"), FakeWorker("b:2")], []
    made = remote_workers.Workers(workers, said.append)
    with pytest.raises(ZeroDivisionError):
        made.run(lambda x: 1 // x, [], [1, 0, 2])
    assert not said


def test_deadline_applies_to_each_part():
    worker = FakeWorker("a:1")
    made = remote_workers.Workers([worker], print)
    with made.deadline(7.0):
        made.run(lambda x: x, [], [1])
    made.run(lambda x: x, [], [1])
    assert worker.seconds == [7.0, None] and made.seconds is None


class TestAddresses:
    def test_addresses_parse_hosts_and_ports(self):
        found = config.addresses("a.b:1, 10.0.0.1:65535,[::1]:80")
        assert found == ("a.b:1", "10.0.0.1:65535", "[::1]:80")
        assert config.addresses(None) == config.addresses("") == ()

    @pytest.mark.parametrize("text", ["a", "a:", ":1", "::1:80", "a:b", "a:²"])
    def test_malformed_addresses_are_refused(self, text):
        with refuses(ValueError, "workers", repr(text)):
            config.addresses(text)

    def test_bad_ports_and_duplicate_addresses_are_refused(self):
        with refuses(ValueError, "workers", 70000):
            config.addresses("a:70000")
        with refuses(ValueError, "workers", "a:1"):
            config.addresses("a:1,b:1,a:1")
