# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import aggregators, mechanisms
from dpfl.engines.tff import federated_averaging, grouped, process_state
from dpfl.engines.tff import local_training as local
from dpfl.tasks.clients import ArrayClients
from dpfl.tasks.task import KerasParts
from dpfl.training import server_optimizers
from tests.refusals import refuses

LR = 0.1


def rounds_of(task, aggregator, optimizer=("sgd", 1.0), model_seed=0):
    optimizer = server_optimizers.build_server_optimizer(*optimizer)
    model = task.functional_model(model_seed)
    return grouped.GroupedRounds(task, model, aggregator, LR, optimizer, 2)


def plain(**options):
    return aggregators.build(mechanisms.NoMechanism(3), seed=5, **options)


def process_of(rounds, put_noise=lambda state: state, key=lambda client: (0, client)):
    return federated_averaging.GroupedProcess(rounds, put_noise, key)


def csgm(seed=5):
    mechanism = mechanisms.L2Csgm(3, 1.0, 0.5, 0.05)
    return aggregators.build(mechanism, seed=seed)


@pytest.fixture(scope="module")
def sparse(task):
    """A process that any test may begin afresh: what it knows is all in its state."""
    return process_of(rounds_of(task, csgm()))


def local_training(task, weights, index, round_index):
    """A client's update and mean loss, written out with Keras."""
    model, loss = task.build_keras_model(0), task.loss()
    for variable, weight in zip(model.trainable_variables, weights):
        variable.assign(weight)
    sizes, losses = [], []
    for x, y in task.dataset_from_index(index, round_index):
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        for variable, gradient in zip(model.trainable_variables, gradients):
            variable.assign_sub(LR * gradient)
        sizes.append(len(y))
        losses.append(float(value))
    update = [w - v.numpy() for w, v in zip(weights, model.trainable_variables)]
    return update, sizes, losses


def same_bits(a, b):
    return all(
        np.asarray(x).tobytes() == np.asarray(y).tobytes()
        for x, y in zip(tf.nest.flatten(a), tf.nest.flatten(b))
    )


@pytest.mark.parametrize("measure", ["exact_for_simulation", None])
def test_secure_sums_have_no_unsecured_aggregation(task, tff_context, measure):
    config = mechanisms.TEST_CONFIGS["distributed_discrete_gaussian"]
    aggregator = aggregators.build(config, seed=5, measure=measure)
    rounds = rounds_of(task, aggregator)
    metrics = rounds.next.type_signature.result.member[1]
    if measure == "exact_for_simulation":
        with pytest.raises(AssertionError):
            tff.test.assert_not_contains_unsecure_aggregation(rounds.next)
        assert metrics
    else:
        tff.test.assert_not_contains_unsecure_aggregation(rounds.next)
        assert not metrics


def test_two_rounds_are_federated_averaging(task, tff_context):
    fedavg = process_of(rounds_of(task, plain(), ("sgd", 0.5, 0.9), 3))
    state = fedavg.initialize()
    model = task.build_keras_model(3)
    weights = [v.numpy() for v in model.trainable_variables]
    velocity = [0.0 for _ in weights]
    for round_index, clients in enumerate([[0, 2, 5], [1, 2]]):
        output = fedavg.next(state, clients)
        state = output.state
        results = [local_training(task, weights, c, round_index) for c in clients]
        updates = [result[0] for result in results]
        means = [np.mean(each, axis=0) for each in zip(*updates)]
        velocity = [0.9 * v + mean for v, mean in zip(velocity, means)]
        weights = [w - 0.5 * v for w, v in zip(weights, velocity)]
        for expected, found in zip(weights, state.weights.trainable):
            np.testing.assert_allclose(found, expected, atol=2e-6)
        sizes, losses = (np.concatenate([r[i] for r in results]) for i in (1, 2))
        mean_loss = np.average(losses, weights=sizes)
        assert output.train["loss"] == pytest.approx(mean_loss, rel=1e-5)
        assert state.round_index == round_index + 1


def test_weighted_mean_counts_examples(task, tff_context):
    """Client i has i + 1 batches of one example here."""
    x, y = (part[:1] for part in task.clients.read(np.array([0])))
    sizes = np.arange(1, task.population + 1)
    repeated = (np.repeat(part, sum(sizes), axis=0) for part in (x, y))
    uneven = dataclasses.replace(
        task,
        clients=ArrayClients(*repeated, sizes),
        config=dataclasses.replace(task.config, batch_size=1),
    )
    fedavg = process_of(rounds_of(uneven, plain(weighted=True)))
    state = fedavg.initialize()
    weights = list(state.weights.trainable)
    found = fedavg.next(state, [0, 3]).state.weights.trainable
    first, _, _ = local_training(uneven, weights, 0, 0)
    second, _, _ = local_training(uneven, weights, 3, 0)
    for w, a, b, f in zip(weights, first, second, found):
        np.testing.assert_allclose(f, w - (a + 4 * b) / 5, atol=2e-6)


def test_graphs_of_another_run_have_its_own_seed(task):
    rounds = rounds_of(task, csgm())
    other = rounds.with_other_seeds(task.functional_model(0), csgm(seed=6))
    first, then = (made.first_state().aggregator["seed"] for made in (rounds, other))
    assert not same_bits(first, then)


def test_client_key_determines_the_mask(task, tff_context):
    """Equal keys repeat a round; another key is another mask, with equal noise."""
    rounds = rounds_of(task, csgm())

    def released(keys):
        training = process_of(rounds, key=keys.__getitem__)
        return training.next(training.initialize(), [0, 1]).state.weights.trainable

    keys = [(1, 2), (3, 4)]
    once = released(keys)
    assert same_bits(once, released(list(keys)))
    assert not same_bits(once, released([(1, 2), (3, 5)]))
    assert not same_bits(once, released([(0, 2), (3, 4)]))


def test_a_round_can_be_replayed_from_its_state(sparse, tff_context):
    fedavg = sparse
    state = fedavg.next(fedavg.initialize(), [0, 1]).state
    leaves = fedavg.leaves(state)
    once = fedavg.next(state, [2, 3]).state
    restored = fedavg.from_leaves(leaves)
    assert same_bits(once, fedavg.next(restored, [2, 3]).state)
    assert not same_bits(once, fedavg.next(once, [2, 3]).state)
    with refuses(ValueError, "checkpoint"):
        fedavg.from_leaves(leaves[:-1])


def test_noise_is_put_into_the_state_before_each_round(sparse, tff_context):
    """A function that winds the mechanism's round back repeats its noise."""
    first = sparse.initialize()
    training = process_of(sparse._rounds, lambda state: first.aggregator)
    once = training.next(training.initialize(), [1])
    again = training.next(once.state, [1])
    assert same_bits(once.state.aggregator, again.state.aggregator)
    free = sparse.next(once.state, [1])
    assert not same_bits(once.state.aggregator, free.state.aggregator)


def test_adam_moves_as_far_as_its_rate(task, tff_context):
    fedavg = process_of(rounds_of(task, plain(), ("adam", 0.5, None)))
    first = fedavg.initialize()
    second = fedavg.next(first, [0]).state
    step = second.weights.trainable[0] - first.weights.trainable[0]
    assert np.max(np.abs(step)) == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize("wrong", [None, np.nan, np.inf])
def test_step_is_left_out_if_any_number_is_not_finite(wrong):
    weights = tff.learning.models.ModelWeights(
        (tf.constant([1.0, 2.0]), tf.constant([[3.0]])), ()
    )
    optimizer = server_optimizers.Sgd(0.5, 0.9)
    velocity = [tf.constant([10.0, 0.0]), tf.constant([[0.0]])]
    state = process_state.ProcessState(4, weights, None, {"velocity": velocity})
    update = (tf.constant([2.0, wrong or 4.0]), tf.constant([[6.0]]))
    after = process_state.stepped(optimizer, state, "new", update)
    assert (after.round_index, after.aggregator) == (5, "new")
    found = [*after.weights.trainable, *after.optimizer["velocity"]]
    expected = [[1.0, 2.0], [[3.0]], [10.0, 0.0], [[0.0]]]
    if wrong is None:
        expected = [[-4.5, 0.0], [[0.0]], [11.0, 4.0], [[6.0]]]
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_lean_dataset_keeps_the_batches(task):
    plain = list(task.dataset_from_index(2, 1))
    lean = list(local.lean_dataset(task.dataset_from_index(2, 1)))
    for (x, y), (u, v) in zip(plain, lean):
        np.testing.assert_array_equal(x, u)
        np.testing.assert_array_equal(y, v)
    assert len(plain) == len(lean) == 3


HOSTILE = [2e38, np.inf, np.nan]


def hostile_task(task):
    """A task of four clients for each of `HOSTILE`, which is the loss of two of them.

    They have one example each.
    """

    def build_model(seed):
        del seed
        layer = tf.keras.layers.Dense(2, kernel_initializer="identity")
        return tf.keras.Sequential([tf.keras.Input([1]), layer])

    rows = [[value, 1.0, value, 2.0] for value in HOSTILE]
    x = np.array(rows, np.float32).reshape([-1, 1])
    # The logits are x and 0.
    y = np.ones(len(x), np.int32)
    return dataclasses.replace(
        task,
        clients=ArrayClients(x, y, np.ones(len(x), np.int64)),
        network=None,
        keras=KerasParts(build_model, task.loss, task.metrics),
        input_spec=((1,), np.float32),
    )


def test_hostile_clients_leave_finite_sums(task, tff_context):
    """Two losses of 2e38 are finite, and their sum as float32 is not."""
    mechanism = mechanisms.Gaussian(4, 1.0, 0.0)
    factory, own = aggregators.build(mechanism, seed=5), hostile_task(task)
    training = process_of(rounds_of(own, factory))
    for number, value in enumerate(HOSTILE):
        output = training.next(
            training.initialize(), list(range(4 * number, 4 * number + 4))
        )
        assert all(np.isfinite(part).all() for part in training.weights(output.state))
        loss, accuracy = (float(output.train[name]) for name in ("loss", "accuracy"))
        honest = np.mean([np.log1p(np.exp(x)) for x in (1, 2)])
        expected = honest if not np.isfinite(value) else local.LARGEST_SUM / 2
        assert loss == pytest.approx(expected, rel=1e-4) and accuracy == 0
