# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A server's release is that of TFF's and of JAX's aggregator under one seed.

Updates are exact, so that integers are equal; floats are made of them in each library.
"""

import collections

import numpy as np
import pytest
from numpy.testing import assert_allclose

import dpfl
from dpfl.loops import wire
from dpfl.seed_domains import RoundDomain
from dpfl.vectors import randomness
from tests.arrays import cases, libraries

D, CLIENTS = cases.DIMENSION, cases.CLIENTS
NAMES = ["gaussian_adaptive", "l2_csgm", "distributed_discrete_gaussian"]


def by_tff(mechanism, updates):
    """The seed, the clients' seeds and the mean, by the functions of TFF's process."""
    import tensorflow as tf
    import tensorflow_federated as tff

    from dpfl import aggregators

    value = collections.OrderedDict(
        update=(np.float32, [D]), client_key=(np.int64, [2])
    )
    factory = aggregators.build(
        mechanism, seed=5, measure="released", checks_context=False
    )
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
    made = steps.finish(state, shared, steps.codec.reduce_modulo(total), sums)
    return np.array(steps.seed), seeds, made["result"].numpy()


def by_jax(mechanism, updates):
    """The seed, the clients' seeds and the mean, by the aggregator for JAX."""
    import jax
    import jax.numpy as jnp

    agg = dpfl.jax_aggregator(mechanism, jnp.zeros(D), measure="released")
    state = agg.init(seed=5)
    words = np.asarray(state["seed"]).view(np.int64).reshape(2)
    made = jax.jit(agg.update)(state, jnp.asarray(updates))
    secret = randomness.fold_in(words, 0, RoundDomain.CLIENT)
    seeds = [randomness.fold_in(secret, place) for place in range(CLIENTS)]
    return words, seeds, np.asarray(made.mean)


@pytest.mark.parametrize("name", NAMES)
def test_a_release_is_that_of_another_library(name):
    mechanism, updates = cases.EXACT[name], cases.exact_updates()
    other = by_tff if libraries.HAS_TENSORFLOW else by_jax
    words, seeds, wanted = other(mechanism, updates)
    plan = dpfl.FixedSize(CLIENTS, CLIENTS, 4)
    server = dpfl.Server(mechanism, plan, D, seed=0)
    server._state = server._steps.first_state(words)
    now, codec = server.begin_round(range(CLIENTS)), server._codec
    _, shared = wire._shared(mechanism, D, now.message)
    for client, (update, seed) in enumerate(zip(updates, seeds)):
        padded = np.pad(update, [0, codec.input_length - D])
        message = codec.encode(padded, shared, seed).message
        assert server.add(client, wire.pack(message, codec))
    assert_allclose(server.end_round().mean, wanted, rtol=1e-5, atol=1e-6)
