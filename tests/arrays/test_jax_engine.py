# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The engine of JAX, on made-up examples."""

import dataclasses
import importlib.util

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

if importlib.util.find_spec("tensorflow"):
    # The JAX beside TensorFlow Federated is too old.
    pytest.skip("runs in the environment with JAX", allow_module_level=True)

import jax
import jax.numpy as jnp

from dpfl.engines.jax import engine, networks
from dpfl.tasks import clients as clients_lib
from dpfl.tasks import registry
from dpfl.training import config as config_lib
from dpfl.training import engine as engine_lib
from dpfl.training import plan as plan_lib

SIZES = np.array([5, 0, 8, 3, 1])
CHOSEN = [0, 1, 2, 4]


def plan(mechanism="none", **changes):
    """A run's plan on five clients of different sizes, one of them without examples."""
    task_config = registry.make_config(
        "synthetic", model="small_cnn", num_clients=5, batch_size=3
    )
    settings = config_lib.RunConfig(
        **{"task": "synthetic", "task_config": task_config, "mechanism": mechanism},
        **{"mechanism_options": {}, "output_dir": "nowhere", "engine": "jax"},
        **{"rounds": 4, "cohort_size": 4, "server_lr": 1.0, "client_lr": 0.3}
        | {"server_momentum": 0.5, **changes},
    )
    made = plan_lib.make_plan(settings)
    own = made.task.clients.read(np.arange(2))
    total = SIZES.sum()
    arrays = clients_lib.ArrayClients(*(part[:total] for part in own), SIZES)
    return dataclasses.replace(
        made, task=dataclasses.replace(made.task, clients=arrays)
    )


def opened(made, tmp_path):
    setup = engine_lib.Setup(tmp_path, 7, 3, print, engine_lib.LastProcess())
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


def test_a_restored_state_goes_on_with_the_same_bits(tmp_path):
    made = plan("l2_csgm", noise_multiplier=0.0)
    with opened(made, tmp_path) as trainer:
        state = trainer.round(trainer.initialize(), CHOSEN).state
        again = trainer.from_leaves(trainer.leaves(state))
        # Another cohort, of the same program.
        ways = [trainer.round(each, [2, 3]).state for each in (state, again)]
        for one, two in zip(*map(trainer.leaves, ways)):
            assert_array_equal(one, two)
        assert not np.array_equal(
            trainer.weights(ways[0])[0], trainer.weights(state)[0]
        )
        with pytest.raises(ValueError):
            trainer.from_leaves(trainer.leaves(state)[1:])


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


def test_memory_of_the_device_bounds_clients_at_once():
    assert engine.clients_at_once(1, 7) == 7
    assert engine.clients_at_once(10**12, 7) == 1
