# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A small soak with a seed; `python -m tools.soak` is the full one."""

import re

from dpfl import mechanisms
from tests import forks
from tests.refusals import refuses
from tools import soak
from tools.soaks import disks, runs


def few_rounds():
    """Has shorter runs fill disks, which write the same files."""
    disks._LOOP_ROUNDS = 15


def run_soak(**counts):
    """The rows of a soak in their order: (count, faults)."""
    arguments = [f"--{name}={count}" for name, count in counts.items()]
    words = ("--seed=3", "--only", *arguments)
    done = forks.run("tools.soak", *words, first=few_rounds)
    rows = re.findall(r"^\| ([^|]+?) \| ?(\d*) \| (\d+) \|", done.stdout, re.MULTILINE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows[-1] == ("processes left behind", "", "0")
    return [(int(count), int(faults)) for _, count, faults in rows[:-1]]


def test_killed_runs_end_with_equal_results():
    """Trainings, and the loop, which has full disks too."""
    wanted = {"kills": 1, "mechanisms": "gaussian"}
    sizes, *others = run_soak(**wanted, disk_sizes=1, loop_kills=3)
    assert sizes[0] > 10 and sizes[1] == 0
    assert others == [(3, 0), (1, 0)]


def test_every_mechanism_is_soaked():
    assert set(mechanisms.TEST_CONFIGS) == set(mechanisms.MECHANISMS)


def test_a_difference_is_named(tmp_path):
    assert "cannot be read" in runs.differences(tmp_path, {"model": {}})[0]


def test_arguments():
    assert soak.arguments([]).kills == 200 and soak.arguments([]).lines == 5_000
    assert soak.arguments(["--seed=4"]).seed == 4
    only = soak.arguments(["--only", "--signals=20"])
    assert only.signals == 20 and only.kills == only.lines == 0
    with refuses(SystemExit, 2):
        soak.arguments(["--mechanisms=gaussian,nope"])
