# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A small run of pfl in numpy, with updates that are known."""

import os

import numpy as np
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import FederatedNNAlgorithm, NNAlgorithmParams
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.exception import CheckpointNotFoundError
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.base import StatefulModel
from pfl.stats import MappedVectorStatistics

CLIENTS = 12


def target(client):
    """The update of a client, in the two arrays of the model."""
    rng = np.random.default_rng(client)
    shapes = {"w": [24, 3], "b": [24]}
    return {name: rng.normal(size=s).astype("f") / 20 for name, s in shapes.items()}


class Model(StatefulModel):
    """A model that adds up what it is given, and remembers each release."""

    def __init__(self):
        self.parameters = {name: np.zeros_like(p) for name, p in target(0).items()}
        self.releases = []

    def get_parameters(self, placeholders=None):
        return MappedVectorStatistics({n: p.copy() for n, p in self.parameters.items()})

    def set_parameters(self, w):
        self.parameters = {name: w[name].copy() for name in w}

    def get_model_difference(self, other_parameters, clone=False):
        found = {n: p - other_parameters[n] for n, p in self.parameters.items()}
        return MappedVectorStatistics(found)

    def apply_model_update(self, statistics):
        self.releases.append(dict(statistics.items()))
        self.parameters = {n: p + statistics[n] for n, p in self.parameters.items()}
        return self, Metrics()

    def evaluate(self, dataset, name_formatting_fn, eval_params=None):
        return Metrics()

    def save(self, dir_path):
        np.savez(os.path.join(dir_path, "model.npz"), **self.parameters)

    def load(self, dir_path):
        path = os.path.join(dir_path, "model.npz")
        if not os.path.exists(path):
            raise CheckpointNotFoundError(path)
        self.parameters = dict(np.load(path))


class Algorithm(FederatedNNAlgorithm):
    """Federated averaging of updates that are known."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def process_aggregated_statistics(
        self, central_context, aggregate_metrics, model, statistics
    ):
        statistics.average()
        return model.apply_model_update(statistics)

    def train_one_user(self, initial_model_state, model, user_dataset, central_context):
        self.heard.append(user_dataset.user_id)
        return MappedVectorStatistics(target(user_dataset.user_id)), Metrics()


def dataset(sampler="random", clients=CLIENTS):
    """A data set of all clients, with a sampler of pfl."""
    data = {client: [np.zeros([1])] for client in range(clients)}
    chosen = get_user_sampler(sampler, list(data))
    return FederatedDataset(lambda n: Dataset(data[n], user_id=n), chosen)


def train(private, data, model, rounds, callbacks=(), algorithm=None, size=None):
    """Trains, and returns the metrics of each round."""
    size = private.server.plan.cohort_size if size is None else size
    seen = []

    class Log(TrainingProcessCallback):
        def after_central_iteration(
            self, aggregate_metrics, model, *, central_iteration
        ):
            seen.append(aggregate_metrics.to_simple_dict())
            return False, Metrics()

    params = NNAlgorithmParams(
        central_num_iterations=rounds,
        evaluation_frequency=1000,
        train_cohort_size=size,
        val_cohort_size=None,
    )
    local = NNTrainHyperParams(
        local_num_epochs=1, local_learning_rate=1.0, local_batch_size=None
    )
    backend = SimulatedBackend(data, data, postprocessors=[private])
    (algorithm or Algorithm()).run(
        params,
        backend,
        model,
        local,
        callbacks=[*callbacks, private, Log()],
        send_metrics_to_platform=False,
    )
    return seen
