# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Rounds of a server in numpy: releases, cohorts, ledger, states, and garbage."""

import collections
import dataclasses
import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dpfl
from dpfl.arrays import in_numpy
from dpfl.codecs.base import Received
from dpfl.loops import server as server_lib
from dpfl.loops import wire
from dpfl.seed_domains import RoundDomain
from dpfl.vectors import randomness

D, CLIENTS = 256, 3
MECHANISMS = dict(dpfl.TEST_CONFIGS)
for _name in ("gaussian", "distributed_skellam"):
    _changed = dataclasses.replace(MECHANISMS[_name], adaptive_clipping=True)
    MECHANISMS[f"{_name}_adaptive"] = _changed
MECHANISMS["ddg_helpers"] = dataclasses.replace(
    MECHANISMS["distributed_discrete_gaussian"], noise_source="helpers"
)
GAUSSIAN = MECHANISMS["gaussian"]


def plan_of(mechanism, rounds=8):
    if hasattr(mechanism, "rounds_per_epoch"):
        return dpfl.OncePerEpoch(12, CLIENTS, rounds)
    return dpfl.WithoutReplacement(12, CLIENTS, rounds)


def begun(name, **more):
    mechanism = MECHANISMS[name]
    return dpfl.Server(mechanism, plan_of(mechanism), D, **more)


def update_of(client, number=0):
    rng = np.random.default_rng([client, number])
    return rng.normal(size=D).astype(np.float32) / 20


def done(server, secret=None):
    """The release of a round in which all clients send."""
    now = server.begin_round()
    for client in now.clients:
        own = None if secret is None else secret + 1000 * now.number + client
        update = update_of(client, now.number)
        assert server.add(
            client, dpfl.encode(server.mechanism, update, now.message, own)
        )
    return server.end_round()


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_message_has_the_bits_that_are_claimed(name):
    server = begun(name)
    mechanism, now = server.mechanism, server.begin_round()
    claimed = mechanism.uplink_bits(D) / 8
    if getattr(mechanism, "noise_source", None) == "helpers":
        # Each helper sends as much as a client.
        claimed /= 2
    lengths = [
        len(dpfl.encode(mechanism, update_of(c), now.message))
        for c in range(100 if "csgm" in name or name == "sgmf" else 3)
    ]
    if len(lengths) == 3:
        assert set(lengths) == {math.ceil(claimed)}
    else:
        spread = 4 * math.sqrt(D / 4)
        assert np.mean(lengths) == pytest.approx(claimed, abs=4 * spread / 10)


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_release_is_the_codecs_own_of_the_same_seeds(name):
    """Over two rounds, of which the second has a state."""
    server = begun(name, seed=7)
    codec = dpfl.make_codec(server.mechanism, D)
    seed = server._state["seed"]
    state = codec.initial_state()
    for number in range(2):
        own = randomness.fold_in(seed, number, RoundDomain.BROADCAST)
        broadcast = codec.broadcast(state, own)
        shared = codec.decode_broadcast(broadcast)
        now, total = server.begin_round(), codec.zero()
        for client in now.clients:
            padded = np.zeros(codec.input_length, np.float32)
            padded[:D] = update_of(client)
            secret = randomness.fold_in(seed, client)
            message = codec.encode(padded, shared, secret).message
            total = codec.accumulate(total, message)
            assert server.add(client, wire.pack(message, codec))
        noise = randomness.fold_in(seed, number, RoundDomain.SERVER_NOISE)
        sums = {"clients": np.float64(CLIENTS), "nonfinite_clients": np.float64(0)}
        received = Received(state, codec.reduce_modulo(total), sums, shared, noise)
        decoded = codec.decode(received)
        release = server.end_round()
        assert_array_equal(release.mean, decoded.mean)
        for key, part in decoded.measurements.items():
            assert release.metrics[key] == float(part)
        assert len(now.message) + 4 * D == release.metrics["downlink_bits"] / 8
        state = decoded.state


@pytest.mark.parametrize("name", MECHANISMS)
def test_clients_decode_what_the_server_sent(name):
    """An exact sum, from encoders that know the bytes alone, is near the truth."""
    mechanism = MECHANISMS[name]
    if name != "none":
        mechanism = mechanism.with_noise_multiplier(0.0)
    server = dpfl.Server(mechanism, plan_of(mechanism), D, seed=3)
    now = server.begin_round()
    _, shared = wire._shared(mechanism, D, now.message)
    sent = server._open.shared["expanded"]
    in_numpy.tree_map(assert_array_equal, dict(shared), dict(sent))
    for client in now.clients:
        data = dpfl.encode(mechanism, update_of(client), now.message, secret=client)
        again = dpfl.encode(mechanism, update_of(client), now.message, secret=client)
        assert data == again and server.add(client, data)
    if name not in ("sparse_recovery", "dome", "dome_ddg"):
        mean = server.end_round().mean
        truth = np.mean([update_of(client) for client in now.clients], 0)
        assert mean @ truth / (truth @ truth) == pytest.approx(1, abs=0.3)


def test_garbage_adds_nothing_and_is_counted():
    """For each mechanism the release is that of the honest clients alone."""
    rng = np.random.default_rng(0)
    for name in MECHANISMS:
        server, honest = begun(name, seed=1), begun(name, seed=1)
        assert not server.add(0, b"")
        now, own = server.begin_round(), honest.begin_round()
        counts = collections.Counter(late=1)
        assert now == own
        data = [
            dpfl.encode(server.mechanism, update_of(c), now.message, c)
            for c in now.clients
        ]
        for client, one in zip(now.clients, data):
            for bad in (b"", one[:-1], one + b"\0", None, 5, "text", rng.bytes(3)):
                assert not server.add(client, bad)
                counts["length"] += 1
            for stranger in (99, "me", None, [], {}, np.arange(2), float("nan")):
                assert not server.add(stranger, one)
                counts["stranger"] += 1
            if not server.mechanism.sums_securely:
                # Numbers beyond what a client can send, and NaN.
                assert not server.add(
                    client, one[:20] + b"\x7f\xff\xff\x7f" * 60 + one[260:]
                )
                counts["numbers"] += 1
            assert server.add(np.int64(client), one)
            assert honest.add(client, one)
            assert not server.add(client, one)
            counts["duplicate"] += 1
        found, wanted = server.end_round(), honest.end_round()
        assert_array_equal(found.mean, wanted.mean)
        for reason in server_lib.REFUSALS:
            assert found.metrics[f"exact_refused_{reason}"] == counts[reason], name
            assert wanted.metrics[f"exact_refused_{reason}"] == 0
        assert found.metrics["exact_clients"] == CLIENTS
        assert done(server).metrics["exact_refused_length"] == 0
