# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from dpfl import tasks
from experiments.papers import index, sweep, trainings


@pytest.mark.parametrize(
    ("name", "scale"),
    [(name, scale) for name, each in index.FIGURES.items() for scale in each.scales],
)
def test_grid_has_no_work_twice(name, scale):
    works = index.FIGURES[name].grid(sweep.Setting(scale))
    assert works
    assert len({work.key for work in works}) == len(works)
    assert len({work.folder for work in works}) == len(works)
    runs = [work for work in works if isinstance(work, trainings.Training)]
    # What says how long the figure takes.
    assert all(min(work.rounds, work.cohort_size) >= 4 for work in runs)
    assert {work.task for work in runs} <= {*tasks.task_names()}


def test_every_scale_is_one_of_some_figure():
    found = {scale for each in index.FIGURES.values() for scale in each.scales}
    assert found == set(sweep.SCALES)


def test_figures_of_a_sweep_share_their_rows():
    by_folder = {}
    for figure in index.FIGURES.values():
        by_folder.setdefault(figure.folder, []).append(figure.name)
    assert len(by_folder["secagg_sweep"]) == 6
    assert len(by_folder["dome_sweep"]) == 3
    assert by_folder["csgm_fig1"] == ["csgm_fig1"]
