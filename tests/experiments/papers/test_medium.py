# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import itertools
import json
import subprocess
import sys

import pytest

from experiments.papers import medium, sweep, trainings
from experiments.papers.index import FIGURES
from tests.experiments import programs

NAMES = [name for name, figure in FIGURES.items() if "medium" in figure.scales]
# Processor seconds of a client in one round, as measured on the machine of docs.
SECONDS = {"cnn": 290 / 4800, "small_cnn": 46 / 4800, None: 210 / 12800}

ACCEPTED = """
import json, sys
from absl import flags
from experiments import train
for line in sys.stdin.read().splitlines():
    words = json.loads(line)
    flags.FLAGS.unparse_flags()
    for name in flags.FLAGS: flags.FLAGS[name].unparse()
    flags.FLAGS(["train", *words])
    train.forget_other_mechanisms()
    config = train.run_config()
    assert (config.epsilon is None) != (config.noise_multiplier is None), words
    print(config.task)
"""


def runs(name, scale="medium"):
    works = FIGURES[name].grid(sweep.Setting(scale))
    return [work for work in works if isinstance(work, trainings.Training)]


@pytest.mark.parametrize("name", NAMES)
def test_seeds_of_a_setting_follow_each_other(name):
    """They trace once then, and a table that is not complete has whole settings."""
    wanted = list(medium.SEEDS)
    groups = itertools.groupby(runs(name), lambda work: work.all_but_seed)
    found = [(key, [work.labels["seed"] for work in group]) for key, group in groups]
    assert all(seeds == wanted for _, seeds in found)
    assert len({key for key, _ in found}) == len(found)


def processor_seconds(name):
    return sum(
        work.rounds * work.cohort_size * SECONDS[work.flags.get("model")]
        for work in runs(name)
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_takes_two_hours_of_two_processors(name):
    assert processor_seconds(name) < 2 * 2 * 3600


def test_dpfl_train_accepts_every_flag(tmp_path):
    works = {
        work.all_but_seed: work
        for name, figure in FIGURES.items()
        for scale in figure.scales
        for work in runs(name, scale)
    }
    words = [json.dumps(work.arguments(tmp_path)) for work in works.values()]
    done = subprocess.run(
        [sys.executable, "-c", ACCEPTED],
        input="\n".join(words),
        capture_output=True,
        text=True,
        env=programs.environment(),
        cwd=programs.ROOT,
    )
    assert done.stdout.split() == [work.task for work in works.values()], done.stderr
