# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""States restored in any order: no noise is ever used on other data.

Whoever has two releases of one state sees their difference. It must have noise, as much
as two releases with independent noise. That each engine's seeds are fresh is in their
own tests.
"""

import dataclasses
import random

import numpy as np
import pytest

import dpfl
from dpfl import mechanisms
from dpfl.arrays import in_numpy
from dpfl.codecs.round_functions import RoundFunctions
from tests.codecs import rounds

D, FEWER, CLIENTS = 4000, 1000, 3
MATRICES = {
    "identity": {},
    "optimal": {},
    "honaker-online": {},
    "honaker-full": {},
    "band-low-rank": {"matrix_bands": 2, "matrix_rank": 1},
    "toeplitz": {"matrix_bands": 3},
    "banded-inverse": {"matrix_bands": 2},
    "blt": {"matrix_buffers": 2},
}
# Of so few numbers a release has too little noise in it to be measured; their matrices
# are of fewer parameters.
LARGER = {
    "sparse_recovery": {"sparsity": 5, "solver_steps": 1},
    "dome": {"sketch_size": 400, "max_rank": 4},
    "dome_ddg": {"sketch_size": 400, "max_rank": 4},
}
OVER_RUN = {"noise_stream": "run", "rounds": 9, "matrix_momentum": 0.5}


def cases():
    """Every private mechanism of the table, and how noise may be correlated."""
    for name, example in mechanisms.TEST_CONFIGS.items():
        if example.is_private:
            yield name, dataclasses.replace(example, **LARGER.get(name, {}))
    adapts = dataclasses.replace(
        mechanisms.TEST_CONFIGS["gaussian"], adaptive_clipping=True
    )
    yield "adaptive", adapts
    numbers = {"cohort_size": 3, "clip_norm": 1.0, "noise_multiplier": 0.3}
    for method, fields in MATRICES.items():
        fields = {**numbers, "matrix_method": method, **fields}
        yield f"stream {method}", mechanisms.MatrixFactorization(4, **fields)
    fields = {**numbers, **OVER_RUN, "matrix_method": "toeplitz", "matrix_bands": 3}
    yield "stream over a run", mechanisms.MatrixFactorization(None, **fields)


CASES = dict(cases())


class Rounds:
    """Executions of a mechanism's round, with fresh seeds or those of the state."""

    def __init__(self, mechanism, fresh_seed, dimension):
        self.codec = dpfl.make_codec(mechanism, dimension)
        declared = mechanism.released_measurements
        self.steps = RoundFunctions(
            self.codec, fresh_seed, released_measurements=declared
        )

    def __call__(self, state, updates):
        """The state after a round, and its release: a secure sum, or the result."""
        opened, made = rounds.finished(self.steps, state, updates)
        seen = opened if self.codec.sums_securely else made["result"]
        parts = [np.ravel(part) for part in in_numpy.structure_leaves(seen)]
        return made["state"], np.concatenate(parts).astype(np.float64)

    def between(self, one, two):
        """The difference of two releases; that of residues is the smaller one."""
        if not self.codec.sums_securely:
            return one - two
        modulus = 2.0 ** self.codec.modulus_bits["update"]
        return (one - two + modulus / 2) % modulus - modulus / 2


def updates_of(number, dimension):
    rng = np.random.default_rng(number)
    updates = rng.normal(size=[CLIENTS, dimension]).astype(np.float32)
    return updates / np.sqrt(dimension).astype(np.float32) / 2


@pytest.mark.parametrize("name", CASES)
def test_two_releases_of_one_state_have_independent_noise(name):
    """Against explicit seeds that differ, in states of a run with many restores."""
    mechanism, d = CASES[name], FEWER if name in LARGER else D
    fresh = Rounds(mechanism, in_numpy.fresh_seed, d)
    fixed = Rounds(mechanism, None, d)
    order, rel = random.Random(name), 0.3 if name in LARGER else 0.15
    states = [fresh.steps.first_state(None)]
    for number in range(5):
        state, _ = fresh(order.choice(states), updates_of(number, d))
        states.append(state)
    for number, state in enumerate(order.sample(states, 2) + states[-1:]):
        same = updates_of(number, d)
        seeds = (np.array([number, word]) for word in (1, 2))
        one, two = ({"seed": seed, **state} for seed in seeds)
        between = fixed.between(fixed(one, same)[1], fixed(two, same)[1])
        found = [fresh(state, same)[1] for _ in range(3)]
        for pair in (found[:2], found[1:]):
            difference = fresh.between(*pair)
            assert np.std(difference) == pytest.approx(np.std(between), rel=rel)
            # Which a pair that is equal in a part of its coordinates would not have.
            assert np.mean(difference == 0) <= np.mean(between == 0) + 0.1
