# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Many draws: a function of a number, traced once and run for many numbers."""


def many(one, count):
    """What `one` gives for `count` int64 numbers, one after the other, in arrays."""
    import tensorflow as tf

    @tf.function(autograph=False)
    def trace(numbers):
        def step(number):
            return tf.nest.map_structure(tf.convert_to_tensor, one(number))

        shown = tf.function(step, autograph=False).get_concrete_function(
            tf.TensorSpec([], tf.int64)
        )
        spec = tf.nest.map_structure(tf.type_spec_from_value, shown.structured_outputs)
        return tf.map_fn(shown, numbers, fn_output_signature=spec)

    found = trace(tf.range(count, dtype=tf.int64))
    return tf.nest.map_structure(lambda part: part.numpy(), found)
