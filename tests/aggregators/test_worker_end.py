# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import subprocess
import sys
import threading

import pytest

from dpfl.aggregators import worker_end
from tests import forks

# One worker is older than dpfl's import, and the other is of a later context.
PROGRAM = """
import numpy as np, psutil, sys
import tensorflow_federated as tff

@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def total(values):
    return tff.federated_sum(values)

older = tff.backends.native.create_sync_local_cpp_execution_context()
tff.framework.set_default_context(older)
total([1])
import dpfl

process = dpfl.aggregator(dpfl.Gaussian(3, 1.0, 0.3)).create(tff.to_type(np.float32))
tff.backends.native.set_sync_local_cpp_execution_context()
process.next(process.initialize(), [1.0] * 3)
print(*[c.pid for c in psutil.Process().children() if c.name() == "worker_binary"])
sys.exit(3)
"""


def test_programs_with_piped_output_end(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    # Returns when nobody holds the pipes any more.
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=forks.ROOT,
        env={**forks.os.environ, "PYTHONPATH": str(forks.ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 3, done.stderr
    older, later = map(int, done.stdout.split())
    assert older != later
    for pid in (older, later):
        forks.until(lambda pid=pid: forks.has_ended(pid))


# TFF computes on threads that end before the program does.
KILLED = """
import threading, time
from dpfl.aggregators import worker_end
def start():
    global child
    child = worker_end._EndingWorker(["/bin/sleep", "10000"])
thread = threading.Thread(target=start)
thread.start()
thread.join()
time.sleep(0.3)
assert child.poll() is None
print(child.pid, flush=True)
time.sleep(10000)
"""


def test_worker_ends_with_its_process_not_its_thread(tmp_path):
    program, out = tmp_path / "program.py", tmp_path / "out"
    program.write_text(KILLED)
    parent = forks.start(program, out=out)
    forks.until(lambda: out.exists() and out.read_text() or not parent.is_alive())
    pid = int(out.read_text())
    assert not forks.has_ended(pid)
    parent.kill()
    parent.join()
    forks.until(lambda: forks.has_ended(pid))


def test_start_errors_are_raised_in_the_callers_thread():
    with pytest.raises(FileNotFoundError):
        worker_end._lasting.run(lambda: subprocess.Popen(["/no/such/program"]))
    threads = threading.active_count()
    worker_end._lasting.run(lambda: None)
    assert threading.active_count() == threads


def test_older_workers_look_like_popen_to_tff():
    with subprocess.Popen(["/bin/true"]) as older:
        assert isinstance(older, worker_end._EndingWorker)
    assert not isinstance(None, worker_end._EndingWorker)
