# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A restored state repeats nothing in numpy either; `test_jax_aggregator` has JAX."""

import numpy as np
import pytest

import dpfl
from dpfl.arrays import in_numpy
from dpfl.codecs.round_functions import RoundFunctions
from dpfl.seed_domains import RoundDomain
from dpfl.vectors import randomness

D, CLIENTS = 4000, 3
NAMES = ["gaussian", "l2_csgm", "linf_csgm", "distributed_discrete_gaussian"]


def rounds(name, fresh_seed):
    codec = dpfl.make_codec(dpfl.TEST_CONFIGS[name], D, arrays="numpy")
    declared = dpfl.TEST_CONFIGS[name].released_measurements
    return RoundFunctions(codec, fresh_seed, released_measurements=declared)


def executed(steps, state):
    """The messages and the mean of a round."""
    codec, rng = steps.codec, np.random.default_rng(0)
    shared, secret = steps.prepare(state), steps.drawn(state, RoundDomain.CLIENT)
    total, sums, messages = codec.zero(), None, []
    for client in range(CLIENTS):
        update = np.zeros(codec.input_length, np.float32)
        update[:D] = rng.normal(size=D) / 80
        seed = randomness.fold_in(secret, client)
        message, more = steps.encode_vector(update, shared, seed)
        total = codec.accumulate(total, message)
        sums = more if sums is None else {key: sums[key] + more[key] for key in more}
        messages.append(message)
    made = steps.finish(state, shared, codec.reduce_modulo(total), sums)
    return messages, made["result"], made["measurements"]["noise_stddev"]


@pytest.mark.parametrize("name", NAMES)
def test_two_rounds_of_one_state_have_independent_noise(name):
    steps = rounds(name, in_numpy.fresh_seed)
    state = steps.first_state(None)
    assert "seed" not in state
    found = [executed(steps, state) for _ in range(3)]
    for (_, one, stddev), (_, two, _) in (found[:2], found[1:]):
        assert np.std(one - two) > 0.95 * stddev * np.sqrt(2)
        assert np.mean(one == two) < 0.1
    if name != "gaussian":
        # Masks, or rounding and shares of noise.
        part = "seed" if "csgm" in name else "update"
        sent = [messages[0][part] for messages, *_ in found]
        assert np.mean(sent[0] == sent[1]) < 0.1


def release_of(name, state):
    """A server's state, the messages, the mean and its noise, after a saved state."""
    mechanism = dpfl.TEST_CONFIGS[name]
    plan = dpfl.WithoutReplacement(12, CLIENTS, 8)
    if name == "matrix_factorization":
        plan = dpfl.OncePerEpoch(12, CLIENTS, 8)
    server = dpfl.Server(mechanism, plan, D, state=state)
    now, rng, messages = server.begin_round(), np.random.default_rng(0), []
    for client in now.clients:
        update = rng.normal(size=D).astype(np.float32) / 80
        messages.append(dpfl.encode(mechanism, update, now.message))
        assert server.add(client, messages[-1])
    made = server.end_round()
    return server.save(), messages, made.mean, made.metrics["noise_stddev"]


@pytest.mark.parametrize("name", [*NAMES, "matrix_factorization"])
def test_two_rounds_of_one_saved_server_have_independent_noise(name):
    state, *_ = release_of(name, None)
    found = [release_of(name, state)[1:] for _ in range(3)]
    for (_, one, stddev), (_, two, _) in (found[:2], found[1:]):
        # The rows of a stream that were released are in both.
        assert np.std(one - two) > 0.8 * stddev * np.sqrt(2)
        assert np.mean(one == two) < 0.1
    if name not in ("gaussian", "matrix_factorization"):
        sent = [np.frombuffer(messages[0][:2000], np.uint8) for messages, *_ in found]
        assert np.mean(sent[0] == sent[1]) < 0.3


@pytest.mark.parametrize("name", NAMES)
def test_a_seeded_round_is_a_function_of_its_state(name):
    steps = rounds(name, None)
    state = steps.first_state((1, 2))
    one, two = (executed(steps, state)[1] for _ in range(2))
    np.testing.assert_array_equal(one, two)
    other = executed(steps, steps.first_state((1, 3)))[1]
    assert np.mean(other == one) < 0.1
