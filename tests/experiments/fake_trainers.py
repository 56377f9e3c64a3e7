# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What stands for a process that trains: its runs of four rounds end at once."""

from dpfl import files
from experiments.trainings import sweep


class FakeTrainer:
    """Notes the flags of its runs in `calls`, and itself in `made`.

    Attributes:
      calls: "checked", or the flags of a run, of all trainers.
      made: All trainers.
    """

    calls: list = []
    made: list = []

    def __init__(self):
        self.seeds = []
        self.made.append(self)

    def check(self, work, folder):
        self.calls.append("checked")

    def begin(self, work, folder):
        """Raises a run's error, if it has one."""

    def measured(self, work):
        """What a run's summary.json has beside the usual columns."""
        return {}

    def train(self, work, folder, on_round, **more):
        self.calls.append({**work.flags, **more})
        self.begin(work, folder)
        folder.mkdir(parents=True)
        summary = dict.fromkeys(sweep.SUMMARY_COLUMNS, 8.0)
        files.write_json(folder / "summary.json", {**summary, **self.measured(work)})
        for done in range(5):
            on_round(done, 4)
        self.seeds.append((work.labels["seed"], more.get("concurrency")))

    def close(self):
        pass
