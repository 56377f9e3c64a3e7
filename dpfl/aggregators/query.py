# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mechanisms as queries of TensorFlow Privacy.

    query = dpfl.query(mechanism, [tf.TensorSpec([2, 1])], output="sum")
    optimizer = dp_optimizer_keras.GenericDPSGDOptimizer(query, 2, learning_rate=1.0)

In TFF, `tff.aggregators.DifferentiallyPrivateFactory(query)` takes one.
"""

from __future__ import annotations

from typing import Any, Optional

import dp_accounting
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from dpfl import mechanisms
from dpfl.accounting import trees
from dpfl.aggregators import reductions, registry


class MechanismQuery(tfp.SumAggregationDPQuery):
    """A tfp.DPQuery whose steps are those of a mechanism's factory.

    The global state is the factory's own: the round and the mechanism's memory, such as
    a stream of correlated noise. If clients need a fresh seed in each round, the sample
    state carries it to the server.
    """

    def __init__(self, steps: Any, event: dp_accounting.DpEvent, shares_a_seed: bool):
        """Initializes the query.

        Args:
          steps: The `GraphRoundFunctions` of the mechanism.
          event: The event of one round.
          shares_a_seed: Whether clients need the round's seed.
        """
        self._steps = steps
        self._event = event
        self._brings_seed = shares_a_seed and steps.seed is None

    def initial_global_state(self) -> Any:
        """The state before the first round."""
        return self._steps.initial_state()

    def derive_sample_params(self, global_state: Any) -> Any:
        """The values that all clients of a round share.

        Raises:
          RuntimeError: If the state is a constant of a graph, in which each round would
            be the first one, as in Keras's `fit` unless it runs eagerly.
        """
        leaves = tf.nest.flatten(global_state)
        if not tf.executing_eagerly() and not any(map(tf.is_symbolic_tensor, leaves)):
            raise RuntimeError(
                "global_state is a constant of this graph and would not change between "
                "rounds: compile the model with run_eagerly=True"
            )
        return self._steps.prepare(global_state)

    def preprocess_record(self, params: Any, record: Any) -> Any:
        """A client's contribution to the sum: integers of the flattened record."""
        message, _ = self._steps.encode(record, params)
        total = self._steps.codec.accumulate(self._steps.codec.zero(), message)
        if not self._brings_seed:
            return total
        return total, reductions.counted(params["round_seed"])

    def initial_sample_state(self, template: Any = None) -> Any:
        """The sum of zero messages; the template is ignored."""
        total = self._steps.codec.zero()
        if not self._brings_seed:
            return total
        return total, tf.zeros([5], tf.int64)

    def get_noised_result(self, sample_state: Any, global_state: Any) -> Any:
        """The release in the structure of a record, the state after it, and the event.

        The event is a GaussianDpEvent for a Gaussian mechanism, else an unsupported
        one: `dpfl.Ledger` computes the epsilon of a run, sampling of clients included.
        """
        if self._brings_seed:
            sample_state, seeds = sample_state
            seed = reductions.common_seed(seeds)
            shared = self._steps.prepared(global_state, seed)
        else:
            shared = self.derive_sample_params(global_state)
        made = self._steps.finish(global_state, shared, sample_state, {})
        return made["result"], made["state"], self._event


def query(
    mechanism: mechanisms.Mechanism,
    record_specs: Any,
    *,
    seed: Optional[int] = None,
    output: str = "mean",
    **options: Any,
) -> MechanismQuery:
    """The tfp.DPQuery of a mechanism whose server adds noise to a sum.

    It serves `tff.aggregators.DifferentiallyPrivateFactory`, and with `output="sum"`
    the optimizers of TensorFlow Privacy, which divide by themselves. With an explicit
    seed its results have the bits of `dpfl.aggregator` with the same seed.

    Args:
      mechanism: One of a trusted server whose clients draw nothing: `Gaussian`,
        `MatrixFactorization`, `ProjectAndPerturb`.
      record_specs: A structure of tf.TensorSpec, float and of known shapes: a client's
        update, or the gradients.
      seed: As for `dpfl.aggregator`.
      output: As for `dpfl.aggregator`: "mean" or "sum".
      **options: As for `dpfl.aggregator`.

    Raises:
      TypeError: If `mechanism` is not a configuration from the table.
      ValueError: If a query cannot hold what the mechanism promises, with the remedy.
    """
    factory = registry.build(
        mechanism,
        seed=seed,
        output=output,
        measure="released",
        **options,
    )
    steps = factory.round_functions(tff.types.tensorflow_to_type(record_specs))
    codec = steps.codec
    if codec.sums_securely or codec.has_private_randomness or codec.needed_sums:
        raise ValueError(
            "mechanism must draw all of its noise on the server, since a query has no "
            f"client secrets and no secure sum, found {mechanism.name}: use "
            "dpfl.aggregator(mechanism)"
        )
    event = _round_event(mechanism, codec.dimension)
    return MechanismQuery(steps, event, mechanism.shares_a_seed)


def _round_event(
    mechanism: mechanisms.Mechanism, dimension: int
) -> dp_accounting.DpEvent:
    """The event of independent Gaussian noise, whose fields TFF makes tensors of.

    It is dp_accounting's own event, since a neighbouring relation is not a number.
    """
    if isinstance(mechanism, mechanisms.MatrixFactorization):
        return dp_accounting.UnsupportedDpEvent()
    event = trees.bare(mechanism.round_dp_event(dimension, 1.0))
    is_plain = isinstance(event, dp_accounting.GaussianDpEvent)
    return event if is_plain else dp_accounting.UnsupportedDpEvent()
