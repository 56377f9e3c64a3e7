# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import collections
import dataclasses
import functools
import math

import attrs
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import aggregators, mechanisms
from dpfl.tasks import shared_array
from dpfl.training import federated_averaging, grouped, server_optimizers, shared_leaf
from dpfl.training import local_worker as worker_lib
from tests.refusals import refuses

CLIENTS = [5, 0, 3, 1, 4]
KEYS = {client: (7 * client + 1, 2**40 + client) for client in range(6)}
# A round of each that sums integers, and of one that does not.
MECHANISMS = {
    "l2_csgm": mechanisms.L2Csgm(5, 1.0, 0.5, 0.05),
    "distributed_discrete_gaussian": mechanisms.DistributedDiscreteGaussian(
        5, 1.0, 0.5, bits=12, adaptive_clipping=True, noise_source="helpers"
    ),
    "dome_ddg": mechanisms.DomeDdg(5, 1.0, 0.5, sketch_size=64, bits=12),
    "none": mechanisms.NoMechanism(5),
}


def build(task, name, groups, identity):
    return federated_averaging.build_process(
        task,
        aggregators.build(MECHANISMS[name], seed=5),
        client_lr=0.1,
        server_optimizer=server_optimizers.build_server_optimizer("sgd", 1.0),
        identity=identity,
        groups=groups,
    )


@pytest.fixture(scope="module", autouse=True)
def forgotten():
    """Graphs end before the interpreter does."""
    yield
    built_for.cache_clear()
    of_small_leaves.cache_clear()


@functools.cache
def built_for(task, name, is_grouped, identity):
    """A process whose computations are those of any number of groups."""
    return build(task, name, 2 if is_grouped else None, identity)


def process(task, name, groups, identity="client_key", build_for=built_for):
    built = build_for(task, name, groups is not None, identity)
    keys = KEYS.__getitem__ if identity == "client_key" else None
    return federated_averaging.TrainingProcess(
        dataclasses.replace(built, groups=groups), lambda state: state, keys
    )


@functools.cache
def one_at_a_time(task, name):
    """Two rounds with one client each, as other people's TFF code has it."""
    return two_rounds(process(task, name, None))


def two_rounds(training):
    first = training.next(training.initialize(), CLIENTS)
    return first, training.next(first.state, [2, 3, 0, 4, 1])


def bits(outputs):
    return [np.asarray(x).tobytes() for x in tf.nest.flatten(outputs)]


@pytest.fixture
def small_leaves(monkeypatch):
    """Leaves of a few thousand bytes lie in files."""
    monkeypatch.setattr(shared_leaf, "LEAST_BYTES", 2000)


@functools.cache
def of_small_leaves(task):
    """The process of two groups that several tests look at, with leaves in files."""
    return build(task, "dome_ddg", 2, "client_key")


@pytest.mark.parametrize(
    "name, groups", [("l2_csgm", 1), ("distributed_discrete_gaussian", 7)]
)
def test_integer_sums_leave_the_same_bits(task, tff_secure_context, name, groups):
    """Model, state, measurements and metrics; seven groups leave some empty."""
    found = two_rounds(process(task, name, groups))
    secure = MECHANISMS[name].sums_securely
    assert found[0].aggregator.get("exact_clients", 5 * secure) == 5
    assert bits(found) == bits(one_at_a_time(task, name))


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
    for settings in ({"groups": True}, {"intra_op_threads": 2}):
        with worker_lib.start(concurrency=3, **settings):
            assert bits(two_rounds(process(task, "l2_csgm", 3))) == once


def test_large_tensors_are_passed_through_shared_memory(
    task, tff_secure_context, small_leaves, monkeypatch
):
    """With the same bits, and each state as good as ever after later rounds."""
    # The 16 directions of DOME are then in several files.
    monkeypatch.setattr(shared_leaf, "_PART_BYTES", 2**17)
    expected = one_at_a_time(task, "dome_ddg")
    # What other tests have built sends all leaves.
    training = process(task, "dome_ddg", 2, build_for=built_for.__wrapped__)
    first = training.initialize()
    both = {shared_leaf.SharedLeaf, np.ndarray}
    assert both <= set(map(type, tf.nest.flatten(first)))
    handed = training._process.initialize()
    weights = tff.learning.models.ModelWeights(*training._process.initial_weights)
    assert [np.any(w) for w in handed.weights.trainable] != [
        np.any(w) for w in weights.trainable
    ]
    handed = attrs.evolve(handed, weights=weights)
    assert shared_leaf.SharedLeaf not in map(type, tf.nest.flatten(handed))
    for leaf, same in zip(training.leaves(first), training.leaves(handed)):
        np.testing.assert_array_equal(leaf, same)
    found = two_rounds(training)
    assert bits(found) == bits(expected)
    assert both <= set(map(type, tf.nest.flatten(found[0].state)))
    again = training.next(found[0].state, [2, 3, 0, 4, 1])
    assert bits(again) == bits(expected[1])
    restored = training.from_leaves(training.leaves(found[0].state))
    assert bits(training.next(restored, [2, 3, 0, 4, 1])) == bits(expected[1])


def messages_in(message):
    """A protocol buffer, those within it and those that it has packed."""
    yield message
    for field, value in message.ListFields():
        values = value if field.label == field.LABEL_REPEATED else [value]
        for each in values:
            if not hasattr(each, "ListFields"):
                continue
            if each.DESCRIPTOR.full_name == "google.protobuf.Any":
                graph = tf.compat.v1.GraphDef()
                if each.Unpack(graph):
                    yield graph
            else:
                yield from messages_in(each)


def messages_of(rounds):
    return list(messages_in(tff.framework.serialize_computation(rounds.next)))


def test_messages_between_computations_hold_no_large_tensors(
    task, tff_secure_context, small_leaves
):
    """TFF would write it down and read it, and its compiler keep an array of it."""
    process = of_small_leaves(task)
    found = messages_of(process.rounds)
    basis = np.asarray(process.initialize().aggregator["basis"])
    placeholders = [
        tf.TensorShape(node.attr["shape"].shape).num_elements()
        for graph in found
        if isinstance(graph, tf.compat.v1.GraphDef)
        for node in graph.node
        if node.op == "Placeholder"
    ]
    assert None in placeholders
    assert max(size for size in placeholders if size) < basis.size
    broadcasts = [
        max(math.prod(tensor.dims) for tensor in tensors_in(each.type.function.result))
        for each in found
        if each.DESCRIPTOR.name == "Computation"
        and each.intrinsic.uri == "federated_broadcast"
    ]
    assert broadcasts and max(broadcasts) < basis.shape[1]


@pytest.mark.parametrize(
    "groups, in_graphs, files, broadcasts",
    # Two of the weights, the kept directions and both moments. The secure sums of
    # messages and of their number, which hand out what they are of, are two of the
    # broadcasts.
    [(2, False, {5, 4}, 3), (3, False, {5}, 5), (2, True, set(), 5)],
)
def test_few_groups_read_only_the_state_they_need(
    task, tff_secure_context, small_leaves, groups, in_graphs, files, broadcasts
):
    """The second moments are the server's alone; many groups are handed one copy."""
    if groups == 2 and not in_graphs:
        rounds = of_small_leaves(task).rounds
    else:
        with shared_array.in_graphs(in_graphs):
            rounds = build(task, "dome_ddg", groups, "client_key").rounds
    found = messages_of(rounds)
    reads = {files_read(each) for each in found if each.DESCRIPTOR.name == "TensorFlow"}
    assert reads - {0} == files
    intrinsics = [each for each in found if each.DESCRIPTOR.name == "Intrinsic"]
    handed = sum(each.uri == "federated_broadcast" for each in intrinsics)
    assert handed == broadcasts
    # The server reads what is not handed on when it has the groups' sum.
    arguments = [
        sum(1 for _ in tensors_in(each.type.function.parameter))
        for each in found
        if each.DESCRIPTOR.name == "Computation"
        and each.WhichOneof("computation") == "tensorflow"
        and files_read(each.tensorflow) == max(files, default=-1)
    ]
    crossing = len(tf.nest.flatten(rounds.values._specs)) - len(rounds.values._large)
    assert all((size > crossing + 2) == (files == {5, 4}) for size in arguments)


def files_read(tensorflow):
    """How many files the results of a TFF computation's graph need."""
    graph = tf.compat.v1.GraphDef()
    tensorflow.graph_def.Unpack(graph)
    names = [
        each.tensor_name.split(":")[0]
        for each in messages_in(tensorflow.result)
        if each.DESCRIPTOR.name == "TensorBinding"
    ]
    needed = tf.compat.v1.graph_util.extract_sub_graph(graph, names)
    return sum(node.op == "ReadFile" for node in needed.node)


def tensors_in(type_proto):
    return [
        each for each in messages_in(type_proto) if each.DESCRIPTOR.name == "TensorType"
    ]


def test_empty_cohort_releases_noise_alone(task, tff_context):
    trainings = [process(task, "l2_csgm", groups) for groups in (None, 2)]
    alone, grouped_ones = (
        training.next(training.initialize(), []) for training in trainings
    )
    assert grouped_ones.aggregator["exact_clients"] == 0
    assert bits(alone) == bits(grouped_ones)


def test_without_an_identity_each_client_draws_by_itself(task, tff_context):
    training = process(task, "l2_csgm", 2, None)
    state = training.initialize()
    once, again = (training.next(state, CLIENTS) for _ in range(2))
    assert once.aggregator["exact_uplink_bits"] != again.aggregator["exact_uplink_bits"]


def test_nonfinite_client_is_counted_in_its_group(task, tff_context):
    state = process(task, "l2_csgm", 2).initialize()
    huge = tuple(np.full_like(w, 1e30) for w in state.weights.trainable)
    weights = type(state.weights)(huge, state.weights.non_trainable)
    state = attrs.evolve(state, weights=weights)
    outputs = [
        process(task, "l2_csgm", groups).next(state, CLIENTS) for groups in (None, 2)
    ]
    assert outputs[0].aggregator["exact_nonfinite_clients"] == 5
    assert bits(outputs[0]) == bits(outputs[1])


def test_groups_must_be_positive(task):
    with refuses(ValueError, "groups", 0):
        build(task, "l2_csgm", 0, None)


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


def test_empty_sum_is_zero():
    made, rows = rows_of([(1.0, 2)])
    assert made.width == 4
    assert made.total(rows[:0])["a"] == 0
