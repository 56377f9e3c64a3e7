# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A codec's round without TFF: the mathematics is tested in milliseconds."""

import collections

import tensorflow as tf

from dpfl.codecs import measurements
from dpfl.codecs.base import Received
from dpfl.vectors import randomness
from tests.many_draws import many


def run_codec(codec, updates, number, state=None):
    """The Decoded and the total of one round of a codec, as the factory runs it.

    Updates are float32[n, d], n at least 1. An int64 scalar `number` distinguishes one
    round's randomness from another's; the state is the codec's own, None for the first.
    """
    state = codec.initial_state() if state is None else state
    shared, total, sums = _sent(codec, updates, number, state)
    seed = randomness.fold_in(_seed(number), 3)
    received = Received(state, total, sums, shared, seed)
    decoded = codec.decode(received)
    assert isinstance(decoded.measurements, collections.OrderedDict)
    exact = codec.exact_metrics(received)
    measured = collections.OrderedDict(**decoded.measurements, **exact)
    return decoded._replace(measurements=measured), total


def _seed(number):
    return tf.stack([tf.cast(number, tf.int64), 99])


def _sent(codec, updates, number, state):
    """A round until the server opens the total: what all share, total and sums."""
    updates = tf.stack(updates)
    seed = _seed(number)
    shared = codec.decode_broadcast(codec.broadcast(state, randomness.fold_in(seed, 1)))
    padding = [[0, codec.input_length - codec.dimension]]

    def message_of(index):
        update = tf.pad(updates[index], padding)
        encoded = codec.encode(update, shared, randomness.fold_in(seed, 2, index))
        bits = codec.message_bits(encoded.message)
        sums = measurements.client_sums(encoded.normed, bits, encoded.sums)
        return encoded.message, sums

    return shared, *_summed(codec, message_of, updates.shape[0])


def _summed(codec, message_of, count):
    """The total of the messages, and the sums; what is traced is one client's work."""

    def add(index, total, sums):
        message, mine = message_of(index)
        added = tf.nest.map_structure(tf.add, sums, mine)
        return index + 1, codec.accumulate(total, message), added

    if not tf.executing_eagerly():
        traced = tf.function(message_of, autograph=False)
        message_of = traced.get_concrete_function(tf.TensorSpec([], tf.int32))
    message, sums = message_of(tf.constant(0))
    loop = (tf.constant(1), codec.accumulate(codec.zero(), message), sums)
    return tf.while_loop(lambda index, *_: index < count, add, loop)[1:]


def compiled_round(codec):
    """Function from (updates, number, state) to (mean, total, state).

    For many rounds of few clients: it is traced once, and a round takes milliseconds.
    """

    @tf.function(autograph=False)
    def run(updates, number, state):
        decoded, total = run_codec(codec, updates, number, state)
        return decoded.mean, total, decoded.state

    def call(updates, number=0, state=None):
        state = codec.initial_state() if state is None else state
        given = tf.constant(updates, tf.float32), tf.constant(number, tf.int64)
        return run(*given, state)

    return call


def many_means(codec, updates, count):
    """The means of as many rounds, float32[count, d]."""
    return many(lambda number: run_codec(codec, updates, number)[0].mean, count)


def many_totals(codec, updates, count):
    """As many totals, none of them opened."""
    state = codec.initial_state()
    return many(lambda number: _sent(codec, updates, number, state)[1], count)
