# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.papers import medium, result_rows, sweep, trainings
from experiments.papers.index import FIGURES
from tests.experiments import programs

NAMES = [name for name, figure in FIGURES.items() if "medium" in figure.scales]
COSTS = Path(__file__).resolve().parents[3] / "docs/results/run_costs.csv"

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


def costs():
    """The mean processor seconds of one run, and how many clients it trains."""
    table = result_rows.read_csv(COSTS)
    found = {}
    for setting in result_rows.distinct(table, "setting"):
        measured = result_rows.where(table, setting=setting)
        assert [row["seed"] for row in measured] == ["1", "2", "3"]
        clients = {int(row["rounds"]) * int(row["cohort_size"]) for row in measured}
        [number] = clients
        seconds = result_rows.numbers(measured, "processor_seconds")
        found[setting] = (sum(seconds) / len(seconds), number)
    return found


def processor_seconds(name):
    found = costs()
    return sum(
        work.rounds * work.cohort_size * seconds / clients
        for work in runs(name)
        for seconds, clients in [found[work.flags.get("model", "docs")]]
    )


def test_the_pages_say_what_a_run_takes():
    seconds = {name: f"{float(f'{s:.2g}'):g}" for name, (s, _) in costs().items()}
    gallery, figures = (
        " ".join((COSTS.parents[1] / f"{page}.md").read_text(encoding="utf-8").split())
        for page in ("gallery", "figures")
    )
    assert (
        f"{seconds['cnn']} processor seconds with 100 clients of MNIST and the papers' "
        f"network, {seconds['small_cnn']} with the small network, {seconds['docs']} on "
        "docstrings (means of three runs each, [measured](results/run_costs.csv))"
    ) in gallery
    assert (
        f"{seconds['small_cnn']} processor seconds each for the Gaussian mechanism.)"
        in figures
    )
    assert f"A run takes {seconds['docs']} processor seconds" in figures


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
