# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The server: averaging with momentum, made private by one line."""

import json
import pathlib

import model
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvgM

import dpfl
from dpfl.loops.flower import PrivateStrategy

COHORT = 50

app = ServerApp()


@app.main()
def main(grid, context):
    run = context.run_config
    plan = dpfl.PoissonSampling(
        population=100, cohort_size=COHORT, rounds=run["rounds"]
    )
    mechanism = dpfl.L2Csgm(
        cohort_size=COHORT, clip_norm=0.1, keep_fraction=0.01, noise_multiplier=1.0
    )
    strategy = PrivateStrategy(
        FedAvgM(server_learning_rate=0.5, server_momentum=0.9),
        mechanism,
        plan,
        epsilon=run["epsilon"],
        delta=run["delta"],
        path=run["state"] or None,
    )
    weights = model.task().network.initial_weights(seed=run["seed"])
    arrays = {name: Array(w) for name, w in zip(model.NAMES, weights)}

    def evaluate(number, arrays):
        weights = [arrays[name].numpy() for name in model.NAMES]
        return MetricRecord({"accuracy": model.accuracy(weights)})

    result = strategy.start(
        grid=grid, initial_arrays=ArrayRecord(arrays), evaluate_fn=evaluate
    )
    accuracy = evaluate(0, result.arrays)["accuracy"]
    found = {"accuracy": accuracy, "epsilon": float(strategy.server.ledger.epsilon)}
    pathlib.Path(run["result"]).write_text(json.dumps(found))
    print(f"accuracy {accuracy:.4f}, epsilon {found['epsilon']:.4f}")
