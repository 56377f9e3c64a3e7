# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from dpfl.training import checkpoint
from experiments import benchmark as binary
from experiments.benchmarks import long_run

TINY = long_run.Settings(loop_rounds=40, training_rounds=4)


@pytest.mark.parametrize("run", [long_run.loop_alone, long_run.training])
def test_rows(run):
    time, memory = run(TINY)
    assert 0 < time["seconds_median"] < 60 and time["ratio"] > 0
    assert 2**20 < memory["bytes"] < 2**36 and 0.5 < memory["ratio"] < 2
    for row in (time, memory):
        assert row["baseline"] == "first tenth" and row["repeats"] > 0
        assert row["name"] in binary.table([row])


def test_full_size():
    assert long_run.FULL.loop_rounds == 10_000
    assert long_run.FULL.training_rounds == 500


def test_a_round_of_the_stub_moves_its_weights(tmp_path):
    plan = long_run.make_plan(tmp_path, 3)
    moved = after_three_rounds(plan, tmp_path)
    assert moved.any()
    # Going on changes nothing.
    assert (after_three_rounds(plan, tmp_path) == moved).all()


def after_three_rounds(plan, folder):
    """The weights of the newest checkpoint; participations are before them in it."""
    assert long_run.run_stub(plan, folder).round_index == 3
    newest = max((folder / "checkpoints").glob("checkpoint-*"))
    return checkpoint.decode(newest.read_bytes()).arrays[1]
