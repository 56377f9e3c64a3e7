# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A small soak with a seed; `python -m tools.soak` is the full one."""

import errno
import re
import resource

from dpfl import mechanisms
from experiments.benchmarks import programs
from tests import forks
from tools.soaks import runs


def run_soak(**counts):
    """The rows of a soak in their order: (count, faults)."""
    arguments = [f"--{name}={count}" for name, count in counts.items()]
    words = ("--seed=3", "--only", *arguments)
    done = forks.run("tools.soak", *words)
    rows = re.findall(r"^\| ([^|]+?) \| ?(\d*) \| (\d+) \|", done.stdout, re.MULTILINE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows[-1] == ("processes left behind", "", "0")
    return [(int(count), int(faults)) for _, count, faults in rows[:-1]]


def test_killed_runs_end_with_equal_results():
    """Trainings, and the loop."""
    wanted = {"kills": 1, "mechanisms": "gaussian"}
    assert run_soak(**wanted, loop_kills=3) == [(3, 0), (1, 0)]


def test_a_loop_goes_on_after_files_that_found_no_room(tmp_path):
    def run(name):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        programs.run_stub(programs.make_plan(folder, 15, checkpoint_every=3), folder)
        return runs.results(folder)

    expected, failed = run("whole"), 0
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in range(100, 8000, 300):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            run(str(size))
        except OSError as error:
            assert error.errno == errno.EFBIG
            failed += 1
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert run(str(size)) == expected, size
    assert failed > 10


def test_every_mechanism_is_soaked():
    assert set(mechanisms.TEST_CONFIGS) == set(mechanisms.MECHANISMS)


def test_a_difference_is_named(tmp_path):
    assert "cannot be read" in runs.differences(tmp_path, {"model": {}})[0]
