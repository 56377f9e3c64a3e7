# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A server's release is that of TFF's aggregator under one seed.

Updates are exact, so that integers are equal; floats are made of them in each library.
Flower's and pfl's sums are compared with a server's in `loops`, and rounds in JAX with
those of numpy in `arrays/test_jax_aggregator.py`.
"""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from numpy.testing import assert_allclose, assert_array_equal

import dpfl
from dpfl import aggregators
from dpfl.arrays import in_numpy
from dpfl.loops import wire
from dpfl.seed_domains import RoundDomain
from dpfl.vectors import randomness
from tests.arrays import cases
from tests.loops import audited

D, CLIENTS = cases.DIMENSION, cases.CLIENTS


def by_tff(mechanism, updates):
    """Seed, clients' seeds, sum and mean, by the functions of TFF's process."""
    value = collections.OrderedDict(
        update=(np.float32, [D]), client_key=(np.int64, [2])
    )
    factory = aggregators.build(mechanism, seed=5, measure="released")
    steps = factory.round_functions(tff.to_type(value))
    state = steps.initial_state()
    shared, total, seeds = steps.prepare(state), steps.codec.zero(), []
    for place, update in enumerate(updates):
        key = tf.constant([place, 7], tf.int64)
        given = collections.OrderedDict(update=tf.constant(update), client_key=key)
        message, sums = steps.encode(given, shared)
        total = steps.codec.accumulate(total, message)
        round_seed = shared["round_seed"].numpy()
        domain = RoundDomain.CLIENT
        seeds.append(randomness.fold_in(key.numpy(), domain, *round_seed))
    sums = {name: CLIENTS * part for name, part in sums.items()}
    total = steps.codec.reduce_modulo(total)
    made = steps.finish(state, shared, total, sums)
    return np.array(steps.seed), seeds, total, made["result"].numpy()


@pytest.mark.parametrize("name", cases.SUMMED)
def test_a_sum_and_a_release_are_those_of_tff(name):
    mechanism, updates = cases.EXACT[name], cases.exact_updates()
    words, seeds, total, wanted = by_tff(mechanism, updates)
    plan = dpfl.FixedSize(CLIENTS, CLIENTS, 4)
    server = dpfl.Server(mechanism, plan, D, seed=0)
    server._state = server._steps.first_state(words)
    now, codec = server.begin_round(range(CLIENTS)), server._codec
    _, shared = wire._shared(mechanism, D, now.message)
    for client, (update, seed) in enumerate(zip(updates, seeds)):
        padded = np.pad(update, [0, codec.input_length - D])
        message = codec.encode(padded, shared, seed).message
        assert server.add(client, wire.pack(message, codec))
    with audited.sums_of(mechanism) as sums:
        assert_allclose(server.end_round().mean, wanted, rtol=1e-5, atol=1e-6)
    in_numpy.tree_map(assert_array_equal, sums[0], total)
