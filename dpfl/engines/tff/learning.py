# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Parts of TFF for a program: models, federated averaging, states in a folder."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import secrets
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import files
from dpfl.aggregators import no_metrics
from dpfl.aggregators.layout import Layout
from dpfl.mechanisms import Mechanism, Participation

_KEY_BYTES = 32


def dimension_of(model_fn: Any) -> int:
    """The number of trainable parameters of a model; see `PrivateProgram`."""
    if isinstance(model_fn, tff.learning.models.FunctionalModel):
        trainable, _ = model_fn.initial_weights
        return sum(np.size(part) for part in tf.nest.flatten(trainable))
    weights = tff.learning.models.weights_type_from_model(model_fn)
    return Layout(weights.trainable).dimension


def federated_averaging(
    model_fn: Any, client_optimizer: Any, server_optimizer: Any, mechanism: Mechanism
) -> Callable[[Any], Any]:
    """A function from a mechanism's aggregator to a process of tff.learning.

    Args:
      model_fn: As for `PrivateProgram`, and so are the optimizers.
      client_optimizer: None for SGD with rate 0.1.
      server_optimizer: None for TFF's default.
      mechanism: The mechanism; under a secure sum there are no clients' metrics.
    """

    def build(aggregator: Any) -> Any:
        build_sgd = tff.learning.optimizers.build_sgdm
        return tff.learning.algorithms.build_unweighted_fed_avg(
            model_fn,
            client_optimizer or build_sgd(0.1),
            server_optimizer or build_sgd(1.0),
            model_aggregator=aggregator,
            metrics_aggregator=no_metrics if mechanism.sums_securely else None,
        )

    return build


class Folder:
    """A program's newest state and key; None for a program that saves nothing.

    Attributes:
      ledger: Path of the ledger, or None.
    """

    def __init__(self, folder: Optional[files.PathLike]):
        """Makes the folder; ValueError for one that cannot be made."""
        self._states, self.ledger = None, None
        self._key = np.frombuffer(secrets.token_bytes(_KEY_BYTES), np.uint8)
        if folder is not None:
            files.check_folder("folder", folder)
            path = files.private_folder(folder)
            self.ledger = Path(path, "ledger.jsonl")
            self._states = tff.program.FileProgramStateManager(
                Path(path, "states"), keep_total=1, keep_first=False
            )

    def newest(self, first: Any) -> tuple[Any, int]:
        """The newest state and its number of rounds; the first one, saved, if none."""
        if self._states is not None:
            saved, rounds = _done(self._states.load_latest(self._saved(first)))
            if saved is not None:
                self._key = np.asarray(saved["key"])
                return saved["state"], int(rounds)
        self.save(first, 0)
        return first, 0

    def save(self, state: Any, rounds: int) -> None:
        """Saves a state in the place of the others."""
        if self._states is not None:
            _done(self._states.save(self._saved(state), rounds))

    def _saved(self, state: Any) -> Any:
        return collections.OrderedDict(state=state, key=self._key)

    def seed_for(self, plan: Participation) -> int:
        """The secret of groups and epochs, which is saved.

        A cohort that depends on no other has another one, so that a round that is done
        again draws it afresh.
        """
        key = self._key.tobytes()
        if plan.draws_afresh:
            key = secrets.token_bytes(_KEY_BYTES)
        return int.from_bytes(key, "big")


def _done(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine, in a thread without a loop, unlike a notebook's."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
