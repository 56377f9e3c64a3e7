# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A restored state repeats nothing in numpy either; `test_jax_aggregator` has JAX."""

import numpy as np
import pytest

import dpfl

D, CLIENTS = 4000, 3
NAMES = ["gaussian", "l2_csgm", "linf_csgm", "distributed_discrete_gaussian"]


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
