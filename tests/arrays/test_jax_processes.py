# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Processes that compute a run in JAX together."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dpfl.engines.jax import processes
from tests.refusals import names, refuses

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["--engine=jax", "--mechanism=none", "--cohort_size=6", "--clients_at_once=2"]
FLAGS += ["--rounds=4", "--seed=5", "--checkpoint_every=2", "--noprogress"]
# Kills its process, if that is not the first, within the third round of a run.
TRAIN = """
import os, signal, sys
from dpfl.training import selection
from experiments import cli, train

select = selection.select_cohort

def selected(participation, key, index):
    if index == 2 and "{kill}":
        os.kill(os.getpid(), signal.SIGKILL)
    return select(participation, key, index)

if not sys.argv[-1].endswith("=0"):
    selection.select_cohort = selected
cli.run(train.main)
"""


def run(folder, number, kill="", more=()):
    """The exit codes of processes, and the last lines on stderr."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    places = [f"--coordinator_address={address}", f"--num_processes={number}"]
    begun = []
    for own in range(number):
        flags = [*FLAGS, f"--output_dir={folder}", *(more if own else ())]
        if number > 1:
            flags += [*places, f"--process_id={own}"]
        begun.append(
            subprocess.Popen(
                [sys.executable, "-c", TRAIN.format(kill=kill), *flags],
                cwd=ROOT,
                env={**os.environ, "JAX_PLATFORMS": "cpu"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    lines = [process.communicate()[1].splitlines() for process in begun]
    return [p.returncode for p in begun], [own[-1] if own else "" for own in lines]


def test_two_processes_have_the_bits_of_one(tmp_path):
    """Also if one was killed, and the same command went on."""
    codes, lines = run(tmp_path / "two", 2, kill="yes")
    assert codes[1] == -signal.SIGKILL
    # With an error of the connection, or by JAX's watch.
    assert (codes[0], lines[0][:7]) == (1, "error: ") or codes[0] == -signal.SIGABRT
    assert run(tmp_path / "two", 2)[0] == [0, 0]
    assert run(tmp_path / "one", 1)[0] == [0]
    for name in ("metrics.csv", "model.npz"):
        one, two = ((tmp_path / each / name).read_bytes() for each in ("one", "two"))
        assert one == two


def test_another_plan_is_refused(tmp_path):
    codes, lines = run(tmp_path, 2, more=["--client_lr=0.01"])
    assert codes == [2, 2]
    assert all(names(line, "process 1", "--client_lr", 0.01) for line in lines)


@pytest.mark.parametrize("host, own", [("no host", 1), ("a" * 64, 0), ("127.0.0.1", 0)])
def test_an_address_of_no_host_or_in_use_is_refused(host, own):
    """At once: JAX would wait for minutes, or end the process."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"{host}:{taken.getsockname()[1]}"
        joined = processes.joined(address, 2, own)
        with refuses(ValueError, "coordinator_address", address), joined:
            pass
