# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""No process is left behind, however this one ends: by real processes and signals."""

import contextlib
import os
import pathlib
import signal
import threading
import time

import numpy as np
import psutil
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import machine
from dpfl.engines.tff import isolation
from dpfl.engines.tff import local_worker as worker_lib
from dpfl.training import deadlines
from tests import forks
from tests.engines.tff import test_isolation
from tests.refusals import refuses

ROOT = pathlib.Path(__file__).resolve().parents[3]
PRELUDE = """
import os, sys, time
from dpfl.engines.tff import local_worker as worker_lib
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
worker = worker_lib.start()

@tff.tensorflow.computation(np.int32)
def slow(seconds):
    def spin(i, t):
        return i + 1, tf.linalg.matmul(t, t) * 0.001
    t = tf.eye(200)
    return tf.while_loop(lambda i, t: i < 100000 * seconds, spin, (0, t))[0]

@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def total(x):
    return tff.federated_sum(x)

assert total([1, 2]) == 3 and total([]) == 0
# No other worker, such as that of TFF's default context.
import psutil
assert [child.pid for child in psutil.Process().children()] == [worker.pid]
print(worker.pid, flush=True)
"""


def fork(code, folder):
    """A program from a process that has the imports, in a session of its own.

    Returns:
      The process, the process id of its worker, and the paths of its two outputs.
    """
    script, *outputs = (folder / name for name in ("program.py", "out", "err"))
    script.write_text(f"import os\nos.setsid()\n{PRELUDE}{code}")
    out, err = outputs
    process = forks.start(str(script), folder=folder, out=out, err=err)
    forks.until(
        lambda: not process.is_alive() or out.exists() and "\n" in out.read_text()
    )
    assert process.is_alive(), err.read_text()
    return process, int(out.read_text()), outputs


def ends(pid):
    """Returns once a process has ended."""
    forks.until(lambda: forks.has_ended(pid))


def test_an_exception_and_a_pipe_that_ends(tmp_path):
    """The pipe has two ends of one program: the worker has neither of them."""
    script, pipe = tmp_path / "program.py", tmp_path / "pipe"
    script.write_text(f"{PRELUDE}raise ValueError('on domain')")
    os.mkfifo(pipe)
    process = forks.start(str(script), folder=tmp_path, out=pipe, err=pipe)
    worker, *_, last = pipe.read_text().splitlines()
    process.join(forks.SECONDS)
    assert last == "ValueError: on domain" and process.exitcode == 1
    ends(int(worker))


@pytest.mark.parametrize(
    "number, codes",
    [
        (signal.SIGKILL, [-signal.SIGKILL]),
        (signal.SIGTERM, [-signal.SIGTERM]),
        # Ctrl-C goes to the whole group: the worker must not be in it.
        (signal.SIGINT, [1, -signal.SIGINT]),
    ],
)
def test_signal_interrupts_a_running_computation(number, codes, tmp_path):
    process, worker, _ = fork("slow(1000)", tmp_path)
    time.sleep(0.5)
    assert psutil.pid_exists(worker)
    os.killpg(process.pid, number)
    process.join(forks.SECONDS)
    assert process.exitcode in codes
    ends(worker)


def test_dead_worker_raises_and_is_replaced(tmp_path):
    """Another takes its place, and ends with the program."""
    process, worker, (out, err) = fork(
        "import threading\n"
        "threading.Timer(0.5, lambda: os.kill(worker.pid, 9)).start()\n"
        "try:\n"
        "    slow(1000)\n"
        "except worker_lib.WorkerDiedError as error:\n"
        "    print(error)\n"
        "assert not worker.is_alive\n"
        "try:\n"
        "    total([1])\n"
        "except worker_lib.WorkerDiedError as error:\n"
        "    print(error)\n"
        "print(worker_lib.start().pid)\n"
        "print(total([4]))\n",
        tmp_path,
    )
    process.join(forks.SECONDS)
    _, first, second, next_worker, last = out.read_text().strip().split("\n")
    assert "ended with status -9" in first and "ended with status -9" in second
    assert last == "4", err.read_text()
    assert process.exitcode == 0
    ends(int(next_worker))


def test_deadline_ends_a_slow_computation(tmp_path):
    process, worker, (out, _) = fork(
        "try:\n"
        "    with worker.deadline(0.5):\n"
        "        slow(1000)\n"
        "except worker_lib.WorkerDiedError as error:\n"
        "    print(error)\n",
        tmp_path,
    )
    process.join(forks.SECONDS)
    assert "did not finish within the deadline of 0.5 seconds" in out.read_text()
    ends(worker)


def test_met_deadline_has_no_effect(tff_worker):
    for seconds in (60.0, None):
        with tff_worker.deadline(seconds):
            pass
    assert tff_worker.is_alive


def test_only_the_main_thread_may_start():
    done = []

    def try_it():
        with refuses(RuntimeError, "main thread", "other"):
            worker_lib.start()
        done.append(True)

    thread = threading.Thread(target=try_it, name="other")
    thread.start()
    thread.join()
    assert done


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "2"])
def test_a_bad_count_is_named(value):
    with refuses((TypeError, ValueError), "concurrency", value):
        worker_lib.start(concurrency=value)


def meeting(folder):
    """Clients that wait minutes for another, between calls that wait for them.

    Returns:
      A computation on the number of the turn and that of each client, which returns how
      many were there at once; it is the same number for all.
    """

    @tff.tensorflow.computation(np.int32)
    def same(number):
        return tf.identity(number)

    @tff.tensorflow.computation(np.int32, np.int32)
    def meet(turn, number):
        place = tf.strings.join([f"{folder}/", tf.strings.as_string(turn), "/"])
        own = tf.io.write_file(place + tf.strings.as_string(number), "")
        with tf.control_dependencies([own]):
            begun = tf.timestamp()

        def there():
            return tf.size(tf.io.matching_files(place + "*"))

        [found] = tf.while_loop(
            lambda found: (found < 2) & (tf.timestamp() - begun < 600),
            lambda found: [there()],
            [there()],
        )
        return found

    clients = tff.FederatedType(np.int32, tff.CLIENTS)

    @tff.federated_computation(clients, clients)
    def turn_of(turn, number):
        found = tff.federated_map(meet, (turn, tff.federated_map(same, number)))
        return tff.federated_min(tff.federated_map(same, found))

    return turn_of


@pytest.mark.skipif(machine.processors() < 2, reason="two groups need two processors")
def test_groups_train_concurrently(tmp_path):
    with worker_lib.start(concurrency=2, groups=True):
        meet = meeting(tmp_path)
        assert [int(meet([turn] * 2, [0, 1])) for turn in range(6)] == [2] * 6


def test_slow_startup_is_awaited(tmp_path, monkeypatch, tff_context, capsys):
    binary = tmp_path / "slow"
    binary.write_text(f'#!/bin/sh\nsleep 2\nexec {worker_lib._worker_binary()} "$@"\n')
    binary.chmod(0o700)
    monkeypatch.setattr(worker_lib, "_worker_binary", lambda: binary)
    monkeypatch.setattr(deadlines, "_SILENT_SECONDS", 1.0)
    with worker_lib.start():
        assert total_of([1, 2]) == 3
    assert "waiting" in capsys.readouterr().err
    tff.framework.set_default_context(tff_context)


def total_of(values):
    @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
    def total(x):
        return tff.federated_sum(x)

    return total(values)


@pytest.mark.parametrize("given", [{}, {"isolation": "anyone_can_connect"}])
def test_tff_computes_behind_each_barrier(given, tmp_path, tff_context):
    """The default is private."""
    log, kind = tmp_path / "worker.log", given.get("isolation", "socket")
    with worker_lib.start(log_path=log, **given) as worker:
        assert worker.isolation == kind
        assert total_of([1, 2, 3]) == 6
        expected = [("::", worker.port)] if given else []
        assert isolation.listening(worker.pid) == expected
    assert not worker.is_alive and log.exists()
    worker.close()
    tff.framework.set_default_context(tff_context)


def test_two_workers_at_a_time(tff_worker, tff_context):
    with worker_lib.start() as second:
        assert second.pid != tff_worker.pid and total_of([5]) == 5
        tff.framework.set_default_context(tff_context)
        assert total_of([6]) == 6
    assert tff_worker.is_alive and total_of([7]) == 7


def test_unsupervised_worker_exits_without_an_address():
    with test_isolation.launched(str(worker_lib._worker_binary())) as isolated:
        test_isolation.leave(isolated)
        # It says so in its log, and ends with status 0.
        while isolated.process.poll() is None:
            with contextlib.suppress(FileNotFoundError, PermissionError):
                assert isolation.listening(isolated.process.pid) == []
            time.sleep(0.02)


CLOSED = """
import pathlib
import grpc
from dpfl.engines.tff import local_worker

def threads():
    names = pathlib.Path("/proc/self/task").glob("*/comm")
    return {path for path in names if path.read_text().startswith("grpc_")}

assert not threads()
worker = local_worker.start(concurrency=1)
first = threads()
worker.close()
# gRPC ends its threads at the last of them, or soon after it.
for _ in range(100):
    grpc.insecure_channel("unix:/none").close()
print(len(first), len(first & threads()))
"""


def test_grpc_lives_on_after_its_last_channel(tmp_path):
    program = tmp_path / "closed.py"
    program.write_text(CLOSED)
    assert forks.run(program).stdout.split() == ["1", "1"]
