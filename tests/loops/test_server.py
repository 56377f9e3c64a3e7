# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Rounds of a server in numpy: releases, cohorts, ledger, states, and garbage."""

import collections
import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dpfl
from dpfl.arrays import in_numpy
from dpfl.codecs.base import Received
from dpfl.loops import open_round, wire
from dpfl.seed_domains import RoundDomain
from dpfl.vectors import randomness
from tests.loops import audited
from tests.refusals import refuses

D, CLIENTS = 256, 3
# Skellam's and the other CSGM's codecs are those of their siblings.
SIBLINGS = {"distributed_skellam", "linf_csgm"}
EVERY = dict(dpfl.TEST_CONFIGS)
for _name in ("gaussian", "distributed_discrete_gaussian"):
    _changed = dataclasses.replace(EVERY[_name], adaptive_clipping=True)
    EVERY[f"{_name}_adaptive"] = _changed
EVERY["ddg_helpers"] = dataclasses.replace(
    EVERY["distributed_discrete_gaussian"], noise_source="helpers"
)
MECHANISMS = {name: each for name, each in EVERY.items() if name not in SIBLINGS}
GAUSSIAN = MECHANISMS["gaussian"]


def plan_of(mechanism, rounds=8):
    if hasattr(mechanism, "rounds_per_epoch"):
        return dpfl.OncePerEpoch(12, CLIENTS, rounds)
    return dpfl.WithoutReplacement(12, CLIENTS, rounds)


def begun(name, **more):
    mechanism = EVERY[name]
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


@pytest.mark.parametrize("name", EVERY)
def test_a_message_has_the_bits_that_are_claimed(name):
    server = begun(name)
    message = server.begin_round().message
    sent = [dpfl.encode(server.mechanism, update_of(c), message) for c in range(30)]
    audited.check_bytes([*map(len, sent)], server.mechanism, D)


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


def beyond(server, data):
    """Messages of the right length that no client of a trusted server can send."""
    if server.mechanism.sums_securely:
        return
    # NaN, or integers above all bounds, behind the seed and the number of values.
    yield data[:20] + 60 * b"\x7f\xff\xff\x7f" + data[260:]
    if isinstance(server.mechanism, dpfl.NoMechanism):
        return
    # Each of them is within its bound, and all of them together are not.
    most = server._codec._sum.grid.max_size
    yield data[:20] + np.full(60, most, "<i4").tobytes() + data[260:]
    if getattr(server.mechanism, "adaptive_clipping", False):
        # Both votes.
        yield b"\3" + data[1:]


def test_garbage_adds_nothing_and_is_counted():
    """For each mechanism the release is that of the honest clients alone."""
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
            for bad in (b"", one[:-1], one + b"\0", None, 5, "text", np.zeros([2, 3])):
                assert not server.add(client, bad)
                counts["length"] += 1
            for stranger in (99, "me", None, [], {}, np.arange(2), float("nan")):
                assert not server.add(stranger, one)
                counts["stranger"] += 1
            for wrong in beyond(server, one):
                assert len(wrong) == len(one) and not server.add(client, wrong)
                counts["numbers"] += 1
            assert server.add(np.int64(client), one)
            assert honest.add(client, one)
            assert not server.add(client, one)
            counts["duplicate"] += 1
        found, wanted = server.end_round(), honest.end_round()
        assert_array_equal(found.mean, wanted.mean)
        for reason in open_round.REFUSALS:
            assert found.metrics[f"exact_refused_{reason}"] == counts[reason], name
            assert wanted.metrics[f"exact_refused_{reason}"] == 0
        assert found.metrics["exact_clients"] == CLIENTS
        assert done(server).metrics["exact_refused_length"] == 0


@pytest.mark.parametrize("name", audited.RESTORED)
def test_two_releases_of_one_state_have_noise_of_their_own(name, tmp_path):
    def released(mechanism, updates, plan, folder):
        path, d = folder / "state", updates.shape[1]
        state = path.read_bytes() if path.exists() else None
        server = dpfl.Server(mechanism, plan, d, state=state)
        now = server.begin_round()
        for client in now.clients:
            data = dpfl.encode(mechanism, updates[client], now.message)
            assert server.add(client, data)
        mean = server.end_round().mean
        path.write_bytes(server.save())
        return mean

    audited.check_restored(name, tmp_path, released)


RESUMED = ["gaussian_adaptive", "l2_csgm", "distributed_discrete_gaussian"]
RESUMED += ["matrix_factorization", "dome_ddg", "sketched_ddg"]


@pytest.mark.parametrize("name", RESUMED)
def test_a_killed_seeded_run_ends_as_an_uninterrupted_one(name):
    whole = begun(name, seed=5)
    wanted = [done(whole, secret=1) for _ in range(4)]
    state, found = None, []
    for _ in range(4):
        server = begun(name, seed=5, state=state)
        found.append(done(server, secret=1))
        state = server.save()
        # A round that is lost, with its release, is done again.
        done(server, secret=1)
    for one, two in zip(found, wanted):
        assert_array_equal(one.mean, two.mean)
        assert one[1:] == two[1:]
    assert state == whole.save()


def test_a_seed_is_that_of_the_state():
    state = begun("gaussian", seed=5).save()
    assert begun("gaussian", state=state).begin_round() == (
        begun("gaussian", seed=5).begin_round()
    )
    with refuses(ValueError, "seed", 6):
        begun("gaussian", seed=6, state=state)
    with refuses(ValueError, "seed", 5):
        begun("gaussian", seed=5, state=begun("gaussian").save())


def test_states_of_others_are_refused_without_what_they_hold():
    server = begun("gaussian", epsilon=50)
    state = server.save()
    assert begun("gaussian", epsilon=50.0, state=state).mechanism == server.mechanism
    others = [
        lambda: begun("gaussian", epsilon=51, state=state),
        lambda: begun("gaussian", epsilon=50, delta=1e-6, state=state),
        lambda: begun("l2_csgm", epsilon=50, state=state),
        lambda: begun("gaussian", epsilon=50, state=state, path="new.jsonl"),
        lambda: dpfl.Server(GAUSSIAN, plan_of(GAUSSIAN, 9), D, epsilon=50, state=state),
        lambda: dpfl.Server(
            GAUSSIAN, plan_of(GAUSSIAN), [np.zeros(D)], epsilon=50, state=state
        ),
    ]
    damaged = (b"", b"garbage", state[:-1], state[: len(state) // 2], "text", 3)
    others += [
        lambda each=each: begun("gaussian", epsilon=50, state=each) for each in damaged
    ]
    for other in others:
        with pytest.raises(ValueError, match="state") as caught:
            other()
        assert len(str(caught.value)) < 120


# Without noise epsilon is infinite at once.
SIX = dpfl.Gaussian(cohort_size=6, clip_norm=1.0, noise_multiplier=0.0)
PLANS = {
    "poisson": dpfl.PoissonSampling(60, 6, 20),
    "without_replacement": dpfl.WithoutReplacement(60, 6, 20),
    "once_per_epoch": dpfl.OncePerEpoch(60, 6, 20, min_separation=4),
    "random_allocation": dpfl.RandomAllocation(60, 6, 20),
    "cyclic_poisson": dpfl.CyclicPoisson(60, 6, 20, min_separation=4),
    "balls_in_bins": dpfl.BallsInBins(60, 6, 20),
    "b_min_separation": dpfl.BMinSeparation(60, 6, 20, min_separation=4),
    "k_of_t": dpfl.KOfT(60, 6, 20),
}


def test_every_plan_draws_its_cohorts_but_fixed():
    assert {*PLANS, "fixed"} == {*dpfl.PARTICIPATIONS}
    server = dpfl.Server(SIX, dpfl.FixedSize(60, 6, 20), D)
    with refuses(ValueError, "plan", "FixedSize"):
        server.begin_round()
    assert server.begin_round("abcdef".split("b")).clients == ["a", "cdef"]


@pytest.mark.parametrize("name", PLANS)
def test_cohorts_follow_the_plan_also_if_the_run_is_resumed(name):
    plan = PLANS[name]

    def resumed(state=None):
        return dpfl.Server(SIX, plan, 2, state=state)

    server, cohorts = resumed(), []
    for number in range(plan.rounds):
        # Twice, since a round that is given up has the same clients.
        assert server.begin_round().clients == server.begin_round().clients
        cohorts.append(server.begin_round().clients)
        server.end_round()
        if number % 7 == 0:
            server = resumed(server.save())
    last = {}
    rounds = collections.Counter(client for each in cohorts for client in each)
    for number, cohort in enumerate(cohorts):
        assert len(set(cohort)) == len(cohort) and set(cohort) <= set(range(60))
        for client in cohort:
            assert number - last.get(client, -100) >= plan.separation
            last[client] = number
    assert max(rounds.values()) <= plan.max_participations
    sizes = [len(cohort) for cohort in cohorts]
    if plan.varies_cohorts:
        # Means of 20 rounds, of at most 2.4 deviation each.
        assert np.mean(sizes) == pytest.approx(6, abs=3)
        assert len(set(sizes)) > 1
    else:
        assert set(sizes) == {6}
    assert not server.rounds_left
    with refuses(ValueError, "rounds", 21):
        server.begin_round()


@pytest.mark.parametrize("name", PLANS)
def test_a_round_keeps_its_clients_until_it_is_lost(name, tmp_path):
    """Then it has other ones where the ledger charges less for that, but once."""
    plan, path = PLANS[name], tmp_path / "ledger.jsonl"

    def cohorts(state):
        again = [dpfl.Server(SIX, plan, 2, state=state, path=path) for _ in range(6)]
        return {tuple(one.begin_round().clients) for one in again}

    server = dpfl.Server(SIX, plan, 2, path=path)
    for _ in range(2):
        state = server.save()
        now = server.begin_round()
        assert cohorts(state) == {tuple(now.clients)}
        server.end_round()
    [again] = cohorts(state)
    assert (list(again) != now.clients) == plan.draws_afresh


def test_cohorts_are_given_in_each_round_or_in_none():
    server = begun("gaussian")
    server.begin_round([1, 2, 3])
    with refuses(ValueError, "clients", None):
        server.begin_round()
    server = begun("gaussian")
    server.begin_round()
    for again in (server, begun("gaussian", state=server.save())):
        with refuses(ValueError, "clients", [1, 2, 3]):
            again.begin_round([1, 2, 3])
    for wrong in ([1, 1, 2], [float("nan")], [(1, 2)], 5, "abc", [[1]]):
        with pytest.raises((TypeError, ValueError)):
            begun("gaussian").begin_round(wrong)


@pytest.mark.parametrize("name", [*PLANS, "fixed"])
def test_a_given_cohort_is_kept_until_it_is_lost(name, tmp_path):
    """Where nobody may know it: else it is no draw that enough reports would choose."""
    plan = PLANS.get(name, dpfl.FixedSize(60, 6, 20))

    def resumed(path, state=None):
        return dpfl.Server(SIX, plan, 2, path=path, state=state)

    def others(server):
        if name in ("once_per_epoch", "fixed"):
            server.begin_round([4, 5])
            return
        with refuses(ValueError, "clients", [4, 5]):
            server.begin_round([4, 5])
        assert server.begin_round(np.arange(3)[::-1]).number == 2

    for path in (None, tmp_path / "ledger.jsonl"):
        server = resumed(path)
        server.begin_round("abc".split())
        server.end_round()
        server.begin_round([0, 1, 2])
        state = server.save()
        others(server)
        others(resumed(path, state))
    server = resumed(path, state)
    server.begin_round([0, 1, 2])
    server.end_round()
    server = resumed(path, state)
    assert server.ledger.rounds == 1
    assert server.begin_round([4, 5]).number == 2


def test_given_cohorts_are_known_to_a_resumed_ledger():
    plan = dpfl.OncePerEpoch(12, CLIENTS, 8)
    server = dpfl.Server(GAUSSIAN, plan, D)
    for cohort in ("abc", "def"):
        server.begin_round(list(cohort))
        server.end_round()
    server = dpfl.Server(GAUSSIAN, plan, D, state=server.save())
    with refuses(ValueError, "participants", "f"):
        server.begin_round(list("fgh"))
    assert server.begin_round(list("ghi")).number == 3


def test_a_budget_ends_the_run():
    mechanism = dpfl.ProjectAndPerturb(10, 1.0, 0.0, compression_rate="auto")
    plan, d = dpfl.FixedSize(10, 10, 3), 30_000
    server = dpfl.Server(mechanism, plan, d, epsilon=2, delta=1e-4)
    assert server.mechanism.compression_rate > 2 and server.rounds_left == 3
    with refuses(ValueError, "compression_rate", "auto"):
        dpfl.encode(mechanism, np.zeros(d), b"")
    while server.rounds_left:
        now = server.begin_round(range(10))
        data = dpfl.encode(server.mechanism, np.ones(d), now.message)
        assert server.add(9, data)
        epsilon = server.end_round().epsilon
    assert 1.9 < epsilon == server.ledger.epsilon <= 2
    assert epsilon == dpfl.epsilon(server.mechanism, plan, d, 1e-4)
    with refuses(ValueError, "rounds", 4):
        server.begin_round(range(10))
    with refuses(ValueError, "epsilon", -1):
        dpfl.Server(mechanism, plan, d, epsilon=-1)


def test_lost_releases_are_charged_and_shorten_the_run(tmp_path, monkeypatch):
    """Killed after releases that no state has, and within one."""
    # Cohorts so large that none is drawn twice, for which the ledger charges more.
    plan = dpfl.PoissonSampling(200, 20, 8)
    run = {"epsilon": 20, "path": tmp_path / "ledger.jsonl"}

    def resumed(state):
        mechanism = dataclasses.replace(GAUSSIAN, cohort_size=20)
        return dpfl.Server(mechanism, plan, D, state=state, **run)

    server = resumed(None)
    done(server)
    state = server.save()
    for _ in range(2):
        done(server)
    server = resumed(state)
    assert server.ledger.rounds == 1 and sum(server.ledger.again) == 2
    assert server.ledger.epsilon == server.ledger.cost.epsilon_after(3)
    with monkeypatch.context() as patched:
        patched.setattr(server._codec, "decode", lambda received: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            done(server)
    server = resumed(state)
    assert sum(server.ledger.again) == 3 and server.rounds_left == 4
    for left in (3, 2, 1, 0):
        epsilon = done(server).epsilon
        assert server.rounds_left == left
    assert 19 < epsilon <= 20
    with refuses(ValueError, "rounds", 6):
        server.begin_round()
    (tmp_path / "ledger.jsonl").unlink()
    with refuses(ValueError, "path", 0):
        resumed(state)


def sums_of(server, now, part):
    total = collections.Counter()
    for client in part:
        update = update_of(client)
        sent = dpfl.encode_integers(server.mechanism, update, now.message, client)
        for name, array in sent.items():
            assert array.dtype.kind == "i" and array.min() >= 0
            assert array.max() < 2 ** server.modulus_bits[name]
            total[name] = total[name] + array.astype(np.int64)
    return total


# Helpers' noise is not in the sum of clients.
SECURE = [
    name
    for name, each in MECHANISMS.items()
    if each.sums_securely and name != "ddg_helpers"
]


@pytest.mark.parametrize("name", SECURE)
def test_an_own_sum_is_that_of_its_messages(name):
    one, two = begun(name, seed=4), begun(name, seed=4)
    now = one.begin_round()
    assert two.begin_round() == now
    for client in now.clients:
        data = dpfl.encode(one.mechanism, update_of(client), now.message, client)
        assert one.add(client, data)
    total = sums_of(two, now, now.clients)
    modulus = {name: 1 << bits for name, bits in two.modulus_bits.items()}
    # Any residue will do.
    two.add_sum({name: total[name] - 3 * modulus[name] for name in total}, clients=3)
    found, wanted = two.end_round(), one.end_round()
    assert_array_equal(found.mean, wanted.mean)
    assert found[1:] == wanted[1:]


def test_sums_that_are_none_of_the_round_are_refused():
    server = begun("distributed_discrete_gaussian")
    right = {"update": np.zeros(D, np.uint64)}
    for call in (lambda: server.add_sum(right, 1), server.end_round):
        with refuses(ValueError, "round", "none"):
            call()
    message = server.begin_round().message
    for total, error in (
        ({"update": np.zeros(D)}, TypeError),
        ({"update": np.zeros(D - 1, np.int32)}, ValueError),
        ({}, ValueError),
    ):
        with refuses(error, "total"):
            server.add_sum(total, 3)
    # Two shares of noise are not enough.
    for clients in (0, 2, 4):
        with refuses(ValueError, "clients", clients):
            server.add_sum(right, clients)
    assert not server.ledger.rounds
    server.add_sum(right, 3)
    assert server.ledger.rounds == 1
    # A client's message beside the sum would be seen with its own share alone.
    with refuses(ValueError, "add_sum", 3):
        server.add_sum(right, 3)
    data = dpfl.encode(server.mechanism, np.zeros(D), message)
    assert not server.add(0, data)
    assert server.end_round().metrics["exact_refused_late"] == 1
    helped = begun("ddg_helpers")
    helped.begin_round()
    with refuses(ValueError, "noise_source", "helpers"):
        helped.add_sum(right, 3)
    trusting = begun("gaussian")
    message = trusting.begin_round().message
    with refuses(ValueError, "mechanism", "gaussian"):
        trusting.add_sum(right, 1)
    with refuses(ValueError, "mechanism", "gaussian"):
        dpfl.encode_integers(GAUSSIAN, np.zeros(D), message)


def test_an_opened_sum_of_a_given_up_round_is_charged():
    server = begun("distributed_discrete_gaussian")
    for _ in range(2):
        now = server.begin_round()
        server.add_sum(sums_of(server, now, now.clients), clients=3)
    resumed = begun("distributed_discrete_gaussian", state=server.save())
    for again in (server, resumed):
        now = again.begin_round()
        assert now.number == 1 and sum(again.ledger.again) == 2
    again.add_sum(sums_of(again, now, now.clients), clients=3)
    charged = again.ledger.cost.epsilon_after(3)
    assert again.end_round().epsilon == pytest.approx(charged, rel=1e-3)
