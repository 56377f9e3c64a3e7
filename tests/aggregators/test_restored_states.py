# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""States restored in any order: no noise is ever used on other data.

Whoever has two releases of one state sees their difference. It must have noise, as much
as two releases with independent noise.
"""

import collections
import dataclasses
import functools
import random
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from numpy.testing import assert_allclose

import dpfl
from dpfl import aggregators, mechanisms
from dpfl.aggregators.query import query
from tests import forks, test_docs

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
    """Executions of a mechanism's round, without TFF."""

    def __init__(self, mechanism, seed=None, dimension=D):
        measure = "exact_for_simulation" if mechanism.opens_updates else "released"
        factory = aggregators.build(
            mechanism, seed=seed, measure=measure, checks_context=False
        )
        self.mechanism = mechanism
        self.steps = factory.round_functions(tff.to_type((np.float32, [dimension])))

    def first(self):
        return self.steps.initial_state()

    def __call__(self, state, updates):
        """The state after a round, and its release: a secure sum, or the result."""
        if self.steps.seed is None:
            state = without_seed(state)
        state = tf.nest.map_structure(tf.convert_to_tensor, state)
        made, opened = self._execute(state, tf.constant(updates))
        parts = [np.ravel(part) for part in tf.nest.flatten(opened)]
        return made["state"], np.concatenate(parts).astype(np.float64)

    def between(self, one, two):
        """The difference of two releases; that of residues is the smaller one."""
        if not self.steps.codec.sums_securely:
            return one - two
        modulus = 2.0**self.mechanism.modulus_bits
        return (one - two + modulus / 2) % modulus - modulus / 2

    def _execute(self, state, updates):
        steps = self.steps
        shared = steps.prepare(state)
        total, sums = steps.codec.zero(), None
        for update in tf.unstack(updates):
            message, more = steps.encode(update, shared)
            total = steps.codec.accumulate(total, message)
            sums = more if sums is None else tf.nest.map_structure(tf.add, sums, more)
        if steps.codec.sums_securely:
            total, opened = steps.codec.reduce_modulo(total), total
        made = steps.finish(state, shared, total, sums)
        return made, opened if steps.codec.sums_securely else made["result"]


def without_seed(state):
    return collections.OrderedDict(
        (name, part) for name, part in state.items() if name != "seed"
    )


def saved(state):
    """A state as files bring it back."""
    return tf.nest.map_structure(lambda part: np.array(part), state)


def updates_of(number, dimension=D):
    rng = np.random.default_rng(number)
    updates = rng.normal(size=[CLIENTS, dimension]).astype(np.float32)
    return updates / np.sqrt(dimension) / 2


@pytest.mark.parametrize("name", CASES)
def test_two_releases_of_one_state_have_independent_noise(name):
    """Against explicit seeds that differ, in states of a run with many restores."""
    mechanism, d = CASES[name], FEWER if name in LARGER else D
    fresh = Rounds(mechanism, dimension=d)
    fixed = Rounds(mechanism, seed=1, dimension=d)
    order, rel = random.Random(name), 0.3 if name in LARGER else 0.15
    states = [saved(fresh.first())]
    for number in range(5):
        state, _ = fresh(order.choice(states), updates_of(number, d))
        states.append(saved(state))
    for number, state in enumerate(order.sample(states, 2) + states[-1:]):
        same = updates_of(number, d)
        seeds = (np.array([number, word]) for word in (1, 2))
        one, two = (collections.OrderedDict(seed=seed, **state) for seed in seeds)
        between = fixed.between(fixed(one, same)[1], fixed(two, same)[1])
        found = [fresh(state, same)[1] for _ in range(3)]
        for pair in (found[:2], found[1:]):
            difference = fresh.between(*pair)
            assert np.std(difference) == pytest.approx(np.std(between), rel=rel)
            # Which a pair that is equal in a part of its coordinates would not have.
            assert np.mean(difference == 0) <= np.mean(between == 0) + 0.1


@pytest.mark.parametrize("name", ["gaussian", "project_and_perturb", "stream blt"])
def test_query_releases_of_one_state_have_independent_noise(name):
    """Which brings the seed of its sketch from the clients to the server."""
    made = query(CASES[name], tf.TensorSpec([D]))
    fixed = query(CASES[name], tf.TensorSpec([D]), seed=1)

    def release(made, state, updates):
        params, total = made.derive_sample_params(state), made.initial_sample_state()
        for update in updates:
            record = made.preprocess_record(params, tf.constant(update))
            total = tf.nest.map_structure(tf.add, total, record)
        return made.get_noised_result(total, state)

    same = updates_of(0)
    _, state, _ = release(made, made.initial_global_state(), same)
    found = [release(made, state, same)[0].numpy() for _ in range(2)]
    start = fixed.initial_global_state()
    expected = [release(fixed, start, same), release(made, state, same)]
    spread = np.std(expected[0][0].numpy() - found[0])
    assert np.std(found[0] - found[1]) > 0.5 * spread
    if name == "project_and_perturb":
        # A sketch that the server did not know would have nothing of the update.
        many = [release(made, state, same)[0].numpy() for _ in range(60)]
        truth = same.mean(0)
        assert np.mean(many, 0) @ truth / (truth @ truth) == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize("name", ["matrix_factorization", "l2_csgm", "sketched_ddg"])
def test_in_tff_a_round_is_executed_once(name, tff_secure_context):
    """The state has the seed of the noise that was released, and masks that were used.

    Were `prepare` or `finish` executed twice the mean would be of another rotation.
    """
    mechanism = dataclasses.replace(CASES[name], noise_multiplier=1e-3)
    process = aggregators.build(mechanism).create(tff.to_type((np.float32, [D])))
    state = process.initialize()
    same = updates_of(0)
    total = np.zeros(D)
    for _ in range(4):
        output = process.next(state, list(same))
        again = process.next(state, list(same))
        assert not np.isclose(output.result, again.result, atol=1e-12).all()
        state = output.state
        total += output.result / 4
    truth = same.mean(0)
    assert total @ truth / (truth @ truth) == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("name", ["l2_csgm", "sketched_ddg"])
def test_rounds_compiled_in_two_parts_share_the_rotation(name, tff_secure_context):
    """What is before and after the clients in a `MapReduceForm` prepares for itself."""
    mechanism = dataclasses.replace(CASES[name], noise_multiplier=1e-3)
    process = aggregators.build(mechanism).create(tff.to_type((np.float32, [D])))

    @tff.federated_computation(*process.next.type_signature.parameter)
    def pair(state, value):
        output = process.next(state, value)
        return output.state, output.result

    forms = tff.backends.mapreduce
    form = forms.get_map_reduce_form_for_computation(pair)
    again = forms.get_computation_for_map_reduce_form(form)
    same, state, total = updates_of(0), process.initialize(), np.zeros(D)
    for _ in range(4):
        state, result = again(state, list(same))
        total += result / 4
    truth = same.mean(0)
    assert total @ truth / (truth @ truth) == pytest.approx(1, abs=0.2)


def test_in_tff_a_stream_telescopes_over_restores(tff_context):
    """Its state has the seeds of the very rows that were released."""
    mechanism = dataclasses.replace(CASES["matrix_factorization"], clip_norm=1e-6)
    process = aggregators.build(mechanism).create(tff.to_type((np.float32, [D])))
    state, sums = process.initialize(), np.zeros(D)
    zeros = [np.zeros(D, np.float32)] * CLIENTS
    deviations = []
    for _ in range(4):
        process.next(state, zeros)
        output = process.next(saved(state), zeros)
        state, sums = output.state, sums + output.result
        deviations.append(np.std(sums))
        assert output.measurements["iterate_noise_stddev"] == pytest.approx(
            deviations[-1], rel=0.05
        )
    stddev = mechanism.stddev / mechanism.noise_divisor
    rows = np.linalg.norm(mechanism.factorization.decoder(), axis=1)
    assert_allclose(deviations, stddev * rows, rtol=0.05)


RECORD = "dpfl.planning.ledger:Ledger.record_round"
SAVE = "tensorflow_federated:program.FileProgramStateManager.save"
# In the second round that a process does, or in the first; the first save of all is that
# of the state before any round. A state of round 2 is saved and not shown.
KILLS = [(SAVE, 3, "after"), (SAVE, 2, "before"), (RECORD, 1, "after")]


def test_killed_programs_charge_for_each_round_that_was_computed(tmp_path):
    """That of docs/resuming.md, without its budget: no model is shown twice."""
    page = Path(test_docs.ROOT / "docs/resuming.md").read_text(encoding="utf-8")
    [(code, shown)] = test_docs.python_blocks(page)
    assert code.count(", epsilon=3)") == 1
    program = tmp_path / "program.py"
    program.write_text(code.replace(", epsilon=3)", ")"), encoding="utf-8")
    released = {number: [] for number in range(1, 7)}
    for kill in KILLS:
        first = functools.partial(forks.kill_at, *kill)
        done = forks.run(str(program), folder=tmp_path, first=first)
        assert done.returncode == -9, done.stderr
        look(tmp_path, released)
    done = forks.run(str(program), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    look(tmp_path, released)
    # Round 2 was saved and not shown. Round 4 was computed and not saved, then recorded
    # and not computed, then shown.
    assert [len(found) for found in released.values()] == [1, 0, 1, 1, 1, 1]
    mechanism = dpfl.Gaussian(cohort_size=20, clip_norm=0.5, noise_multiplier=1.0)
    plan = dpfl.PoissonSampling(population=100, cohort_size=20, rounds=6 + 2)
    run = plan.first(6), 3
    within = dpfl.calibrate(mechanism, *run, epsilon=3, delta=1e-3)
    for printed, charged in (
        (done.stdout, dpfl.epsilon(mechanism, plan, 3, 1e-3)),
        (shown, dpfl.epsilon(within, *run, 1e-3)),
    ):
        assert printed == f"epsilon {charged:.2f} at delta 0.001\n"


def look(folder, released):
    """Collects the models that can be seen in a folder, as an adversary would."""
    for number, found in released.items():
        if (folder / f"model_{number}.npz").exists():
            with np.load(folder / f"model_{number}.npz") as arrays:
                model = np.concatenate([np.ravel(part) for part in arrays.values()])
            if not any(np.array_equal(model, before) for before in found):
                found.append(model)
