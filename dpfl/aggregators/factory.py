# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""TFF aggregation factories of codecs, which are plain TensorFlow functions.

`CodecFactory` maps a codec's functions to their placements, in four TensorFlow
computations whatever the mechanism:

  prepare (server) -> broadcast -> encode (each client) -> reduce -> finish (server)

so that the compiled computation stays shallow: TFF's worker refuses computations nested
more than about 50 deep, which a stack of wrapping factories reaches. Programs with
their own computations use the same functions from `CodecFactory.round_functions`.
If all clients share a fresh seed, they return it beside their messages to a trusted
server.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Any, Optional

import tensorflow_federated as tff

from dpfl import checks
from dpfl.aggregators import reductions
from dpfl.aggregators.layout import Layout
from dpfl.aggregators.round_functions import GraphRoundFunctions
from dpfl.arrays import philox
from dpfl.codecs import round_functions
from dpfl.codecs.base import Codec
from dpfl.privacy_coverage import MEASURES

# Callers that divide a sum by themselves: the module and the function that calls
# `create`.
_DIVIDES_ITSELF = {
    ("tensorflow_federated.python.aggregators.mean", "create"),
    (
        "tensorflow_federated.python.learning.algorithms.kmeans_clustering",
        "build_fed_kmeans",
    ),
}


def _check_output(output: str) -> None:
    """Raises ValueError if a mean is about to be divided a second time.

    A factory is told only the type of a value, so the caller is read from the stack:
    TFF's mean factories and its k-means, however wrapped.
    """
    caller = _caller_that_divides()
    if output == "mean" and caller:
        raise ValueError(
            f"output must be 'sum' inside TFF's {caller}, which divides the sum "
            f"itself, found {output!r}"
        )


def _caller_that_divides() -> Optional[str]:
    frame = sys._getframe(1)
    while frame is not None:
        place = (frame.f_globals.get("__name__"), frame.f_code.co_name)
        if place in _DIVIDES_ITSELF:
            owner = frame.f_locals.get("self")
            return place[1] if owner is None else type(owner).__name__
        frame = frame.f_back  # type: ignore[assignment]
    return None


class CodecFactory(tff.aggregators.UnweightedAggregationFactory):
    """The `UnweightedAggregationFactory` of a codec.

    The process aggregates values of any structure of float tensors, which it flattens
    into one float32 vector and restores. Its value type may also be
    `OrderedDict(update=<structure>, client_key=int64[2])`; the result then has the type
    of `update` alone. The difference is where a client's private randomness comes from:

      * plain: 128 bits of the operating system's entropy on the client, fresh at every
        execution;
      * with a key: the key and the round's seed, so that a round of an explicit seed
        can be replayed. Keys are secrets that the program hands to each client with its
        data, one of its own to each; nothing that is broadcast reveals the randomness
        derived from them.

    A hash of the update would not do in place of a key: clients with equal updates
    would share a mask, and the privacy proof needs masks to be independent.

    State: `OrderedDict(round=int32, **codec.initial_state())`. Noise and all other
    randomness are drawn from the operating system's entropy at each execution: a
    restored state repeats nothing. Beside a secure sum the state has `public_seed=
    int64[2]`, the fresh seed of the next round's rotation or sketch, which all clients
    will know: of that alone a restored state has the same.

    With an explicit seed the state begins with `seed=int64[2]`, and all that the server
    draws is a function of the state. The seed is made of the number that was given and
    of the mechanism's configuration, the dimension and the type of the values, so that
    two processes that differ in any of them share no noise. The seed does not depend on
    the data: executing a round twice from the same seed, with other clients or weights,
    releases the difference of the updates without noise.

    Measurements, all of the round, and scalars: `downlink_bits` (float32; the model as
    float32 and what the codec broadcasts) and those of the codec, which are public or
    follow from the release. Then, unless the sum is secure, those that are exact, so
    outside of the privacy guarantee, which the prefix `exact_` marks: `exact_clients`
    (int32), `exact_nonfinite_clients` (int32; they count as an update of zeros),
    `exact_mean_update_norm` (float32; before clipping, over finite updates),
    `exact_uplink_bits` (float32; mean over clients, measured from the messages), and
    those of the codec.
    """

    def __init__(
        self,
        make_codec: Callable[[int], Codec],
        *,
        seed: Optional[int] = None,
        identity: str = "",
        output: str = "mean",
        measure: Optional[str] = None,
        released_measurements: Collection[str] = (),
    ):
        """Initializes the factory.

        Args:
          make_codec: Function from the dimension of the flattened update to a codec.
          seed: None for fresh noise at each execution, as a release wants it. A whole
            number, for simulations that are to be repeated, gives the same noise for
            the same identity, dimension and type of values whenever a round is executed
            again: epsilon holds only if it is executed again on the same updates.
          identity: Text of everything else that the codec's noise depends on.
          output: "mean", or "sum" for the mean times its divisor (the mechanism's n,
            however many clients reported): the same release with the same noise, so the
            same event. Measurements such as `noise_stddev` are of the mean either way.
          measure: Measurements beside the release. None opens exact sums over clients
            if the server is trusted with each message, and none if the codec sums
            securely; "released" opens none; "exact_for_simulation" opens them always:
            beside a secure sum the server then sees more than the event covers.
          released_measurements: Names of the codec's measurements of the release, as
            of `Mechanism`; `create` refuses others.

        Raises:
          TypeError: If `seed` is not an integer.
          ValueError: If it is negative, or 2**126 or more, or if there is no such
            output or measure.
        """
        output = checks.choice("output", output, round_functions.OUTPUTS)
        if measure is not None:
            measure = checks.choice("measure", measure, MEASURES)
        self._make_codec = make_codec
        self._output = output
        self._measure = measure
        self._released = tuple(released_measurements)
        self._identity = identity
        self._seed = seed
        if seed is not None:
            philox.seed_from_int(seed)

    def create(self, value_type: tff.Type) -> tff.templates.AggregationProcess:
        """The aggregation process for one type of value.

        Raises:
          TypeError: If `value_type` is not a structure of float tensors of known
            shapes, or an OrderedDict of one and a key, as described above.
          ValueError: If TFF is about to divide a mean again, or if a sum is asked of a
            mechanism that does not give a mean.
        """
        steps = self.round_functions(value_type)
        wanted = "False for a process of TFF, whose own `MeanFactory` takes weights"
        checks.require(not steps.codec.takes_weights, "weighted", wanted, True)
        initial = tff.tensorflow.computation(steps.initial_state)
        state_type = initial.type_signature.result
        prepare = tff.tensorflow.computation(steps.prepare, state_type)
        shared_type = prepare.type_signature.result

        # TFF takes no function with a default.
        def encode_value(value: Any, shared: Any) -> Any:
            return steps.encode(value, shared)

        encode = tff.tensorflow.computation(encode_value, value_type, shared_type)
        reduce = reductions.reduction(steps.codec, *encode.type_signature.result)
        # A program that is compiled to a part before its clients and one after them, as
        # to a `MapReduceForm`, calls `prepare` in both. So clients return the seed that
        # they had, unless it is in the state.
        is_drawn = steps.seed is None and not steps.codec.sums_securely
        returns_seed = is_drawn and len(shared_type["expanded"]) > 0

        def finish(state: Any, shared: Any, total: Any) -> Any:
            return steps.finish(state, shared, *total)

        def finish_with(state: Any, shared: Any, total: Any, seeds: Any) -> Any:
            theirs = steps.shared_with(state, shared, seeds)
            return steps.finish(state, theirs, *total)

        @tff.federated_computation
        def initialize() -> tff.Value:
            return tff.federated_eval(initial, tff.SERVER)

        @tff.federated_computation(
            initialize.type_signature.result, tff.FederatedType(value_type, tff.CLIENTS)
        )
        def next_fn(state: tff.Value, value: tff.Value) -> Any:
            shared = tff.federated_map(prepare, state)
            sent = tff.federated_broadcast(shared)
            total = reduce(tff.federated_map(encode, (value, sent)))
            given: list[Any] = [state, shared, total]
            function: Callable[..., Any] = finish
            if returns_seed:
                given.append(reductions.sum_seeds(sent["round_seed"]))
                function = finish_with
            types = [part.type_signature.member for part in given]
            last = tff.tensorflow.computation(function, *types)
            output = tff.federated_map(last, tuple(given))
            return tff.templates.MeasuredProcessOutput(
                output["state"], output["result"], output["measurements"]
            )

        return tff.templates.AggregationProcess(initialize, next_fn)

    def round_functions(self, value_type: tff.Type) -> GraphRoundFunctions:
        """The functions that `create` makes the process of; raises the same errors."""
        layout = Layout(value_type)
        _check_output(self._output)
        codec = self._make_codec(layout.dimension)
        round_functions.check_output(self._output, codec)
        fixed = None
        if self._seed is not None:
            identity = f"{self._identity}:{layout.dimension}:{layout.value_type}"
            fixed = philox.seed_from_int(self._seed, identity)
        return GraphRoundFunctions(
            codec, layout, fixed, self._output, self._measure, self._released
        )
