# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import subprocess
import sys
import time

from dpfl.training import launch
from tests import forks

PARENT = """
import subprocess, sys
from dpfl.training import launch
child = subprocess.Popen(launch.ends_with_parent(["/bin/sleep", "10000"]))
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_child_ends_with_a_parent_that_is_killed():
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    pid = int(parent.stdout.readline())
    time.sleep(0.3)
    assert not forks.has_ended(pid)
    parent.kill()
    parent.wait()
    forks.until(lambda: forks.has_ended(pid))


def test_program_sees_its_arguments_and_its_exit_code_is_passed_on():
    command = launch.ends_with_parent(["/bin/sh", "-c", 'echo "$0 $1"; exit 3', "a b"])
    done = subprocess.run([*command, "c"], capture_output=True, text=True, check=False)
    assert done.stdout == "a b c\n"
    assert done.returncode == 3
