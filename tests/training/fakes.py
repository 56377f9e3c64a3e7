# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A task, an engine and a worker that compute nothing."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np

from dpfl.tasks import configs
from dpfl.training import config as config_lib
from dpfl.training import plan as plan_lib
from dpfl.training import record

DIMENSION, POPULATION = 100, 20


@dataclasses.dataclass(frozen=True)
class FakeTaskConfig(configs.TaskConfig):
    batch_size: int = 3
    data_dir: str = "somewhere"


def fake_task():
    return SimpleNamespace(
        name="digits",
        population=POPULATION,
        dimension=DIMENSION,
        fingerprint="f",
        clients_hold_test_examples=False,
        draws_in_training=False,
        engines=("tff", "jax"),
        defaults=SimpleNamespace(
            client_lr=0.1,
            server_lr=1.0,
            server_momentum=0.9,
            clip_norm=0.5,
            cohort_size=5,
            rounds=8,
        ),
    )


def run_config(**changes: Any) -> config_lib.RunConfig:
    settings = {
        "task": "digits",
        "task_config": FakeTaskConfig(),
        "mechanism": "gaussian",
        "mechanism_options": {},
        # The quickest; `auto` tries each method at every step of a calibration.
        "accounting_method": "rdp",
        "output_dir": "nowhere",
        "progress": False,
        **changes,
    }
    return config_lib.RunConfig(**settings)


def make_plan(monkeypatch, **changes: Any) -> plan_lib.Plan:
    """The plan of a run on the fake task."""
    monkeypatch.setattr(plan_lib.registry, "load_config", lambda *unused: fake_task())
    return plan_lib.make_plan(run_config(**changes))


def made(make_plan, folder, **changes: Any) -> plan_lib.Plan:
    """The plan of a run of known noise in a folder."""
    settings = {"cohort_size": 5, "rounds": 6, "noise_multiplier": 1.0, **changes}
    if settings.get("mechanism") == "none":
        settings["noise_multiplier"] = None
    return make_plan(output_dir=folder / "run", **settings)


def everything(folder):
    """The paths of all that is in a folder."""
    return sorted(str(path) for path in folder.rglob("*"))


def of_clients(plan: plan_lib.Plan) -> plan_lib.Plan:
    """The plan of the same run, had its clients the test examples."""
    task = SimpleNamespace(**{**vars(plan.task), "clients_hold_test_examples": True})
    return dataclasses.replace(plan, task=task)


class FakeEngine:
    """An engine whose state is the sum of all clients' numbers.

    `change` is called with each output and the number of its round.
    """

    def __init__(self, fails_at=None, change=lambda output, number: None):
        self.rounds = []
        self._fails_at, self._change = fails_at, change

    def initialize(self):
        return np.float64(0)

    def round(self, state, clients):
        if len(self.rounds) + 1 == self._fails_at:
            raise RuntimeError("the worker is gone")
        self.rounds.append(clients)
        output = SimpleNamespace(
            state=state + sum(clients),
            train={"loss": np.float32(0.1)},
            aggregator={"uplink_bits": np.float32(8), "inner": {"x": 2, "y": [1, 2]}},
            released=(),
        )
        self._change(output, len(self.rounds))
        return output

    def evaluate(self, state, is_due):
        return {
            "loss": np.float32(state) if is_due else None,
            "accuracy": np.float32(0.5) if is_due else None,
        }

    def weights(self, state):
        return [np.asarray(state)]

    def leaves(self, state):
        return [np.asarray(state)]

    def from_leaves(self, leaves):
        return leaves[0][()]


class FakeStore:
    def __init__(self):
        self.saved = []

    def load_newest(self):
        return self.saved[-1] if self.saved else None

    def save(self, progress):
        self.saved.append(progress)


class FakeRecord:
    """Rows in memory."""

    def __init__(self, rows=()):
        self.rows = list(rows)

    def rewind(self, rounds=0, rows=(), times=()):
        self.rows[rounds:] = rows

    def append(self, found: list[record.Row], times: list[record.Row]):
        assert len(found) == len(times)
        self.rows += found
