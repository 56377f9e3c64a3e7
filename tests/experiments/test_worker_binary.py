# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import socket

import psutil

from tests import forks
from tests.refusals import names

TINY = (
    *("--task=digits", "--cohort_size=4", "--rounds=2", "--noise_multiplier=1"),
    *("--seed=3", "--concurrency=2", "--model=tiny_cnn"),
)


def test_port_in_use_is_a_one_line_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = forks.run("experiments.worker", f"--port={port}")
    assert done.returncode == 2
    assert names(done.stderr, "--port", port) and done.stderr.count("\n") == 1


def test_unwritable_log_is_not_blamed_on_the_port(tmp_path):
    for place in (tmp_path, tmp_path / "missing" / "log"):
        done = forks.run("experiments.worker", "--port=1", f"--log={place}")
        assert done.returncode == 2 and names(done.stderr, "--log", place)


def processor_seconds(process):
    """What the children of a process have taken of processors."""
    children = psutil.Process(process.pid).children(recursive=True)
    return sum(sum(child.cpu_times()[:2]) for child in children)


def test_remote_worker_training_equals_local_training(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    said = tmp_path / "said"
    words = (f"--port={port}", "--concurrency=2")
    worker = forks.start("experiments.worker", *words, out=said, err=said)
    try:
        forks.until(lambda: said.exists() and said.read_text().endswith("\n"))
        assert said.read_text().startswith(f"port {port}: ")
        seconds = [processor_seconds(worker)]
        for name, more in (("alone", ()), ("spread", (f"--workers=127.0.0.1:{port}",))):
            words = (*TINY, f"--output_dir={tmp_path / name}", *more)
            done = forks.run("experiments.train", *words)
            assert done.returncode == 0, done.stderr
            seconds.append(processor_seconds(worker))
    finally:
        worker.terminate()
        worker.join(forks.SECONDS)
    # The worker was idle beside the first, and did the clients' part of the second.
    assert seconds[1] - seconds[0] < 0.08 < seconds[2] - seconds[1], seconds
    rows = [tmp_path / name / "metrics.csv" for name in ("alone", "spread")]
    assert rows[0].read_bytes() == rows[1].read_bytes()
    assert rows[0].read_text().count("\n") == 3
    assert worker.exitcode == 0
