# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Rounds spread over real workers that are killed, late, or read other data."""

import contextlib
import dataclasses
import os
import signal
import socket
import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.engines.tff import connection, federated_averaging, remote_workers
from dpfl.engines.tff import local_worker as worker_lib
from dpfl.engines.tff.connection import WorkerDiedError
from dpfl.tasks import load_task
from dpfl.tasks.clients import ArrayClients
from experiments.benchmarks import rounds as benchmarks
from tests import forks
from tests.refusals import names, refuses
from tools.soaks import worker_kills


@pytest.fixture(scope="module")
def rounds():
    with contextlib.ExitStack() as stack:
        found = worker_kills.Rounds(stack)
        assert found.said == []
        yield found


@pytest.fixture
def connected(rounds):
    """A connection of its own to the first worker."""
    place = f"127.0.0.1:{rounds.workers[0].port}"
    found = remote_workers.RemoteWorker(place)
    assert found.connect()
    yield found
    found.close()


@tff.tensorflow.computation(np.int64)
def spin(steps):
    many = tf.while_loop(
        lambda i, t: i < steps,
        lambda i, t: (i + 1, tf.linalg.matmul(t, t)),
        (tf.zeros([], tf.int64), tf.eye(100)),
    )
    return many[0]


@tff.tensorflow.computation(np.int32)
def refuse(x):
    with tf.control_dependencies([tf.debugging.assert_less(x, 0, "not below zero")]):
        return tf.identity(x)


def place_of(rounds, number):
    return f"the worker at 127.0.0.1:{rounds.workers[number].port}"


def said_later(rounds, expected):
    """What rounds say until a worker is back, which may take more than one."""
    rounds.said.clear()
    while not any("used again" in said for said in rounds.said):
        assert rounds.round() == expected
    return rounds.said


def test_killed_worker_changes_no_bits_and_may_rejoin(rounds):
    expected = rounds.round()
    # The same cohort in as many groups of one worker.
    alone = federated_averaging.GroupedProcess(
        rounds.process._rounds, benchmarks.no_noise, benchmarks.own_key
    )
    output = alone.next(rounds.state, list(range(8)))
    assert expected == [np.asarray(x).tobytes() for x in tf.nest.flatten(output)]
    rounds.said.clear()
    rounds.kill(0)
    assert rounds.round() == expected
    [loss] = rounds.said
    assert loss.startswith(place_of(rounds, 0)) and "is excluded" in loss
    rounds.restart(0)
    assert said_later(rounds, expected) == [f"{place_of(rounds, 0)} is used again"]


def test_restarted_worker_is_checked_again(rounds):
    """Its data, and its versions, may be others."""
    expected = rounds.round()
    rounds.kill(1)
    rounds.restart(1)
    said = said_later(rounds, expected)
    assert said[-1] == f"{place_of(rounds, 1)} is used again"


def test_worker_reports_its_versions(connected):
    told = connected.call(connection.versions(), seconds=60.0)
    assert told.decode() == connection.versions_text()
    assert connection.difference(connected.address, told) is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("tensorflow=", "tensorflow=9."), "tensorflow"),
        (("dpfl=", "x="), "dpfl"),
        ((None, None), "dpfl-worker"),
    ],
)
def test_version_mismatch_is_named(change, named):
    text = connection.versions_text()
    told = text.replace(*change, 1) if change[0] else ""
    assert names(connection.difference("w:1", told.encode()), "w:1", named)


def test_late_answers_and_errors(rounds, connected):
    assert connected.call(spin, 10, seconds=None) == 10
    with refuses(Exception, "not below zero") as caught:
        connected.call(refuse, 1, seconds=60.0)
    assert not isinstance(caught.value, WorkerDiedError)
    with refuses(WorkerDiedError, 0.5):
        connected.call(spin, 10**9, seconds=0.5)
    assert not connected.is_connected


def test_silent_worker_is_given_up_and_may_answer_later(rounds, monkeypatch):
    """It takes connections and says nothing; one that hangs up is lost at once."""
    worker = rounds.workers[0]
    found = remote_workers.RemoteWorker(f"127.0.0.1:{worker.port}")
    forks.stop(worker.pid)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(remote_workers, "_HELLO_SECONDS", 0.5)
            assert not found.connect()
    finally:
        os.kill(worker.pid, signal.SIGCONT)
    assert found.connect()
    found.close()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def hang_up():
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        monkeypatch.setattr(remote_workers, "_HELLO_SECONDS", 3600.0)
        gone = remote_workers.RemoteWorker(f"127.0.0.1:{port}")
        assert not gone.connect()


def test_unreachable_port_does_not_connect(rounds):
    with contextlib.closing(worker_lib.start(isolation="loopback")) as other:
        port = other.port
    assert not remote_workers.RemoteWorker(f"127.0.0.1:{port}").connect()
    # Its context was the default one.
    rounds.restart(0)


def test_worker_with_other_data_is_detected(rounds):
    task = load_task("synthetic", model="small_cnn", num_clients=40)
    clients = np.arange(0, 40, 8)

    x, y = task.clients.read(np.arange(40))
    y = np.where(np.repeat(np.arange(40), task.clients.sizes) == 24, y + 1, y)
    changed = ArrayClients(x, y, task.clients.sizes)
    other = dataclasses.replace(task, clients=changed)
    found = [
        remote_workers.examples_digest(each)(clients) for each in (task, task, other)
    ]
    assert found[0] == found[1] != found[2]
    assert remote_workers.examples_digest(other)(np.arange(5)) != found[2]
