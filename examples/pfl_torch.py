# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Trains a PyTorch model on scikit-learn's digits in pfl, by L2-CSGM at epsilon 8.

    pip install -e . 'pfl[pytorch]' scikit-learn    # in a clone, Python 3.10 to 3.12
    python examples/pfl_torch.py FOLDER

The same command goes on with a run that was killed.
"""

import sys

import numpy as np
import sklearn.datasets
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.callback.restore_training import RestoreTrainingCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel

import dpfl
from dpfl.loops.pfl import DpflMechanism

CLIENTS, COHORT, ROUNDS = 300, 60, 40


class Network(torch.nn.Module):
    """Logistic regression, with the two functions that pfl wants."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 10)

    def logits(self, x):
        return self.linear(torch.as_tensor(x))

    def loss(self, x, y, eval=False):
        self.train(not eval)
        return torch.nn.functional.cross_entropy(self.logits(x), torch.as_tensor(y))

    @torch.no_grad()
    def metrics(self, x, y, eval=True):
        right = self.logits(x).argmax(1) == torch.as_tensor(y)
        return {"accuracy": Weighted(right.sum().item(), len(y))}


def main(folder):
    x, y = sklearn.datasets.load_digits(return_X_y=True)
    x, y = (x / 16).astype(np.float32), y.astype(np.int64)
    users = {n: [x[n:1500:CLIENTS], y[n:1500:CLIENTS]] for n in range(CLIENTS)}
    data = FederatedDataset(
        lambda user: Dataset([torch.as_tensor(part) for part in users[user]]),
        get_user_sampler("random", list(users)),
    )
    test = Dataset([torch.as_tensor(x[1500:]), torch.as_tensor(y[1500:])])
    torch.manual_seed(0)
    network = Network()
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    model, algorithm = (
        PyTorchModel(network, torch.optim.SGD, optimizer),
        FederatedAveraging(),
    )

    mechanism = dpfl.L2Csgm(
        COHORT, clip_norm=0.5, noise_multiplier=1, keep_fraction=0.3
    )
    plan = dpfl.PoissonSampling(CLIENTS, COHORT, ROUNDS)
    private = DpflMechanism(
        mechanism, plan, model.get_parameters(), epsilon=8, delta=1e-3
    )
    backend = SimulatedBackend(
        private.cohorts(data, list(users)), val_data=None, postprocessors=[private]
    )

    evaluated = CentralEvaluationCallback(
        test, NNEvalHyperParams(local_batch_size=None), frequency=10
    )
    restored = RestoreTrainingCallback([private, model, algorithm], folder)
    algorithm.run(
        NNAlgorithmParams(ROUNDS, 10**6, COHORT, None),
        backend,
        model,
        NNTrainHyperParams(
            local_num_epochs=2, local_learning_rate=0.5, local_batch_size=5
        ),
        callbacks=[restored, private, evaluated],
    )
    right = network.metrics(*test.raw_data)["accuracy"].overall_value
    print(f"accuracy {right:.3f} at epsilon {private.server.ledger.epsilon:.3f}")


if __name__ == "__main__":
    main(sys.argv[1])
