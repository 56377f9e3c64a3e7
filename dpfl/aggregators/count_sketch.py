# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A count-mean sketch around any aggregator of vectors."""

from __future__ import annotations

import collections
from typing import Any, Optional

import tensorflow as tf
import tensorflow_federated as tff

from dpfl import purposes
from dpfl.aggregators.factory import CodecFactory
from dpfl.aggregators.layout import Layout
from dpfl.vectors import clipping, count_sketch, randomness


class CountSketchFactory(tff.aggregators.UnweightedAggregationFactory):
    """Clients sketch their updates; an inner aggregator combines the sketches.

    The process flattens a value into a vector of d numbers, sketches it by the round's
    shared sketch S, hands the float32[m] sketches to the inner aggregator, and decodes
    its result y as S^T y. The map is linear, so that the inner aggregator may be a sum
    or a mean, with clipping (in sketch space), noise or secure aggregation of its own.
    An update that is not finite counts as zeros.

    Value types are those of `CodecFactory`; a client's key or id is handed on to inner
    factories of that class. State: `OrderedDict(seed=int64[2], round=int32,
    inner=<that of the inner process>)`. Measurements: those of the inner process alone,
    which may be one that sums securely.
    """

    def __init__(
        self,
        inner: tff.aggregators.UnweightedAggregationFactory,
        compression_rate: float,
        *,
        kind: str = "shifts",
        rows: Optional[int] = None,
        scaling: str = "sqrt",
        seed: Optional[int] = None,
    ):
        """Initializes the factory.

        Args:
          inner: Aggregates float32[m].
          compression_rate: r = d / m, at least 1.
          kind: "shifts" or "hashes"; see `dpfl.vectors.count_sketch`.
          rows: l, None for the default of the kind.
          scaling: "sqrt" or "mean": what the inner aggregator's clip applies to.
          seed: A whole number, or None for one from the operating system's entropy.

        Raises:
          TypeError: If `inner` is not an unweighted factory, or `seed` no integer.
          ValueError: If a number is out of its range.
        """
        if not isinstance(inner, tff.aggregators.UnweightedAggregationFactory):
            raise TypeError(
                f"inner must be an UnweightedAggregationFactory, found {inner!r}"
            )
        if not compression_rate >= 1:
            raise ValueError(
                f"compression_rate must be at least 1, found {compression_rate!r}"
            )
        self._inner = inner
        self._make_sketch = lambda dimension: count_sketch.build_sketch(
            dimension, compression_rate, kind=kind, rows=rows, scaling=scaling
        )
        self._make_sketch(1)
        self._seed = None if seed is None else randomness.seed_from_int(seed)

    def create(self, value_type: tff.Type) -> tff.templates.AggregationProcess:
        """The aggregation process for one type of value.

        Raises:
          TypeError: If `value_type` is not one that `CodecFactory` takes.
        """
        layout = Layout(value_type)
        sketch = self._make_sketch(layout.dimension)
        fixed = self._seed
        identity = layout.identity if isinstance(self._inner, CodecFactory) else None

        @tff.tensorflow.computation
        def first_seed() -> Any:
            seed = randomness.fresh_seed() if fixed is None else fixed
            return tf.convert_to_tensor(seed, tf.int64), tf.constant(0, tf.int32)

        @tff.tensorflow.computation(first_seed.type_signature.result)
        def prepare(own: Any) -> Any:
            seed = randomness.fold_in(own[0], own[1], purposes.Round.BROADCAST)
            return sketch.expand(seed)

        @tff.tensorflow.computation(value_type, prepare.type_signature.result)
        def encode(value: Any, expanded: Any) -> Any:
            update, own = layout.split(value)
            vector = layout.flatten(update, sketch.input_length)
            vector = clipping.finite(vector, clipping.safe_norm(vector))
            message = sketch.encode(vector, expanded)
            if not identity:
                return message
            return collections.OrderedDict([("update", message), (identity, own)])

        inner = self._inner.create(encode.type_signature.result)

        total_type = inner.next.type_signature.result.result.member

        @tff.tensorflow.computation(total_type, prepare.type_signature.result)
        def decode(total: Any, expanded: Any) -> Any:
            return layout.restore(sketch.decode(total, expanded))

        advance = tff.tensorflow.computation(
            lambda own: (own[0], own[1] + 1), first_seed.type_signature.result
        )

        @tff.federated_computation
        def initialize() -> tff.Value:
            own = tff.federated_eval(first_seed, tff.SERVER)
            return _state(own, inner.initialize())

        @tff.federated_computation(
            initialize.type_signature.result, tff.FederatedType(value_type, tff.CLIENTS)
        )
        def next_fn(state: tff.Value, value: tff.Value) -> Any:
            own = tff.federated_zip((state["seed"], state["round"]))
            expanded = tff.federated_map(prepare, own)
            shared = tff.federated_broadcast(expanded)
            encoded = tff.federated_map(encode, (value, shared))
            output = inner.next(state["inner"], encoded)
            return tff.templates.MeasuredProcessOutput(
                _state(tff.federated_map(advance, own), output.state),
                tff.federated_map(decode, (output.result, expanded)),
                output.measurements,
            )

        return tff.templates.AggregationProcess(initialize, next_fn)


def _state(own: tff.Value, inner: tff.Value) -> tff.Value:
    parts = collections.OrderedDict(seed=own[0], round=own[1], inner=inner)
    return tff.federated_zip(parts)
