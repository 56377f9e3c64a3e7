# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The binaries where the wheel puts them: `dpfl.experiments` beside `dpfl.configs`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = """
from pathlib import Path
from dpfl.experiments import flag_files
from dpfl.experiments.trainings import sweep, trainers
print(flag_files.path("tasks/digits.flags"))
flags = {"flagfile": "tasks/digits.flags", "no_such_flag": 1}
work = sweep.training_work({"task": "digits"}, flags)
try:
    trainers.Trainer().train(work, Path("run"))
except trainers.WorkFailedError as error:
    print(error)
print(Path("run/train.log").read_text())
"""


@pytest.fixture
def installed(tmp_path):
    """A folder laid out as the wheel installs it."""
    package = tmp_path / "site" / "dpfl"
    package.mkdir(parents=True)
    for path in (ROOT / "dpfl").iterdir():
        (package / path.name).symlink_to(path)
    for name in ("experiments", "configs"):
        (package / name).symlink_to(ROOT / name)
    return package


def test_a_child_is_the_installed_train_binary(installed, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(installed.parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found, *rest = done.stdout.splitlines()
    assert found == str(installed / "configs/tasks/digits.flags")
    assert f"'-m dpfl.experiments.train --output_dir=run --flagfile={found}" in rest[0]
    assert "exit code 2" in rest[0]
    # What the binary itself said: it was found, and so was the flag file.
    assert "is not a flag of this command" in rest[1]
