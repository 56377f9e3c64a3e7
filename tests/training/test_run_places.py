# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The folder of a run: what is in the places of its files."""

import os
import shutil

import pytest

from dpfl import privacy_coverage
from dpfl.training import record
from dpfl.training import run as run_lib
from tests.refusals import refuses
from tests.training import fakes


@pytest.fixture
def plan(make_plan, tmp_path):
    return fakes.made(make_plan, tmp_path)


REPLACED = [
    p
    for p in privacy_coverage.FILES
    if "/" not in p and p not in (".lock", "worker.log")
]
REPLACED += [record.OWN_EVENTS]


def test_foreign_files_are_not_replaced(plan):
    """A new run wrote over models, and removed a metrics.csv."""
    folder = plan.config.output_dir
    for place in (*REPLACED, "checkpoints/checkpoint-00000003"):
        path = folder / place.replace("*", "mine")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        with pytest.raises(ValueError) as caught, run_lib.Run(plan):
            pass
        assert str(folder) in str(caught.value) and path.read_text() == "mine"
        path.unlink()
        with run_lib.Run(plan):
            pass
        if place in REPLACED and place != "manifest.json":
            # Beside its manifest they are the run's.
            path.write_text("the run's")
            with run_lib.Run(plan):
                pass
        shutil.rmtree(folder)


def test_dangling_symlinks_are_refused(plan):
    """One was removed, and through others files were made elsewhere."""
    for place in REPLACED:
        path = plan.config.output_dir / place.replace("*", "mine")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to("../elsewhere")
        with pytest.raises(ValueError) as caught, run_lib.Run(plan):
            pass
        assert path.name in str(caught.value) and path.is_symlink()
        path.unlink()


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir, os.symlink])
def test_special_files_are_refused_before_any_work(plan, put):
    """And a file, or a pipe, where a folder belongs."""
    folder = plan.config.output_dir
    for place in privacy_coverage.FILES:
        path = folder / place.partition("/")[0].replace("*", "x")
        folder.mkdir()
        if put is os.symlink:
            path.symlink_to("/dev/null")
        elif put is os.mkdir and "/" in place:
            path.write_text("mine")
        else:
            put(path)
        before = fakes.everything(folder)
        with refuses(ValueError, path), run_lib.Run(plan):
            pass
        assert fakes.everything(folder) == before
        shutil.rmtree(folder)
