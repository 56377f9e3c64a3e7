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
