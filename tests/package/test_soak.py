# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A small soak with a seed; `python -m tools.soak` is the full one."""

import re

import pytest
import tensorflow as tf

from dpfl import mechanisms
from tests import forks
from tests.refusals import refuses
from tools import soak
from tools.soaks import disks, runs, vectors


def few_rounds():
    """Has shorter runs fill disks, which write the same files."""
    disks._LOOP_ROUNDS = 100


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
    """Trainings, workers, and the loop, which has full disks too."""
    wanted = {"kills": 1, "mechanisms": "gaussian", "worker_kills": 3}
    sizes, loops, trainings, workers = run_soak(**wanted, disk_sizes=1, loop_kills=3)
    assert sizes[0] > 20 and loops[0] >= 3 and sizes[1] == loops[1] == 0
    assert (trainings, workers) == ((1, 0), (3, 0))


@pytest.fixture
def eagerly():
    """A single round takes less time than what it takes to trace one."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def test_hostile_updates_do_no_harm(eagerly):
    found = vectors.hostile(seed=2, count=1)
    assert found == (len(vectors.mechanism_cases()) * 8, [])


def test_client_above_the_clip_norm_is_detected():
    """The check itself: a clip that is twice what the sum was made for."""
    one = vectors._Aggregation(mechanisms.Gaussian(8, 1.0, 0.3))
    message = one._codec.zero()["update"].numpy()
    grid = one._codec._sum.grid
    message[0] = int(grid.max_squared_norm**0.5) + 1
    moved, bound = vectors.shift(one._codec, {"update": message}, one._codec.zero())
    assert moved > bound == grid.max_squared_norm


def test_every_mechanism_is_soaked():
    assert set(mechanisms.TEST_CONFIGS) == set(mechanisms.MECHANISMS)
    cases = {type(case) for case in vectors.mechanism_cases()}
    assert cases == set(mechanisms.MECHANISMS.values())


def test_a_difference_is_named(tmp_path):
    assert "cannot be read" in runs.differences(tmp_path, {"model": {}})[0]


def test_arguments():
    assert soak.arguments([]).kills == 200 and soak.arguments([]).vectors == 10_000
    assert soak.arguments(["--seed=4"]).seed == 4
    only = soak.arguments(["--only", "--signals=20"])
    assert only.signals == 20 and only.kills == only.lines == 0
    with refuses(SystemExit, 2):
        soak.arguments(["--mechanisms=gaussian,nope"])
