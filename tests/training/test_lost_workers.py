# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Workers that share a round, as fakes that are lost and come back."""

import socket
import threading

import pytest

from dpfl.training import config, remote_workers
from dpfl.training.connection import WorkerDiedError


class FakeWorker:
    """One that squares numbers until it is lost."""

    def __init__(self, name, losses=(), answers=True):
        self.address = name
        self.is_connected = self.is_slow = False
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
    monkeypatch.setattr(remote_workers, "_START_SECONDS", 0)


def squares(workers, said, parts, **kwargs):
    made = remote_workers.Workers(workers, said.append, **kwargs)
    return made, made.run(lambda base, x: base + x * x, [100], parts)


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError, TimeoutError, socket.timeout]
)
def test_only_refused_connections_mean_the_worker_is_gone(monkeypatch, error):
    def create_connection(*_):
        raise error

    monkeypatch.setattr(remote_workers.socket, "create_connection", create_connection)
    worker = remote_workers.RemoteWorker(config.Address("a", 1))
    assert not worker.connect() and worker.is_slow == (
        error is not ConnectionRefusedError
    )


def test_results_keep_the_order_of_parts():
    workers, said = [FakeWorker("a"), FakeWorker("b")], []
    _, found = squares(workers, said, range(20))
    assert found == [100 + x * x for x in range(20)]
    assert sum(len(w.calls) for w in workers) == 20 and not said


def test_workers_work_at_the_same_time():
    """Each part waits for the other."""
    both = threading.Barrier(2)
    made = remote_workers.Workers([FakeWorker("a"), FakeWorker("b")], print)
    assert made.run(lambda x: both.wait() >= 0 and x, [], [1, 2]) == [1, 2]


def test_lost_worker_s_parts_are_recomputed():
    lost, other, said = FakeWorker("a", losses=[1]), FakeWorker("b"), []
    made, found = squares([lost, other], said, range(4))
    assert found == [100, 101, 104, 109]
    assert not lost.is_connected and len(other.calls) == 4
    assert said == [
        "the worker at a does not answer; it is left out, and its clients are computed "
        "again"
    ]
    assert made.run(lambda x: x, [], [1, 2, 3]) == [1, 2, 3]
    assert lost.is_connected and said[1:] == ["the worker at a is used again"]


def test_slowly_timing_out_worker_is_retried_rarely(monkeypatch):
    """Ten seconds of one round in twenty, and not of each."""
    clock, asked = [0.0], []
    monkeypatch.setattr(remote_workers.time, "monotonic", lambda: clock[0])
    gone, other, said = FakeWorker("a", answers=False), FakeWorker("b"), []
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
    assert gone.is_connected and said[-1] == "the worker at a is used again"
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
    workers = [FakeWorker("a", [1, 2]), FakeWorker("b", [1, 2])]
    with pytest.raises(WorkerDiedError, match="none of the workers at a, b is left"):
        squares(workers, said, range(4))
    assert [len(w.calls) for w in workers] == [2, 2]
    said = []
    with pytest.raises(WorkerDiedError, match="none of the workers at c is left"):
        squares([FakeWorker("c", answers=False)], said, range(4))
    assert said == ["the worker at c does not answer yet"]


def test_slow_worker_is_awaited_if_it_is_the_only_one(monkeypatch, capsys):
    """Up to the deadline, if there is one; with another it is left for later."""
    monkeypatch.setattr(remote_workers, "_TICK_SECONDS", 0.001)
    monkeypatch.setattr(remote_workers.patience, "_STEP_SECONDS", 0.001)
    slow, said, tries = FakeWorker("a", answers=False), [], []
    answer = slow.connect

    def connect():
        tries.append(slow.answers)
        slow.answers = len(tries) == 50
        slow.is_slow = not slow.answers
        return answer()

    slow.connect = connect
    made, found = squares([slow], said, [2, 3])
    assert found == [104, 109] and len(tries) == 50 and not said
    slow.close()
    tries[:] = [True] * 50
    with made.deadline(0.05), pytest.raises(WorkerDiedError, match="none of the"):
        made.run(lambda x: x, [], [1])
    slow.close()
    before = len(tries)
    made, found = squares([slow, FakeWorker("b")], said, [2, 3])
    assert found == [104, 109] and len(tries) == before + 1


def test_restarted_worker_takes_over_when_the_last_is_lost():
    """What used it before is found to be gone in the round that loses the other."""
    lost, restarted, said = FakeWorker("a", [2]), FakeWorker("b", [1]), []
    lost.close = lambda: FakeWorker.close(lost) or setattr(lost, "answers", False)
    made, found = squares([lost, restarted], said, range(9))
    assert found == [100 + x * x for x in range(9)]
    assert restarted.is_connected and not lost.is_connected
    assert said[-1] == "the worker at b is used again" and len(said) == 3


def test_worker_lost_between_rounds_is_reported():
    lost, said = FakeWorker("a"), []
    made, _ = squares([lost, FakeWorker("b")], said, [1])
    lost.answers = False
    lost.close()
    for _ in range(3):
        assert made.run(lambda x: x, [], [1, 2]) == [1, 2]
    assert said == ["the worker at a does not answer any more; it is left out"]


@pytest.mark.parametrize("was_asked", [True, False])
def test_worker_lost_while_another_connects_is_reported(was_asked):
    lost, other, said = FakeWorker("a"), FakeWorker("b"), []
    made, answer = remote_workers.Workers([lost, other], said.append), other.connect
    if was_asked:
        made.run(lambda x: x, [], [1])
        other.close()
    other.connect = lambda: (lost.close(), answer())[1]
    assert made.run(lambda x: x, [], [1, 2]) == [1, 2]
    assert "the worker at a does not answer any more; it is left out" in said


def test_incompatible_worker_is_not_used():
    bad, good, said = FakeWorker("a"), FakeWorker("b"), []

    def problem(worker, seconds):
        return "a reads other data" if worker is bad else None

    made, found = squares([bad, good], said, [2, 3], problem=problem)
    assert found == [104, 109] and not bad.calls
    made.run(lambda x: x, [], [1])
    assert said == ["a reads other data; it is left out"]


def test_computation_error_is_not_a_lost_worker():
    workers, said = [FakeWorker("a"), FakeWorker("b")], []
    made = remote_workers.Workers(workers, said.append)
    with pytest.raises(ZeroDivisionError):
        made.run(lambda x: 1 // x, [], [1, 0, 2])
    assert not said


def test_deadline_applies_to_each_part():
    worker = FakeWorker("a")
    made = remote_workers.Workers([worker], print)
    with made.deadline(7.0):
        made.run(lambda x: x, [], [1])
    made.run(lambda x: x, [], [1])
    assert worker.seconds == [7.0, None] and made.seconds is None


class TestAddresses:
    def test_addresses_parse_hosts_and_ports(self):
        found = config.addresses("a.b:1, 10.0.0.1:65535,[::1]:80")
        assert found == (("a.b", 1), ("10.0.0.1", 65535), ("::1", 80))
        assert str(found[2]) == "[::1]:80" and str(found[0]) == "a.b:1"
        assert config.addresses(None) == config.addresses("") == ()

    @pytest.mark.parametrize("text", ["a", "a:", ":1", "::1:80", "a:b", "a:²"])
    def test_malformed_addresses_are_refused(self, text):
        with pytest.raises(ValueError, match="workers must be HOST:PORT each, found"):
            config.addresses(text)

    def test_bad_ports_and_duplicate_addresses_are_refused(self):
        with pytest.raises(ValueError, match="the port of a worker must be at most"):
            config.addresses("a:70000")
        with pytest.raises(ValueError, match="workers must be different ones.*a:1"):
            config.addresses("a:1,b:1,a:1")
