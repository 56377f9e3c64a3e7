# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Trains `digits` by one mechanism, plan and seeds in a framework, but for engines.

  PYTHON -m tools.frameworks flower 1

The Python is the framework's. `tools/comparisons.py` makes a table of all. Runs of a
seed have equal weights at first, clients, examples, orders and noise, which has the
other sign in JAX and TFF. Masks follow from a client's secret.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Optional
from unittest import mock

import numpy as np

import dpfl
from dpfl.arrays import philox
from dpfl.seed_domains import RunDomain
from dpfl.training import selection

# Clients of the app for Flower train in all loops.
sys.path.append(str(Path(__file__).resolve().parents[1] / "examples/flower_digits"))
app = importlib.import_module
# As in the app for Flower, and by default in dpfl-train.
MECHANISM = dpfl.L2Csgm(50, clip_norm=0.1, noise_multiplier=1.0, keep_fraction=0.01)
PLAN = dpfl.PoissonSampling(population=100, cohort_size=50, rounds=30)
BUDGET: Any = {"epsilon": 8.0, "delta": 1e-3}
RATE, MOMENTUM = 0.5, 0.9
# Name of the mean length of messages.
MESSAGE = "uplink_bits_per_client"


class Model:
    """Weights that move along means, with momentum."""

    def __init__(self, seed: int):
        """Draws the first weights."""
        self.weights = app("model").task().network.initial_weights(seed)
        self._speeds = [np.zeros_like(part) for part in self.weights]

    def step(self, mean: Any) -> None:
        """Moves along a mean update."""
        for weight, speed, part in zip(self.weights, self._speeds, mean):
            speed[:] = MOMENTUM * speed + part
            weight += RATE * speed

    def update(self, client: int, number: int) -> Any:
        """A client's update after so many rounds."""
        ends = app("model").trained(self.weights, client, number)
        return [end - begin for end, begin in zip(ends, self.weights)]


def in_numpy(first: int, noise: int) -> float:
    """The accuracy of a loop in numpy, with the seeds of weights and noise."""
    model = Model(first)
    server = dpfl.Server(MECHANISM, PLAN, model.weights, **BUDGET, seed=noise)
    while server.rounds_left:
        now = server.begin_round()
        for client in now.clients:
            update = model.update(client, now.number - 1)
            server.add(client, dpfl.encode(server.mechanism, update, now.message))
        model.step(server.end_round().mean)
    return app("model").accuracy(model.weights)


def in_flower(first: int, noise: int) -> float:
    """That of the app for Flower, whose messages one process passes on."""
    from flwr.serverapp import Grid
    from flwr.supercore.task_identity import TaskIdentity

    from dpfl.loops import flower

    def sent(messages: Any, **_: Any) -> list[Any]:
        nodes = [each.metadata.dst_node_id for each in messages]
        contexts = [mock.Mock(node_config={"partition-id": n}) for n in nodes]
        return [*map(app("client_app").app, messages, contexts)]

    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    # Names in the order of the layers, as in the other frameworks.
    app("model").NAMES = "0123"
    grid = mock.Mock(Grid, send_and_receive=sent)
    ids = grid.get_node_ids.return_value = [*range(PLAN.population)]
    grid.get_nodes.return_value = [mock.Mock(node_id=n, registered_at=n) for n in ids]
    server = functools.partial(dpfl.Server, seed=noise)
    with tempfile.NamedTemporaryFile() as file:
        more = {"rounds": PLAN.rounds, "seed": first, "state": "", "result": file.name}
        with mock.patch.object(flower, "Server", server):
            app("server_app").app(grid, mock.Mock(run_config={**BUDGET, **more}))
        return json.loads(file.read())["accuracy"]


def in_pfl(first: int, noise: int) -> float:
    """That of pfl's averaging, with dpfl's postprocessor."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.stats import MappedVectorStatistics

    from dpfl.loops.pfl import DpflMechanism

    def statistics(parts: Any) -> MappedVectorStatistics:
        return MappedVectorStatistics({str(n): part for n, part in enumerate(parts)})

    def step(released: Any) -> Any:
        model.step(released.get_weights()[1])
        return moved, Metrics()

    def train(state: Any, moved: Any, data: Any, now: Any) -> Any:
        update = model.update(data.user_id, now.current_central_iteration)
        return statistics(update), Metrics()

    model, ids = Model(first), [*range(PLAN.population)]
    moved = mock.Mock(apply_model_update=step, evaluate=lambda *_, **__: Metrics())
    moved.get_parameters = lambda *_: statistics(model.weights)
    FederatedAveraging.train_one_user = staticmethod(train)
    more: Any = {**BUDGET, "seed": noise}
    private = DpflMechanism(MECHANISM, PLAN, statistics(model.weights), **more)
    data = FederatedDataset(lambda n: Dataset([np.zeros(1)], user_id=n), next)
    backend = SimulatedBackend(private.cohorts(data, ids), None, [private])
    rounds = NNAlgorithmParams(PLAN.rounds, 1000, PLAN.cohort_size, None)
    local = NNTrainHyperParams(1, 1.0, None)
    more = {"callbacks": [private], "send_metrics_to_platform": False}
    FederatedAveraging().run(rounds, backend, moved, local, **more)
    return app("model").accuracy(model.weights)


LOOPS = {"numpy": in_numpy, "flower": in_flower, "pfl": in_pfl}


@contextlib.contextmanager
def one_key(seed: Optional[int] = None) -> Iterator[None]:
    """Derives equal random numbers from a seed, or a run's own, whatever is set."""
    run_key, from_int = selection.run_key, philox.seed_from_int

    def key(own: int, _: str) -> int:
        return run_key(own if seed is None else seed, "")

    with (
        mock.patch.object(selection, "run_key", key),
        mock.patch.object(philox, "seed_from_int", lambda n, _="": from_int(n)),
    ):
        yield


def of_loop(name: str, seed: int) -> dict[str, float]:
    """A loop's accuracy, epsilon, noise multiplier and bits of a message."""
    first = selection.derive_seed(seed, RunDomain.MODEL) % 1_000_000
    noise = selection.derive_seed(selection.run_key(seed, ""), RunDomain.MECHANISM)
    add = dpfl.Server.add
    heard = mock.patch.object(dpfl.Server, "add", autospec=True, side_effect=add)
    with one_key(seed), heard as added:
        accuracy = LOOPS[name](first, noise)
    [server, *_] = added.call_args.args
    return {
        "final_accuracy": accuracy,
        "epsilon": server.ledger.epsilon,
        "noise_multiplier": server.mechanism.noise_multiplier,
        MESSAGE: 8 * float(np.mean([len(call.args[2]) for call in added.mock_calls])),
    }


def main(argv: Sequence[str]) -> None:
    """Prints the results of a run in a framework, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=LOOPS)
    parser.add_argument("seed", type=int, help="seed of the run")
    given = parser.parse_args(argv)
    print(json.dumps(of_loop(given.framework, given.seed)))


if __name__ == "__main__":
    main(sys.argv[1:])
