# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What a client of the papers' tasks takes of a processor.

  python -m tools.paper_client_costs docs/results/paper_client_costs.csv

Runs `dpfl-train` with the flags that `csgm_fig2` has at the paper scale, L2-CSGM at
100-fold compression, on made-up files in the format of the published ones. Two runs of
a seed have as many rounds, and differ in the size of their cohorts: the difference of
their processor seconds over that of their clients is free of start-up, tracing,
evaluation and the server's part of a round.

Processor seconds are more where processors are shared, so a row also says how many
others used meanwhile. It takes seven minutes of two processors with nothing else.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from experiments.papers import result_rows, sweep, trainings
from experiments.papers.chen2024 import accuracy
from tools import rehearse, run_costs

_FIGURE = "csgm_fig2"
_COMPRESSION_RATE = 100
_ROUNDS = 2
# Evaluation takes as long in both runs, and is to take little.
_TEST_EXAMPLES = 100


class Sizes(NamedTuple):
    """The sizes of a measurement.

    Attributes:
      population: How many clients the made-up file has.
      examples: Of a client, on average.
      few: Clients a round of the smaller run, on average.
      many: Those of the larger run.
    """

    population: int
    examples: int
    few: int
    many: int


# F-EMNIST's clients have 198 examples on average. Of Stack Overflow's at most 256 are
# used, and 128 is what the average is taken to be.
SIZES: Mapping[str, Sizes] = {
    "emnist": Sizes(400, 198, 20, 120),
    "stackoverflow": Sizes(100, 128, 4, 16),
}


class Cost(NamedTuple):
    """What the clients of two runs took, a row of the table."""

    task: str
    compression_rate: int
    examples: int
    seed: int
    few_clients: int
    few_processor_seconds: float
    many_clients: int
    many_processor_seconds: float
    client_processor_seconds: float
    processors_of_others: float


class Taken(NamedTuple):
    """What one run took, and what others did beside it."""

    clients: int
    processor_seconds: float
    wall_seconds: float
    others_seconds: float


def flags_of(task: str) -> dict[str, Any]:
    """Returns the flags of the figure's run of a task, that of the largest budget."""
    works = accuracy.grid(_FIGURE)(sweep.Setting("paper"))
    *_, last = (
        work
        for work in works
        if isinstance(work, trainings.Training)
        and work.task == task
        and work.labels["compression_rate"] == _COMPRESSION_RATE
    )
    return dict(last.flags)


def _busy_seconds() -> float:
    """Returns the processor seconds that everything has used since the start-up."""
    used = psutil.cpu_times()
    return used.user + used.nice + used.system


def _run(flags: Mapping[str, Any]) -> Taken:
    before = _busy_seconds()
    with tempfile.TemporaryDirectory() as folder:
        seconds, wall = run_costs.train(flags, Path(folder))
        rounds = result_rows.read_run(Path(folder) / "run/metrics.csv")
    clients = sum(int(row["clients"]) for row in rounds)
    return Taken(clients, seconds, wall, _busy_seconds() - before - seconds)


def difference(task: str, seed: int, few: Taken, many: Taken) -> Cost:
    """Returns what a client takes by two runs.

    Args:
      task: Its name.
      seed: That of the runs.
      few: The run with fewer clients.
      many: That with more of them.
    """
    more = many.clients - few.clients
    if more < 1:
        raise ValueError(
            f"clients must be more than {few.clients} in the larger run, found "
            f"{many.clients}"
        )
    wall = few.wall_seconds + many.wall_seconds
    return Cost(
        task,
        _COMPRESSION_RATE,
        SIZES[task].examples,
        seed,
        few.clients,
        round(few.processor_seconds, 1),
        many.clients,
        round(many.processor_seconds, 1),
        round((many.processor_seconds - few.processor_seconds) / more, 4),
        round((few.others_seconds + many.others_seconds) / wall, 2),
    )


def costs(tasks: Sequence[str], seeds: Sequence[int], folder: Path) -> Iterator[Cost]:
    """Yields what a client of each task takes with each seed.

    Args:
      tasks: Keys of `SIZES`.
      seeds: Of the pairs of runs of each task.
      folder: Gets the made-up files.
    """
    run_costs.adopt_orphans()
    for task in tasks:
        sizes = SIZES[task]
        rehearse.WRITE[task](folder, sizes.population, sizes.examples)
        shared = {
            **flags_of(task),
            "data_dir": folder,
            "allow_partial_data": True,
            "max_test_examples": _TEST_EXAMPLES,
            "rounds": _ROUNDS,
        }
        for seed in seeds:
            few, many = (
                _run({**shared, "seed": seed, "cohort_size": size})
                for size in (sizes.few, sizes.many)
            )
            yield difference(task, seed, few, many)


def main(argv: Sequence[str]) -> None:
    """Writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, help="the CSV file to write")
    parser.add_argument("--tasks", default=",".join(SIZES))
    parser.add_argument("--seeds", default="1,2,3")
    options = parser.parse_args(argv)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    found: list[Cost] = []
    with tempfile.TemporaryDirectory() as folder:
        for cost in costs(options.tasks.split(","), seeds, Path(folder)):
            found.append(cost)
            run_costs.write(options.table, found)


if __name__ == "__main__":
    main(sys.argv[1:])
