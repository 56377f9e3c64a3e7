# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""States restored in TFF: its rounds draw afresh, and once.

That a round whose seeds are fresh repeats nothing is in `tests/codecs`.
"""

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from numpy.testing import assert_allclose

import dpfl
from dpfl import aggregators
from dpfl.aggregators.query import query
from tests import forks, test_docs

D, CLIENTS = 4000, 3
CASES = dpfl.TEST_CONFIGS


def saved(state):
    """A state as files bring it back."""
    return tf.nest.map_structure(lambda part: np.array(part), state)


def updates_of(number):
    rng = np.random.default_rng(number)
    updates = rng.normal(size=[CLIENTS, D]).astype(np.float32)
    return updates / np.sqrt(D) / 2


NAMES = ["gaussian", "project_and_perturb", "matrix_factorization"]


@pytest.mark.parametrize("name", NAMES)
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
        many = [release(made, state, same)[0].numpy() for _ in range(20)]
        truth = same.mean(0)
        assert np.mean(many, 0) @ truth / (truth @ truth) == pytest.approx(1, abs=0.4)


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


def test_killed_programs_charge_for_each_round_that_was_computed(tmp_path):
    """That of docs/resuming.md, without its budget: no model is shown twice.

    It is killed when round 3 is recorded and not computed. One that is computed and not
    saved is in `engines/tff/test_program.py`.
    """
    page = Path(test_docs.ROOT / "docs/resuming.md").read_text(encoding="utf-8")
    [(code, shown)] = test_docs.python_blocks(page)
    assert code.count(", epsilon=3)") == 1
    program = tmp_path / "program.py"
    program.write_text(code.replace(", epsilon=3)", ")"), encoding="utf-8")
    released = {number: [] for number in range(1, 7)}
    first = functools.partial(forks.kill_at, RECORD, 3, "after")
    done = forks.run(str(program), folder=tmp_path, first=first)
    assert done.returncode == -9, done.stderr
    look(tmp_path, released)
    assert [len(found) for found in released.values()] == [1, 1, 0, 0, 0, 0]
    done = forks.run(str(program), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    look(tmp_path, released)
    assert [len(found) for found in released.values()] == [1] * 6
    mechanism = dpfl.Gaussian(cohort_size=20, clip_norm=0.5, noise_multiplier=1.0)
    plan = dpfl.PoissonSampling(population=100, cohort_size=20, rounds=6 + 1)
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
