# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The engine of JAX, on made-up examples."""

import dataclasses
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpfl.engines.jax import engine, local_training, networks, rounds
from dpfl.tasks import clients as clients_lib
from dpfl.tasks import metrics, models, registry
from dpfl.tasks.networks import Dense, Flatten, Network
from dpfl.tasks.task import JaxParts
from dpfl.training import config as config_lib
from dpfl.training import engine as engine_lib
from dpfl.training import plan as plan_lib
from dpfl.training import selection
from dpfl.vectors import canaries
from experiments.benchmarks import jax_rounds, peers

SIZES = np.array([5, 0, 8, 3, 1])
CHOSEN = [0, 1, 2, 4]


# Convolutions take long to compile.
NETWORK = Network((28, 28, 1), np.float32, (Flatten(), Dense(8, "relu"), Dense(10)))


def plan(mechanism="none", **changes):
    """A run's plan on five clients of different sizes, one of them without examples."""
    task_config = registry.make_config(
        "synthetic", model="small_cnn", num_clients=5, batch_size=3
    )
    settings = config_lib.RunConfig(
        **{"task": "synthetic", "task_config": task_config, "mechanism": mechanism},
        **{"mechanism_options": {}, "engine": "jax", "cohort_size": 4},
        **{"server_lr": 1.0, "client_lr": 0.3, "server_momentum": 0.5}
        | {"output_dir": "nowhere", "rounds": 4, **changes},
    )
    made = plan_lib.make_plan(settings)
    own = made.task.clients.read(np.arange(2))
    total = SIZES.sum()
    arrays = clients_lib.ArrayClients(*(part[:total] for part in own), SIZES)
    task = dataclasses.replace(made.task, clients=arrays, network=NETWORK)
    return dataclasses.replace(made, task=task)


def opened(made, tmp_path, last=None, seeds=(7, 3)):
    setup = engine_lib.Setup(tmp_path, *seeds, print, last or engine_lib.LastProcess())
    return engine_lib.opened("jax", made, setup)


def reference(made, weights, client, round_index):
    """A client's update, a batch after the other."""
    task = made.task
    [order] = clients_lib.local_orders(
        task.clients.sizes, np.array([client]), round_index, task.config
    )
    x, y = (part[order] for part in task.clients.read(np.array([client])))

    def loss(own, x, y):
        logits = networks.apply(task.network, own, x)
        return -jnp.mean(
            jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], -1)
        )

    own = weights
    with jax.default_matmul_precision("highest"):
        for begin in range(0, len(order), task.config.batch_size):
            rows = slice(begin, begin + task.config.batch_size)
            slopes = jax.grad(loss)(own, x[rows], y[rows])
            own = [w - made.client_lr * g for w, g in zip(own, slopes)]
    return [old - new for old, new in zip(weights, own)]


@pytest.mark.parametrize(("at_once", "weighted"), [(1, False), (3, True)])
def test_rounds_are_those_of_one_client_after_the_other(tmp_path, at_once, weighted):
    made = plan(clients_at_once=at_once, weighted=weighted)
    with opened(made, tmp_path) as trainer:
        state = trainer.initialize()
        first = trainer.weights(state)
        assert_array_equal(first[0], made.task.network.initial_weights(3)[0])
        output = trainer.round(state, CHOSEN)
        each = [reference(made, first, client, 0) for client in CHOSEN]
        shares = SIZES[CHOSEN] / SIZES[CHOSEN].sum() if weighted else np.full(4, 0.25)
        moves = [np.tensordot(shares, parts, 1) for parts in zip(*each)]
        for new, old, move in zip(trainer.weights(output.state), first, moves):
            assert_allclose(new, old - move, atol=2e-6)
        assert output.aggregator["exact_clients"] == 4
        assert list(output.train) == ["loss", "accuracy"]
        evaluated = trainer.evaluate(output.state, True)
        x, y = made.task.test_examples()
        logits = networks.apply(made.task.network, trainer.weights(output.state), x)
        assert evaluated["accuracy"] == pytest.approx(np.mean(logits.argmax(-1) == y))
        assert trainer.evaluate(state, False) == {"loss": None, "accuracy": None}


def test_canaries_send_their_directions_at_the_clip(tmp_path):
    made = plan("gaussian", noise_multiplier=0.0, canaries=100, client_lr=1e-6)
    with opened(made, tmp_path) as trainer:
        # Their places are behind the five clients.
        output = trainer.round(trainer.initialize(), [1, 3, 7, 50, 104])
        keys = [selection.client_key(7, client) for client in (7, 50, 104)]
    d, clip = made.dimension, made.mechanism.clip_norm
    expected = sum(canaries.update(key, d, clip / 4) for key in keys)
    found = np.concatenate([np.ravel(part) for part in output.released])
    assert 0 < sum(map(canaries.is_in, keys))
    assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())


# Sums of floats, and of integers with masks that follow from a client's place.
OF_DEVICES = [({"mechanism": "none"}, (1, 4))]
OF_DEVICES += [({"mechanism": "l2_csgm", "noise_multiplier": 0.0}, (1, 4))]


@pytest.mark.parametrize("changes, numbers", OF_DEVICES, ids=["floats", "integers"])
def test_any_number_of_devices_gives_the_same_bits(
    tmp_path, monkeypatch, changes, numbers
):
    made = plan(clients_at_once=1, **changes)
    devices, found = jax.devices(), []
    for number in numbers:
        monkeypatch.setattr(jax, "devices", lambda number=number: devices[:number])
        with opened(made, tmp_path) as trainer:
            output = trainer.round(trainer.initialize(), CHOSEN)
            leaves = trainer.leaves(output.state)
            found.append([*leaves, *output.train.values()])
    for other in found[1:]:
        for one, two in zip(found[0], other):
            assert_array_equal(one, two)


def test_a_restored_state_goes_on_with_the_same_bits(tmp_path):
    made, last = plan("l2_csgm", noise_multiplier=0.0), engine_lib.LastProcess()
    with opened(made, tmp_path, last) as trainer:
        state = trainer.round(trainer.initialize(), CHOSEN).state
        again = trainer.from_leaves(trainer.leaves(state))
        # Another cohort, of the same program.
        ways = [trainer.round(each, [2, 3]).state for each in (state, again)]
        for one, two in zip(*map(trainer.leaves, ways)):
            assert_array_equal(one, two)
        assert not np.array_equal(
            trainer.weights(ways[0])[0], trainer.weights(state)[0]
        )
        nobody = trainer.round(state, [])
        assert nobody.aggregator["exact_clients"] == nobody.train["accuracy"] == 0
        with pytest.raises(ValueError):
            trainer.from_leaves(trainer.leaves(state)[1:])
    # A run with other seeds is another run, and compiles nothing.
    with opened(made, tmp_path, last, seeds=(8, 3)) as other:
        first = other.initialize()
        assert_array_equal(*(e.weights(e.initialize())[0] for e in (trainer, other)))
        assert not np.array_equal(
            other.weights(other.round(first, CHOSEN).state)[0],
            trainer.weights(state)[0],
        )
        assert other._rounds.compilations == 1
    with opened(plan("l2_csgm", noise_multiplier=1.0), tmp_path, last) as third:
        assert third._rounds is not trainer._rounds


def test_a_repeated_round_of_a_card_has_other_noise(monkeypatch, tmp_path):
    """Except with a given seed; and nothing is shown that may be repeated."""
    on_a_card = engine_lib.About({"device": "a card"}, False)
    monkeypatch.setattr(engine_lib, "about", lambda plan: on_a_card)
    # Where examples are copied for each round.
    monkeypatch.setattr(engine, "_RESIDENT_BYTES", 0)
    made = plan("gaussian", noise_multiplier=1.0, checkpoint_every=3)
    assert [made.is_shown(number) for number in (1, 2, 3)] == [True, False, True]
    with opened(made, tmp_path) as trainer:
        state = trainer.from_leaves(trainer.leaves(trainer.initialize()))
        results = [trainer.round(state, CHOSEN).state for _ in range(2)]
        first, second = (trainer.weights(each)[0] for each in results)
        # Of independent draws, in each coordinate.
        assert np.mean(first == second) < 0.1
        for clients in ([2], [], [0, 1, 2, 3, 4]):
            trainer.round(state, clients)
        # Cohorts of any size are one program.
        assert trainer._rounds.compilations == 1
    given = plan("gaussian", noise_multiplier=1.0, seed=5)
    with opened(given, tmp_path) as trainer:
        states = state.aggregator, trainer.initialize().aggregator
        assert ["seed" in each for each in states] == [False, True]


def test_options_of_the_same_bits_are_known_to_the_compiler():
    for options in engine._SAME_BITS.values():
        assert jax.jit(lambda x: x + 1, compiler_options=options)(1) == 2


def test_waiting_for_others_changes_no_client():
    """A model whose gradient at zeros is NaN: others decide how many such steps are."""
    model = JaxParts(
        lambda seed: jnp.ones([2, 2]),
        lambda w, x, key: x / jnp.linalg.norm(x, axis=-1, keepdims=True) @ w,
    )

    def batches(step):
        there = step < jnp.array([1, 3])
        x = jnp.where(there[:, None, None], jnp.ones([2, 1, 2]), 0)
        return local_training.Batch(x, jnp.ones([2, 1], jnp.int32), there[:, None])

    keys = jax.random.split(jax.random.key(0), 2)
    settings, found = {"client_lr": 0.1, "keys": keys}, []
    for steps in (1, 3):
        update, sums = local_training.train(
            *(model, metrics.Objective(), model.init(0), batches, jnp.int32(steps)),
            **settings,
        )
        own = [update[0], *(part[0] for part in sums["loss"])]
        assert np.isfinite(update).all() and own[2] == 1
        found.append(own)
    for one, two in zip(*found):
        assert_array_equal(one, two)


def test_a_client_that_diverges_spoils_nothing(tmp_path):
    made = plan()
    x = made.task.clients.x.copy()
    # The first row stands in for those that other clients do not have.
    x[0] = np.nan
    spoiled = dataclasses.replace(made.task.clients, x=x)
    made = dataclasses.replace(
        made, task=dataclasses.replace(made.task, clients=spoiled)
    )
    with opened(made, tmp_path) as trainer:
        output = trainer.round(trainer.initialize(), CHOSEN)
        assert output.aggregator["exact_nonfinite_clients"] == 1
        assert all(np.isfinite(part).all() for part in trainer.weights(output.state))
        assert np.isfinite(output.train["loss"])


def test_settings_without_effect_cost_a_sentence_each(tmp_path, capsys):
    for changes, names_of in (
        ({}, []),
        ({"profile": True, "precision": "tf32"}, ["precision", "profile"]),
    ):
        with opened(plan(**changes), tmp_path):
            pass
        said = capsys.readouterr().out.splitlines()
        assert [line.partition(":")[0] for line in said] == names_of


def test_threads_and_settings_of_jax_decide_last_bits(monkeypatch):
    made = plan()
    found = engine.about(made)
    # Devices of a processor are four in these tests.
    assert found.last_bits["threads"] == max(4, len(os.sched_getaffinity(0)))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    flags = os.environ["XLA_FLAGS"]
    monkeypatch.setenv("XLA_FLAGS", f"--xla_force_host_platform_device_count=2 {flags}")
    assert engine.about(made) == found
    for name, value in (
        *(("JAX_THREEFRY_PARTITIONABLE", "0"), ("XLA_FLAGS", "--xla_x")),
        *(("NPROC", "1"), ("PJRT_NPROC", "3"), ("ONEDNN_MAX_CPU_ISA", "AVX2")),
        ("DNNL_MAX_CPU_ISA", "AVX2"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert engine.about(made).last_bits == {**found.last_bits, name: value}


def test_memory_that_is_foretold_is_of_the_clients_at_once():
    one, three = (plan(clients_at_once=number) for number in (1, 3))
    own = one.memory - plan_lib._BASE_BYTES
    # Weights, gradient, update and vectors at the least.
    assert own > 16 * one.dimension
    assert three.memory - one.memory == 2 * 128 * one.dimension


def test_memory_of_the_device_bounds_clients_at_once():
    assert engine.clients_at_once(1, 7) == 7
    assert engine.clients_at_once(10**12, 7) == 1
    # Two chunks suffice for most cohorts of 50, and for all of exactly 64.
    assert engine.clients_at_once(2**14, 50, varies=True) == 32
    assert engine.clients_at_once(2**14, 64) == 32
    # Chunks of equal size.
    assert engine.clients_at_once(2**14, 36) == 18


def test_a_round_is_prepared_while_another_computes(tmp_path, monkeypatch):
    made, prepared = plan(participation="fixed"), []
    with opened(made, tmp_path) as trainer:
        given = trainer._given
        monkeypatch.setattr(
            trainer, "_given", lambda i, c: (prepared.append(i), given(i, c))[1]
        )
        first = trainer.initialize()
        cohorts = [
            selection.select_cohort(made.participation, trainer.key, i)
            for i in range(2)
        ]
        state = trainer.round(first, cohorts[0]).state
        ahead = trainer.round(state, cohorts[1]).state
        assert prepared == [0, 1, 2]
        # The prepared round was used; another cohort, or none, is prepared anew.
        alone = trainer.round(trainer.from_leaves(trainer.leaves(state)), cohorts[1])
        assert prepared == [0, 1, 2, 1, 2]
        for one, two in zip(*map(trainer.leaves, (ahead, alone.state))):
            assert_array_equal(one, two)


def test_memory_does_not_grow_with_the_cohort(tmp_path, monkeypatch):
    made = plan(clients_at_once=2)
    sizes = []
    with opened(made, tmp_path) as trainer:
        state = trainer.initialize()
        for cohort in (CHOSEN, 100 * CHOSEN):
            trainer.round(state, cohort)
            used = trainer._rounds._program.memory_analysis()
            sizes.append(used.temp_size_in_bytes)
        assert trainer._rounds.compilations == 2
        # A client's update takes more.
        assert sizes[1] - sizes[0] < 400 * made.dimension
        # A secret cohort refuses nothing later.
        monkeypatch.setattr(rounds.machine, "free_memory", lambda: 1000)
        trainer.round(state, 200 * CHOSEN)
    with opened(made, tmp_path) as trainer:
        with pytest.raises(engine_lib.NotEnoughMemoryError) as info:
            trainer.round(state, CHOSEN)
        assert "0.0 GB" in str(info.value)


def test_benchmarked_rounds_have_a_run_and_a_floor():
    work = peers.RoundWork("small_cnn", 2, 3, 1, 2, ["none"])
    found = peers.measured("dpfl_jax", work)
    own, run, floor = found.values()
    assert own["parameters"] == 15_994 and own["examples"] == 6
    assert 0 < own["seconds"] < own["first_seconds"]
    assert 0 < floor["seconds"] < run["seconds"] < 60


def test_bytes_of_a_step_are_those_of_weights_and_patches():
    network = models.cnn(62)
    weights, first, second = 1_018_174, 26 * 26 * 9, 11 * 11 * 9 * 32
    assert jax_rounds.moved_bytes(network, 2) == 4 * (
        6 * weights + 2 * (3 * first + 5 * second)
    )
