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
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import aggregators, codecs
from dpfl.aggregators import reductions
from dpfl.privacy_coverage import MARK

from . import findings, rounds

_DIMENSION = 64


def wraps(mechanism: Any) -> Iterator[findings.Finding]:
    """Yields whether cohorts with equal residues open equal sums, through TFF.

    The codec's own reduction is run on messages of two clients. In one cohort they are
    zeros; in the other they add up to the modulus in each coordinate.

    The mechanism must sum securely.
    """
    codec = codecs.make_codec(mechanism, _DIMENSION, arrays="tensorflow")
    seed = tf.constant([3, 4], tf.int64)
    shared = codec.decode_broadcast(codec.broadcast(codec.initial_state(), seed))
    example = codec.encode(tf.zeros([codec.input_length]), shared, seed).message
    message_type = tff.to_type(tf.nest.map_structure(_tensor_type, example))
    sums_type = tff.to_type(collections.OrderedDict(clients=np.float64))
    reduce = reductions.reduction(codec, message_type, sums_type)

    @tff.federated_computation(
        tff.FederatedType(message_type, tff.CLIENTS),
        tff.FederatedType(sums_type, tff.CLIENTS),
    )
    def opened(messages: Any, sums: Any) -> Any:
        return reduce(tff.federated_zip((messages, sums)))[0]

    parts = [(1, -1), (5, -5), (0, 0)]
    bits = rounds.modulus_bits(mechanism)
    seen = []
    for residues in parts:
        messages = [_message(example, bits, residue) for residue in residues]
        total = opened(messages, [collections.OrderedDict(clients=1.0)] * 2)
        seen.append([np.asarray(part).ravel() for part in tf.nest.flatten(total)])
    for place, name in enumerate(list(example)):
        same = all(np.array_equal(seen[0][place], one[place]) for one in seen[1:])
        yield findings.Finding(
            *("wraps", mechanism.name, f"{name}, modulo 2^{bits[name]}"),
            is_sound=same and not np.any(seen[0][place]),
            claimed=0.0,
            found=float(max(np.max(one[place]) for one in seen)),
            detail="opened of sums that are multiples of the modulus",
        )


def measured(mechanism: Any) -> Iterator[findings.Finding]:
    """Yields whether each measurement follows from the release, or is marked as exact.

    In neighbouring rounds a client has an update that is clipped, one that is not
    finite, or zeros. The rest of the round is computed from the first sum: a
    measurement that still differs depends on the client, and not on the release alone.
    For a secure sum TFF's own check also tests whether anything else is opened.

    The mechanism may be any, with a cohort of few clients.
    """
    factory = aggregators.build(mechanism, seed=1, checks_context=False)
    key_type = tff.TensorType(np.int64, [2])
    value_type = tff.to_type(
        collections.OrderedDict(update=(np.float32, [_DIMENSION]), client_key=key_type)
    )
    if mechanism.sums_securely:
        process = factory.create(value_type)
        yield _measured(mechanism, "TFF's check", *_tff_s_check(process))
    steps = factory.round_functions(value_type)
    state = steps.initial_state()
    shared = steps.prepare(state)
    total, seen = None, []
    for update in (100.0, np.nan, 0.0):
        summed, sums = _round(steps, shared, mechanism.cohort_size, update)
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


def _tff_s_check(process: tff.templates.AggregationProcess) -> tuple[bool, float]:
    try:
        tff.test.assert_contains_secure_aggregation(process.next)
        tff.test.assert_not_contains_unsecure_aggregation(process.next)
    except AssertionError:
        return False, 1.0
    return True, 0.0


def _round(steps: Any, shared: Any, clients: int, first: float) -> tuple[Any, Any]:
    """The sums of a round's messages and scalars, in which client 0 sends `first`."""
    codec, total, sums = steps.codec, steps.codec.zero(), None
    for client in range(clients):
        update = tf.fill([_DIMENSION], tf.constant(0.01 if client else first))
        key = tf.constant([client, 7], tf.int64)
        value = collections.OrderedDict(update=update, client_key=key)
        message, own = steps.encode(value, shared)
        total = codec.accumulate(total, message)
        sums = own if sums is None else tf.nest.map_structure(tf.add, sums, own)
    return codec.reduce_modulo(total), sums


def _tensor_type(tensor: tf.Tensor) -> tff.TensorType:
    return tff.TensorType(tensor.dtype.as_numpy_dtype, tensor.shape.as_list())


def _message(example: Any, bits: dict[str, int], residue: int) -> Any:
    """A message with the same residue in every place."""
    return collections.OrderedDict(
        (
            name,
            np.full(part.shape, residue % (1 << bits[name]), part.dtype.as_numpy_dtype),
        )
        for name, part in example.items()
    )
