# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A codec's round without TFF: the mathematics is tested in milliseconds."""

import collections

import pytest


def _run_codec(codec, updates, number, state=None):
    """One round of a codec, as the factory runs it, from an int64 scalar `number`.

    Args:
      codec: A `dpfl.aggregators.Codec`.
      updates: float32[n, d] tensor, or a list of n float32[d].
      number: Distinguishes one round's randomness from another's.
      state: The codec's own state, None for the first.

    Returns:
      The Decoded, and the total of the messages.
    """
    import tensorflow as tf

    from dpfl.aggregators import measurements
    from dpfl.vectors import randomness

    updates = tf.unstack(updates) if tf.is_tensor(updates) else updates
    seed = tf.stack([tf.cast(number, tf.int64), 99])
    state = codec.initial_state() if state is None else state
    shared = codec.expand(codec.broadcast(state, randomness.fold_in(seed, 1)))
    total = codec.zero()
    sums = None
    for index, update in enumerate(updates):
        padding = [[0, codec.input_length - codec.dimension]]
        encoded = codec.encode(
            tf.pad(update, padding), shared, randomness.fold_in(seed, 2, index)
        )
        total = codec.accumulate(total, encoded.message)
        mine = measurements.client_sums(
            encoded.normed, codec.message_bits(encoded.message), encoded.sums
        )
        sums = mine if sums is None else tf.nest.map_structure(tf.add, sums, mine)
    decoded = codec.decode(state, total, sums, shared, randomness.fold_in(seed, 3))
    assert isinstance(decoded.measurements, collections.OrderedDict)
    return decoded, total


@pytest.fixture
def run_codec():
    """Function from (codec, updates, number, state) to (Decoded, total)."""
    return _run_codec


@pytest.fixture
def many_means():
    """Function from (codec, updates, count) to the float32[count, d] means."""
    import tensorflow as tf

    def run(codec, updates, count):
        @tf.function(autograph=False)
        def trace(numbers):
            return tf.map_fn(
                lambda number: _run_codec(codec, updates, number)[0].mean,
                numbers,
                fn_output_signature=tf.float32,
            )

        return trace(tf.range(count, dtype=tf.int64)).numpy()

    return run
