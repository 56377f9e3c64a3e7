# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The folder of a run: its places, and whose noise its files can bring back."""

import os

import pytest

from dpfl import covered
from dpfl.training import run as run_lib


@pytest.fixture
def plan(make_plan, tmp_path):
    return made(make_plan, tmp_path)


def made(make_plan, folder, **changes):
    settings = {"cohort_size": 5, "rounds": 6, "noise_multiplier": 1.0, **changes}
    return make_plan(output_dir=folder / "run", **settings)


def everything(folder):
    return sorted(str(path) for path in folder.rglob("*"))


REPLACED = [
    p for p in covered.FILES if "/" not in p and p not in (".lock", "worker.log")
]


@pytest.mark.parametrize("place", REPLACED)
def test_files_of_no_run_are_not_replaced(plan, place):
    """A new run wrote over pictures and models, and removed a metrics.csv."""
    folder = plan.config.output_dir
    folder.mkdir()
    path = folder / place.replace("*", "mine")
    path.write_text("mine")
    with pytest.raises(ValueError) as caught, run_lib.Run(plan):
        pass
    assert path.name in str(caught.value) and path.read_text() == "mine"
    path.unlink()
    with run_lib.Run(plan):
        pass
    if place != "manifest.json":
        # Beside its manifest they are the run's.
        path.write_text("the run's")
        with run_lib.Run(plan):
            pass


@pytest.mark.parametrize("place", covered.FILES)
@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir, os.symlink])
def test_what_is_no_file_is_found_before_anything_is_done(plan, place, put):
    """And a file, or a pipe, where a folder belongs."""
    folder, name = plan.config.output_dir, place.partition("/")[0].replace("*", "x")
    path = folder / name
    folder.mkdir()
    if put is os.symlink:
        path.symlink_to("/dev/null")
    elif put is os.mkdir and "/" in place:
        path.write_text("mine")
    else:
        put(path)
    before = everything(folder)
    with pytest.raises(ValueError, match="must be a ") as caught, run_lib.Run(plan):
        pass
    assert name in str(caught.value) and everything(folder) == before
