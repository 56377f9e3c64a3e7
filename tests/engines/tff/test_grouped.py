# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import collections
import copy
import functools

import attrs
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import aggregators, mechanisms
from dpfl.engines.tff import (
    connection,
    federated_averaging,
    grouped,
    local_training,
    process_state,
)
from dpfl.engines.tff import local_worker as worker_lib
from dpfl.training import engine, server_optimizers
from dpfl.vectors import canaries
from tests.refusals import refuses

CLIENTS = [5, 0, 3, 1, 4]
KEYS = {client: (7 * client + 1, 2**40 + client) for client in range(6)}
# A round of each that sums integers, and of one that does not.
MECHANISMS = {
    "l2_csgm": mechanisms.L2Csgm(5, 1.0, 0.5, 0.05),
    "distributed_discrete_gaussian": mechanisms.DistributedDiscreteGaussian(
        5, 1.0, 0.5, bits=12, adaptive_clipping=True, noise_source="helpers"
    ),
    "none": mechanisms.NoMechanism(5),
}


def build(task, name, groups, canary_length=None):
    """The computations, and those of the same factory for a client at a time."""
    return grouped.GroupedRounds(
        task,
        task.functional_model(0),
        aggregators.build(MECHANISMS[name], seed=5),
        *(0.1, server_optimizers.build_server_optimizer("sgd", 1.0), groups),
        canary_length,
    )


class OneAtATime:
    """Federated averaging with one client each, as other people's TFF code has it."""

    def __init__(self, task, name):
        factory = aggregators.build(MECHANISMS[name], seed=5)
        optimizer = server_optimizers.build_server_optimizer("sgd", 1.0)
        self._model = model = task.functional_model(0)
        weights_type = process_state.type_of_weights(model)

        @tff.tensorflow.computation(weights_type, np.int64, (np.int64, [3]))
        def work(weights, round_index, client):
            initial = (tuple(weights.trainable), tuple(weights.non_trainable))
            trained = local_training.train(
                task, model, initial, client[0], round_index, 0.1
            )
            value = collections.OrderedDict(
                update=trained.update, client_key=client[1:]
            )
            return value, trained.metrics

        value_type, metrics_type = work.type_signature.result
        aggregation = factory.create(value_type)
        self._first, self._optimizer = aggregation.initialize, optimizer
        own_type = self._first.type_signature.result.member
        state_type = process_state.state_type(model, optimizer, own_type)
        has_metrics = not MECHANISMS[name].sums_securely

        @tff.tensorflow.computation(metrics_type)
        def finalize(metrics):
            return collections.OrderedDict(model.finalize_metrics(metrics))

        @tff.tensorflow.computation(
            state_type, own_type, process_state.type_of_weights(model)["trainable"]
        )
        def step(state, own, update):
            return process_state.stepped(optimizer, state, own, update)

        @tff.federated_computation(
            tff.FederatedType(state_type, tff.SERVER),
            tff.FederatedType((np.int64, [3]), tff.CLIENTS),
        )
        def next_fn(state, client):
            given = map(tff.federated_broadcast, (state.weights, state.round_index))
            value, metrics = tff.federated_map(work, (*given, client))
            made = aggregation.next(state.aggregator, value)
            none = tff.federated_value(collections.OrderedDict(), tff.SERVER)
            summed = tff.federated_map(finalize, tff.federated_sum(metrics))
            return engine.RoundOutput(
                tff.federated_map(step, (state, made.state, made.result)),
                summed if has_metrics else none,
                made.measurements,
            )

        self._next = next_fn

    def initialize(self):
        return process_state.first_state(self._model, self._optimizer, self._first())

    def next(self, state, clients):
        return self._next(state, [np.array([c, *KEYS[c]]) for c in clients])


@pytest.fixture(scope="module", autouse=True)
def forgotten():
    """Graphs end before the interpreter does."""
    yield
    built_for.cache_clear()
    alone.cache_clear()


@functools.cache
def built_for(task, name):
    """Computations, which are the same for any number of groups."""
    return build(task, name, 2)


def process(task, name, groups):
    rounds = copy.copy(built_for(task, name))
    rounds.groups = groups
    return federated_averaging.GroupedProcess(
        rounds, lambda state: state, KEYS.__getitem__
    )


@functools.cache
def alone(task, name):
    return OneAtATime(task, name)


@functools.cache
def one_at_a_time(task, name):
    return two_rounds(alone(task, name))


def two_rounds(training):
    first = training.next(training.initialize(), CLIENTS)
    return first, training.next(first.state, [2, 3, 0, 4, 1])


def bits(outputs):
    return [np.asarray(x).tobytes() for x in tf.nest.flatten(outputs)]


@pytest.mark.parametrize(
    "name, groups", [("l2_csgm", 1), ("distributed_discrete_gaussian", 7)]
)
def test_integer_sums_leave_the_same_bits(task, tff_secure_context, name, groups):
    """Model, state, measurements and metrics; seven groups leave some empty."""
    found = two_rounds(process(task, name, groups))
    secure = MECHANISMS[name].sums_securely
    assert found[0].aggregator.get("exact_clients", 5 * secure) == 5
    assert bits(found) == bits(one_at_a_time(task, name))


def test_canaries_send_their_directions(task, tff_context):
    """Their indices are behind those of the six clients, one of which trains too."""
    rounds = build(task, "none", 2, canary_length=3.0)
    training = federated_averaging.GroupedProcess(
        rounds, lambda state: state, lambda client: (client, 77)
    )
    found = []
    for clients in ([1], [1, 6, 7, 8, 9]):
        output = training.next(training.initialize(), clients)
        moved = np.concatenate([np.ravel(part) for part in output.released])
        found.append(moved * len(clients))
    keys = [np.array([client, 77]) for client in clients[1:]]
    expected = sum(canaries.update(key, len(found[0]), 3.0) for key in keys)
    assert np.any(expected)
    np.testing.assert_allclose(found[1] - found[0], expected, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2])
def test_float_sums_differ_only_in_last_bits(task, tff_context, groups):
    found = two_rounds(process(task, "none", groups))
    expected = one_at_a_time(task, "none")
    for a, b in zip(tf.nest.flatten(found), tf.nest.flatten(expected)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    if groups == 1:
        # One group adds up in the order of one client after the other.
        assert bits(found) == bits(expected)


def test_threads_and_workers_leave_the_same_bits(task, tff_secure_context):
    once = bits(one_at_a_time(task, "l2_csgm"))
    for settings in ({"groups": True}, {}):
        with worker_lib.start(concurrency=3, **settings):
            assert bits(two_rounds(process(task, "l2_csgm", 3))) == once


def test_a_state_beyond_a_message_is_refused(task, monkeypatch):
    state = process(task, "none", 2).initialize()
    size = sum(np.asarray(leaf).nbytes for leaf in tf.nest.flatten(state))
    monkeypatch.setattr(connection, "MESSAGE_BYTES", size)
    with refuses(engine.NotEnoughMemoryError, "--engine=jax"):
        build(task, "none", 2)
    monkeypatch.setattr(connection, "MESSAGE_BYTES", size + 1)
    build(task, "none", 2)
    # With canaries the release comes back beside it.
    with refuses(engine.NotEnoughMemoryError, "--engine=jax"):
        build(task, "none", 2, canary_length=1.0)


def test_empty_cohort_releases_noise_alone(task, tff_context):
    trainings = [process(task, "l2_csgm", 2), alone(task, "l2_csgm")]
    found = [training.next(training.initialize(), []) for training in trainings]
    assert found[0].aggregator["exact_clients"] == 0
    assert bits(found[0]) == bits(found[1])
    first = trainings[1].initialize().weights.trainable
    pairs = zip(first, found[0].state.weights.trainable)
    step = np.concatenate([(before - after).ravel() for before, after in pairs])
    # sigma / (n gamma) = z C / n.
    assert np.std(step) == pytest.approx(0.5 / 5, rel=0.03)


def test_nonfinite_client_is_counted_in_its_group(task, tff_context):
    state = process(task, "l2_csgm", 2).initialize()
    huge = tuple(np.full_like(w, 1e30) for w in state.weights.trainable)
    weights = type(state.weights)(huge, state.weights.non_trainable)
    state = attrs.evolve(state, weights=weights)
    trainings = [process(task, "l2_csgm", 2), alone(task, "l2_csgm")]
    outputs = [training.next(state, CLIENTS) for training in trainings]
    assert outputs[0].aggregator["exact_nonfinite_clients"] == 5
    assert bits(outputs[0]) == bits(outputs[1])


def rows_of(values):
    made = grouped.ScalarRows()
    rows = []
    for place, (a, n) in enumerate(values):
        b = tf.constant([n, 2 * n], tf.int64)
        scalars = collections.OrderedDict(a=tf.constant(a, tf.float32), b=b)
        rows.append(made.row(tf.constant(place, tf.int64), scalars))
    return made, tf.stack(rows)


def test_sums_keep_dtype_and_cohort_order():
    """Of 301 numbers whose sum in float32 depends on the order."""
    numbers = np.random.default_rng(0).lognormal(0, 4, 301).astype(np.float32)
    made, rows = rows_of([(a, i) for i, a in enumerate(numbers)])
    expected = np.float32(0)
    for a in numbers:
        expected += a
    assert expected != np.sum(numbers[::-1].astype(np.float64)).astype(np.float32)
    for order in (np.arange(301), np.random.default_rng(1).permutation(301)):
        total = made.total(tf.gather(rows, order))
        assert total["a"].dtype == tf.float32 and total["b"].dtype == tf.int64
        assert total["a"].numpy() == expected
        np.testing.assert_array_equal(total["b"], [45150, 90300])
