# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Audit of everything that a server sees beside a release.

    mechanism = mechanisms.DistributedDiscreteGaussian(4, 1.0, 1.0, 28)
    results = [*sums.wraps(mechanism), *sums.measured(mechanism)]

A secure sum opens residues only. Measurements follow from the release, or are marked as
exact if the server is trusted with each message.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dpfl import codecs
from dpfl.codecs import round_functions
from dpfl.privacy_coverage import MARK
from dpfl.vectors import randomness

from . import findings, library, rounds
from .library import NX

_DIMENSION = 64


def wraps(mechanism: Any) -> Iterator[findings.Finding]:
    """Yields whether cohorts with equal residues open equal sums.

    The codec's own reduction, beside TFF in its worker, is run on messages of two
    clients. In one cohort they are zeros; in the other they add up to the modulus in
    each coordinate.

    The mechanism must sum securely.
    """
    codec = codecs.make_codec(mechanism, _DIMENSION, arrays=library.NAME)
    seed = library.seed(3, 4)
    shared = codec.decode_broadcast(codec.broadcast(codec.initial_state(), seed))
    zeros = NX.zeros([codec.input_length], np.float32)
    example = codec.encode(zeros, shared, seed).message
    opened = (_opened_by_tff if library.HAS_TFF else _opened)(codec, example)
    parts = [(1, -1), (5, -5), (0, 0)]
    bits = rounds.modulus_bits(mechanism)
    seen = []
    for residues in parts:
        messages = [_message(example, bits, residue) for residue in residues]
        total = NX.structure_leaves(opened(messages))
        seen.append([np.asarray(part).ravel() for part in total])
    for place, name in enumerate(list(example)):
        same = all(np.array_equal(seen[0][place], one[place]) for one in seen[1:])
        yield findings.Finding(
            *("wraps", mechanism.name, f"{name}, modulo 2^{bits[name]}"),
            is_sound=same and not np.any(seen[0][place]),
            claimed=0.0,
            found=float(max(np.max(one[place]) for one in seen)),
            detail="opened of sums that are multiples of the modulus",
        )


def _opened(codec: Any, example: Any) -> Callable[[Any], Any]:
    """The sum of messages as an aggregator in JAX opens it."""

    def opened(messages: Any) -> Any:
        total = codec.zero()
        for message in messages:
            total = codec.accumulate(total, message)
        return codec.reduce_modulo(total)

    return opened


def _opened_by_tff(codec: Any, example: Any) -> Callable[[Any], Any]:
    """The secure sum of messages in TFF's worker."""
    import tensorflow as tf
    import tensorflow_federated as tff

    from dpfl.aggregators import reductions

    def tensor_type(tensor: Any) -> tff.TensorType:
        return tff.TensorType(tensor.dtype.as_numpy_dtype, tensor.shape.as_list())

    message_type = tff.to_type(tf.nest.map_structure(tensor_type, example))
    sums_type = tff.to_type(collections.OrderedDict(clients=np.float64))
    reduce = reductions.reduction(codec, message_type, sums_type)

    @tff.federated_computation(
        tff.FederatedType(message_type, tff.CLIENTS),
        tff.FederatedType(sums_type, tff.CLIENTS),
    )
    def opened(messages: Any, sums: Any) -> Any:
        return reduce(tff.federated_zip((messages, sums)))[0]

    return lambda messages: opened(
        messages, [collections.OrderedDict(clients=1.0)] * len(messages)
    )


def measured(mechanism: Any) -> Iterator[findings.Finding]:
    """Yields whether each measurement follows from the release, or is marked as exact.

    In neighbouring rounds a client has an update that is clipped, one that is not
    finite, or zeros. The rest of the round is computed from the first sum: a
    measurement that still differs depends on the client, and not on the release alone.
    For a secure sum in TFF its own check also tests whether anything else is opened.

    The mechanism may be any, with a cohort of few clients.
    """
    if library.HAS_TFF and mechanism.sums_securely:
        yield _measured(mechanism, "TFF's check", *_tff_s_check(mechanism))
    codec = codecs.make_codec(mechanism, _DIMENSION, arrays=library.NAME)
    steps = round_functions.RoundFunctions(
        codec, None, released_measurements=mechanism.released_measurements
    )
    state = steps.first_state([1, 2])
    shared = library.compiled(steps.prepare)(state)
    encode = library.compiled(steps.encode_vector)
    total, seen = None, []
    for update in (100.0, np.nan, 0.0):
        summed, sums = _round(codec, encode, shared, mechanism.cohort_size, update)
        total = summed if total is None else total
        seen.append(steps.finish(state, shared, total, sums)["measurements"])
    for name in seen[0]:
        values = np.array([float(each[name]) for each in seen])
        is_marked = name.startswith(MARK)
        is_sound = not mechanism.sums_securely if is_marked else np.ptp(values) == 0
        yield _measured(mechanism, name, is_sound, float(np.ptp(values)))


def _measured(
    mechanism: Any, setting: str, is_sound: bool, value: float
) -> findings.Finding:
    return findings.Finding(
        *("measured", mechanism.name, setting, bool(is_sound)),
        found=value,
        detail="by how much it differs for neighbours with equal releases",
    )


def _tff_s_check(mechanism: Any) -> tuple[bool, float]:
    import tensorflow_federated as tff

    from dpfl import aggregators

    factory = aggregators.build(mechanism, seed=1)
    key_type = tff.TensorType(np.int64, [2])
    value_type = tff.to_type(
        collections.OrderedDict(update=(np.float32, [_DIMENSION]), client_key=key_type)
    )
    process = factory.create(value_type)
    try:
        tff.test.assert_contains_secure_aggregation(process.next)
        tff.test.assert_not_contains_unsecure_aggregation(process.next)
    except AssertionError:
        return False, 1.0
    return True, 0.0


def _round(
    codec: Any, encode: Any, shared: Any, clients: int, first: float
) -> tuple[Any, Any]:
    """The sums of a round's messages and scalars, in which client 0 sends `first`."""
    total, sums = codec.zero(), None
    for client in range(clients):
        update = np.zeros([codec.input_length], np.float32)
        update[:_DIMENSION] = 0.01 if client else first
        own = randomness.fold_in(library.seed(client, 7), 0)
        message, mine = encode(NX.asarray(update, np.float32), shared, own)
        total = codec.accumulate(total, message)
        sums = mine if sums is None else NX.tree_map(operator.add, sums, mine)
    return codec.reduce_modulo(total), sums


def _message(example: Any, bits: dict[str, int], residue: int) -> Any:
    """A message with the same residue in every place."""
    return collections.OrderedDict(
        (
            name,
            np.full(part.shape, residue % (1 << bits[name]), np.asarray(part).dtype),
        )
        for name, part in example.items()
    )
