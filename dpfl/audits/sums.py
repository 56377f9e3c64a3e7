# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What a secure sum opens: residues, and nothing that tells how often it wrapped."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.aggregators import registry
from dpfl.audits import finding, rounds

_DIMENSION = 64


def findings(mechanism: Any) -> Iterator[finding.Finding]:
    """Yields whether cohorts with equal residues open equal sums, through TFF.

    The codec's own reduction is run on messages of two clients. In the one cohort they
    are zeros; in the other they add up to the modulus, in each coordinate.

    Args:
      mechanism: One that sums securely.
    """
    codec = registry.make_codec(mechanism, _DIMENSION)
    seed = tf.constant([3, 4], tf.int64)
    shared = codec.expand(codec.broadcast(codec.initial_state(), seed))
    example = codec.encode(tf.zeros([codec.input_length]), shared, seed).message
    message_type = tff.to_type(tf.nest.map_structure(_tensor_type, example))
    sums_type = tff.to_type(collections.OrderedDict(clients=np.float64))
    reduce = codec.reduction(message_type, sums_type)

    @tff.federated_computation(
        tff.FederatedType(message_type, tff.CLIENTS),
        tff.FederatedType(sums_type, tff.CLIENTS),
    )
    def opened(messages: Any, sums: Any) -> Any:
        return reduce(tff.federated_zip((messages, sums)))[0]

    parts = [(1, -1), (5, -5), (0, 0)]
    bits = rounds.moduli_bits(mechanism)
    seen = []
    for residues in parts:
        messages = [_message(example, bits, residue) for residue in residues]
        total = opened(messages, [collections.OrderedDict(clients=1.0)] * 2)
        seen.append([np.asarray(part).ravel() for part in tf.nest.flatten(total)])
    for place, name in enumerate(_names(example)):
        same = all(np.array_equal(seen[0][place], one[place]) for one in seen[1:])
        yield finding.Finding(
            check="wraps",
            mechanism=mechanism.name,
            setting=f"{name}, modulo 2^{bits[name]}",
            is_sound=same and not np.any(seen[0][place]),
            claimed=0.0,
            found=float(max(np.max(one[place]) for one in seen)),
            detail="opened of sums that are multiples of the modulus",
        )


def _tensor_type(tensor: tf.Tensor) -> tff.TensorType:
    return tff.TensorType(tensor.dtype.as_numpy_dtype, tensor.shape.as_list())


def _names(message: Any) -> list[str]:
    """Returns the names of the parts of a message, those of the inner one if nested."""
    return list(message["values"] if "values" in message else message)


def _message(example: Any, bits: dict[str, int], residue: int) -> Any:
    """Returns a message with the same residue in every place."""
    if "values" in example:
        return collections.OrderedDict(
            values=_message(example["values"], bits, residue)
        )
    return collections.OrderedDict(
        (name, np.full(part.shape, residue % (1 << bits[name]), np.int32))
        for name, part in example.items()
    )
