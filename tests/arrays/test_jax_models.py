# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Models of one's own in the engine of JAX, their files, precisions and traces."""

import dataclasses
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dpfl
from dpfl.engines.jax import networks
from dpfl.tasks.networks import Dense, Dropout, Flatten, Network
from dpfl.tasks.task import JaxParts
from tests.arrays.test_jax_engine import CHOSEN, NETWORK, opened, plan
from tests.refusals import refuses

ROOT = Path(__file__).resolve().parents[2]


def with_model(made, **model):
    nothing = {"network": None, "keras": None, "jax": None}
    task = dataclasses.replace(made.task, **{**nothing, **model})
    return dataclasses.replace(made, task=task)


def nested(seed):
    """The network's weights in a tree, whose order is another."""
    kernel, bias, *last = map(jnp.asarray, NETWORK.initial_weights(seed))
    return {"b": {"w": kernel, "c": bias}, "a": [jnp.zeros([0]), tuple(last)]}


def apply_nested(params, x, key):
    first, [_, last] = params["b"], params["a"]
    return networks.apply(NETWORK, [first["w"], first["c"], *last], x, key)


OWN = JaxParts(nested, apply_nested)


def test_functions_of_ones_own_train_as_the_network_they_compute(tmp_path):
    made = plan("none")
    found = []
    for model in ({"network": NETWORK}, {"jax": OWN}):
        own = with_model(made, **model)
        assert own.dimension == NETWORK.dimension == 6370
        with opened(own, tmp_path) as trainer:
            output = trainer.round(trainer.initialize(), CHOSEN)
            trainer.save_model(output.state, tmp_path)
            with np.load(tmp_path / "model.npz") as saved:
                arrays = dict(saved)
            evaluated = trainer.evaluate(output.state, True)
            found.append((output, evaluated, list(arrays)))
            for one, two in zip(arrays.values(), trainer.weights(output.state)):
                assert_array_equal(one, two)
            again = trainer.from_leaves(trainer.leaves(output.state))
            assert jax.tree.structure(again) == jax.tree.structure(output.state)
    (network, evaluated, names), (other, others, own_names) = found
    layers = ["dense/kernel", "dense/bias"] * 2
    assert names == [f"{i}_{name}" for i, name in enumerate(layers)]
    assert own_names == ["0_a/0", "1_a/1/0", "2_a/1/1", "3_b/c", "4_b/w"]
    params = other.state.params
    mine = [params["b"]["w"], params["b"]["c"], *params["a"][1]]
    for one, two in zip(network.state.params, mine):
        assert_allclose(one, two, atol=1e-6)
    for one, two in ((network.train, other.train), (evaluated, others)):
        assert one == pytest.approx(two, rel=1e-5)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.int32])
def test_parameters_of_other_types_are_refused(dtype):
    own = JaxParts(lambda seed: {"w": jnp.zeros([3], dtype)}, apply_nested)
    with refuses(TypeError, "w", jnp.dtype(dtype).name):
        _ = with_model(plan(), jax=own).dimension


def test_documented_lines_run(tmp_path, monkeypatch):
    """Those of the page that only JAX's environment can run."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/tasks.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(python|text)\n(.*?)^```$", page, re.M | re.S)
    names = {"np": np, "dpfl": dpfl}
    chosen = [
        code
        for language, code in blocks
        if "def load(config)" in code or (language == "text" and "jax" in code)
    ]
    assert len(chosen) == 5
    for code in chosen:
        if "Net()" in code:
            # Flax is not here.
            continue
        if "networks.apply" in code:
            np.savez("model.npz", *names["points"].network.initial_weights(0))
        elif "unflatten" in code:
            np.savez("model.npz", *jax.tree.leaves(names["init"](0)))
        exec(code, names)
    assert names["logits"].shape == (1, 2)
    assert names["with_jax"].dimension == 6 and names["with_jax"].engines == ("jax",)
    assert names["params"]["dense"]["kernel"].shape == (2, 2)


def test_dropout_follows_from_the_keys_of_clients(tmp_path):
    """The same in another process of the run, and another in each round."""
    layers = (Flatten(), Dropout(0.5), Dense(10))
    made = plan("none", server_lr=1e-9, server_momentum=0.0)
    # In the stored order, so that rounds differ by their keys alone.
    config = dataclasses.replace(made.task.config, shuffle_seed=None)
    network = Network((28, 28, 1), np.float32, layers)
    made = with_model(made, network=network, config=config)
    found = []
    for _ in range(2):
        with opened(made, tmp_path) as trainer:
            state = trainer.initialize()
            for _ in range(2):
                output = trainer.round(state, [2])
                state = output.state
                found.append(output.train["loss"])
    assert found[:2] == found[2:] and abs(found[0] - found[1]) > 1e-3
    assert made.task.draws_in_training and made.about.repeats_rounds


def products(lowered):
    return [line for line in lowered.as_text().splitlines() if "dot_general" in line]


def count(lines, word):
    return sum(word in line for line in lines)


# A flag's value, and how its products of training are lowered.
LOWERED = {
    "float32": "precision = [HIGHEST, HIGHEST]",
    "tf32": "precision = [HIGH, HIGH]",
    "bfloat16": "bf16",
}


@pytest.mark.parametrize("precision", LOWERED)
def test_precision_is_for_local_training_alone(tmp_path, precision):
    """A card would take TF32 by itself, as a program of the user's may ask for."""
    made = plan("l2_csgm", noise_multiplier=0.0, precision=precision)
    with opened(made, tmp_path) as trainer, jax.default_matmul_precision("bfloat16"):
        state, rounds = trainer.initialize(), trainer._rounds
        cohort = rounds.cohort([np.arange(4)] * 4, [(1, 2)] * 4)
        examples = trainer._resident
        whole = products(rounds.next.lower(state, examples, cohort))
        updates, _ = jax.eval_shape(
            rounds._trained, state, examples, cohort, jnp.arange(4)
        )
        zeros = jax.tree.map(lambda leaf: jnp.zeros([4, *leaf.shape]), state.params)
        update = jax.jit(dpfl.jax_aggregator(made.mechanism, state.params).update)
        codec = products(update.lower(state.aggregator, zeros))
        tests = products(
            trainer._evaluator._total.lower(state.params, trainer._evaluator._examples)
        )
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(updates))
    highest = LOWERED["float32"]
    assert len(codec) == count(codec, highest) > 0
    assert len(tests) == count(tests, highest) > 0
    assert count(whole + codec + tests, "f64") == count(codec, "f64") * 2
    trained = len(whole) - len(codec)
    assert trained > 0
    if precision != "float32":
        assert count(whole, LOWERED[precision]) == trained
        assert count(whole, highest) == len(codec)
    assert count(whole, "bf16") == (trained if precision == "bfloat16" else 0)


def test_bfloat16_trains_float32_weights_and_rounds_are_traced(tmp_path):
    made = plan(precision="bfloat16", profile=True, client_lr=0.01, server_momentum=0.0)
    made = with_model(made, network=NETWORK)
    losses = []
    with opened(made, tmp_path) as trainer:
        state = trainer.initialize()
        for _ in range(6):
            state, train, *_ = trainer.round(state, CHOSEN)
            losses.append(train["loss"])
        first = NETWORK.initial_weights(3)
        moved = trainer.weights(state)[0] - first[0]
    assert losses[-1] < losses[0] - 0.1
    # Steps that bfloat16 could not add to a weight.
    is_small = np.abs(moved) < np.abs(first[0]) * 2**-9
    assert moved.dtype == np.float32 and np.any(moved[is_small])
    assert list(tmp_path.glob("profile/plugins/profile/*/*.xplane.pb"))
