# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import subprocess
import sys
import time

import psutil

from dpfl.training import launch

PARENT = """
import subprocess, sys
from dpfl.training import launch
child = subprocess.Popen(launch.ends_with_parent(["/bin/sleep", "60"]))
print(child.pid, flush=True)
sys.stdin.read()
"""


def ended(pid, seconds=10):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def test_child_ends_with_a_parent_that_is_killed():
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    pid = int(parent.stdout.readline())
    assert not ended(pid, seconds=0.3)
    parent.kill()
    parent.wait()
    assert ended(pid)


def test_program_sees_its_arguments_and_its_exit_code_is_passed_on():
    command = launch.ends_with_parent(["/bin/sh", "-c", 'echo "$0 $1"; exit 3', "a b"])
    done = subprocess.run(
        [*command, "c"], capture_output=True, text=True, check=False, timeout=20
    )
    assert done.stdout == "a b c\n"
    assert done.returncode == 3
