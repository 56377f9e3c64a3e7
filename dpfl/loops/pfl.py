# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""dpfl's mechanisms in Apple's pfl: postprocessor, cohorts, callback and saveable.

    private = DpflMechanism(mechanism, plan, model.get_parameters(), epsilon=8)
    cohorts = private.cohorts(dataset, user_ids)
    backend = SimulatedBackend(cohorts, val_data, postprocessors=[private])
    algorithm.run(params, backend, model, train_params, callbacks=[private])

pfl adds up empty statistics. The clients' messages are added by `dpfl.Server`, in
integers, which pfl's sum in float32 over its workers would not keep.
"""

from __future__ import annotations

import pathlib
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Optional

import numpy as np
from pfl.callback.base import TrainingProcessCallback
from pfl.common_types import Saveable
from pfl.data.federated_dataset import FederatedDataset, FederatedDatasetBase
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.exception import CheckpointNotFoundError
from pfl.internal.ops.selector import get_default_framework_module as get_ops
from pfl.metrics import Metrics, StringMetricName
from pfl.privacy.privacy_mechanism import CentralPrivacyMechanism, PrivacyMetricName
from pfl.stats import TrainingStatistics

from dpfl import checks, files
from dpfl.loops import Server, wire
from dpfl.mechanisms import FixedSize, Mechanism, OncePerEpoch, Participation
from dpfl.privacy_coverage import MARK

_NOBODY = object()


class DpflMechanism(CentralPrivacyMechanism, TrainingProcessCallback, Saveable):
    """A mechanism of dpfl in pfl: the last postprocessor, a callback and a saveable.

    Attributes:
      server: The `dpfl.Server`, with the calibrated mechanism and the ledger.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        plan: Participation,
        statistics: TrainingStatistics,
        **options: Any,
    ):
        """Begins a run.

        Args:
          mechanism: The mechanism.
          plan: The choice of clients over the run.
          statistics: An example of a client's, such as `model.get_parameters()`.
          **options: Further arguments of `dpfl.Server`.

        Raises:
          ValueError: If pfl has several workers, or as `dpfl.Server`.
        """
        super().__init__()
        workers = get_ops().distributed.world_size
        checks.require(workers == 1, "world_size", "1 process", workers)
        begun = (mechanism, plan, _arrays(statistics))
        self._made = lambda **state: Server(*begun, **{**options, **state})
        self.server = self._made()
        self._cohorts: Optional[_Cohorts] = None
        self._ids = ""

    def cohorts(
        self, dataset: FederatedDataset, user_ids: Optional[Sequence[Hashable]] = None
    ) -> FederatedDatasetBase:
        """The training data, with clients chosen as the plan says.

        Args:
          dataset: The clients' data.
          user_ids: Ids of all clients in one order, of whom the plan draws. None for
            pfl's sampler: any for `FixedSize`, 'minimize_reuse' for `OncePerEpoch` too.

        Raises:
          TypeError: If clients of the data set are not the same in all rounds.
          ValueError: If ids or pfl's sampler do not suit the plan, or the saved run.
        """
        self._cohorts = _Cohorts(self, dataset, user_ids)
        return self._cohorts

    def _settle(self, ids: str) -> None:
        """Keeps the digest of the ids, empty before they are known; refuses others."""
        is_same = "" in (ids, self._ids) or ids == self._ids
        wanted = "those of the saved run, in the same order"
        checks.require(is_same, "user_ids", wanted, "others")
        self._ids = ids or self._ids

    def postprocess_one_user(
        self, *, stats: TrainingStatistics, user_context: Any
    ) -> tuple[TrainingStatistics, Metrics]:
        """Encodes statistics of weight 1 and adds them; returns empty ones."""
        weight, now = getattr(stats, "weight", 1), self._cohorts
        checks.require(weight == 1, "weight", "1: put WeightByUser() before it", weight)
        if now is None or now.client is None:
            raise ValueError("training_data must be made by cohorts, found another")
        if now.client is not _NOBODY:
            data = wire.encode(self.server.mechanism, _arrays(stats), now.message)
            self.server.add(now.client, data)
        now.client = None
        metadata, parts = stats.get_weights()
        empty = get_ops().to_tensor(np.zeros([0], np.float32))
        return stats.from_weights(metadata, [empty for _ in parts]), Metrics()

    def postprocess_server(
        self, *, stats: TrainingStatistics, central_context: Any, aggregate_metrics: Any
    ) -> tuple[TrainingStatistics, Metrics]:
        """See base class: releases the mean, of weight 1, and metrics with epsilon."""
        release = self.server.end_round()
        mean = [get_ops().to_tensor(part) for part in release.mean]
        released = stats.from_weights(stats.get_weights()[0], mean)
        if hasattr(stats, "weight"):
            released.weight = 1.0
        measured = {"epsilon": release.epsilon, **release.metrics}
        return released, Metrics([(_name(name), measured[name]) for name in measured])

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """See base class: ends the run if plan and budget allow no round."""
        return self.server.rounds_left == 0, Metrics()

    def save(self, dir_path: str) -> None:
        """Saves the state after the last release, as secret as the data."""
        path = pathlib.Path(dir_path, "dpfl.npz")
        files.write_atomically(path.with_suffix(".ids"), self._ids, private=True)
        files.write_atomically(path, self.server.save(), private=True)

    def load(self, dir_path: str) -> None:
        """Goes on from a saved state; ValueError for other ids or as `dpfl.Server`."""
        path, ids = (pathlib.Path(dir_path, f"dpfl.{end}") for end in ("npz", "ids"))
        if not path.exists():
            raise CheckpointNotFoundError(path)
        checks.require(ids.exists(), "dir_path", f"a folder with {ids.name}", dir_path)
        self._settle(ids.read_text())
        self.server = self._made(state=path.read_bytes())


class _Cohorts(FederatedDatasetBase):
    """Data of the rounds' clients; see `DpflMechanism.cohorts`."""

    message, client = b"", None  # The round's; the one that trains, None once added.

    def __init__(self, private: DpflMechanism, dataset: Any, user_ids: Any):
        super().__init__()
        checks.instance(FederatedDataset)("dataset", dataset)
        plan = private.server.plan
        if user_ids is None:
            cycles = isinstance(dataset.user_sampler, MinimizeReuseUserSampler)
            plans = (FixedSize, OncePerEpoch) if cycles else (FixedSize,)
            wanted = "given, or the plan FixedSize" + " or OncePerEpoch" * cycles
            checks.require(isinstance(plan, plans), "user_ids", wanted, plan)
        else:
            found = f"{len(user_ids)} of {len(set(user_ids))} clients"
            wanted = f"{plan.population} of {plan.population} clients"
            checks.require(found == wanted, "user_ids", wanted, found)
        private._settle(files.digest({"user_ids": user_ids and [*map(str, user_ids)]}))
        self._private, self._dataset, self._ids = private, dataset, user_ids

    def __next__(self) -> tuple[Any, int]:
        raise TypeError(checks.message("dataset", "iterated by rounds", self))

    def get_cohort(self, cohort_size: int) -> Iterator[tuple[Any, int]]:
        """Begins a round, and yields its clients' data and seeds."""
        server, ids = self._private.server, self._ids
        size = server.plan.cohort_size
        checks.require(cohort_size == size, "cohort_size", str(size), cohort_size)
        wanted = "at least 1, but the run has had all of its rounds"
        checks.require(server.rounds_left, "rounds_left", wanted, 0)
        if ids is None:
            drawn = [next(self._dataset.sampler) for _ in range(size)]
            now = server.begin_round([user for user, _ in drawn])
            members: list[Any] = [(user, user, seed) for user, seed in drawn]
        else:
            now = server.begin_round()
            members = [(n, ids[n], self._get_seed()) for n in now.clients]
            # pfl fails without clients: one that is not in the round adds nothing.
            members = members or [(_NOBODY, ids[0], self._get_seed())]
        self.message = now.message
        for self.client, user, seed in members:
            yield self._dataset.make_dataset_fn(user), seed


def _arrays(statistics: TrainingStatistics) -> list[np.ndarray]:
    return [get_ops().to_numpy(part) for part in statistics.get_weights()[1]]


def _name(name: str) -> StringMetricName:
    is_exact = name.startswith(MARK)
    return StringMetricName(name) if is_exact else PrivacyMetricName(name, False)
