# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Rounds of a mechanism in numpy; that other libraries draw the same is in `arrays`."""

import numpy as np

from dpfl.arrays import in_numpy
from dpfl.seed_domains import RoundDomain
from dpfl.vectors import randomness
from tests.arrays import libraries


def updates(norms, d=500, seed=0):
    """float32[len(norms), d], in random directions."""
    values = np.random.default_rng(seed).standard_normal([len(norms), d])
    values *= np.array(norms)[:, None] / np.linalg.norm(values, axis=1, keepdims=True)
    return values.astype(np.float32)


def run(config, given, number=0, state=None):
    """A round for given updates, whose randomness is told from others' by a number."""
    rounds = libraries.Rounds(config, np.asarray(given, np.float32), in_numpy)
    rounds.seed = np.array([number, 99])
    rounds.state = rounds.state if state is None else state
    return rounds.run("eager")


def means(config, given, count):
    """The means of as many rounds, float32[count, d]."""
    return np.stack([run(config, given, i).decoded.mean for i in range(count)])


def finished(steps, state, given):
    """A round of `RoundFunctions` for clients one after the other in numpy.

    Returns:
      The opened sum, and the result of `finish`.
    """
    codec = steps.codec
    shared, total, sums = steps.prepare(state), codec.zero(), {}
    secret = steps.drawn(state, RoundDomain.CLIENT)
    for client, update in enumerate(given):
        padded = np.pad(update, (0, codec.input_length - len(update)))
        own = randomness.fold_in(secret, client)
        message, more = steps.encode_vector(padded, shared, own)
        total = codec.accumulate(total, message)
        sums = {key: sums.get(key, 0) + part for key, part in more.items()}
    opened = codec.reduce_modulo(total)
    return opened, steps.finish(state, shared, opened, sums)
