# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Programs in a folder; `aggregators/test_restored_states.py` kills that of a page."""

import asyncio
import collections
import stat

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import dpfl
from tests.loops import audited
from tests.refusals import refuses

D, DELTA = 3, 1e-3
MECHANISM = dpfl.Gaussian(cohort_size=20, clip_norm=1.0, noise_multiplier=1.0)
PLAN = dpfl.PoissonSampling(population=80, cohort_size=20, rounds=6)
EPOCHS = dpfl.OncePerEpoch(population=80, cohort_size=20, rounds=8)
STATE = collections.namedtuple("STATE", "weights aggregator")
Output = collections.namedtuple("Output", "state metrics")


def model(inputs=D - 1):
    """A model of so many weights and a bias, whose graph ends with its test."""

    @tf.function
    def predict(weights, x, training):
        (kernel, bias), _ = weights
        return tf.matmul(x, kernel) + bias

    return tff.learning.models.FunctionalModel(
        initial_weights=(
            (np.zeros([inputs, 1], np.float32), np.zeros(1, np.float32)),
            (),
        ),
        predict_on_batch_fn=predict,
        loss_fn=lambda output, label, weight=None: tf.reduce_mean(
            (output - label) ** 2
        ),
        input_spec=(tf.TensorSpec([None, inputs]), tf.TensorSpec([None, 1])),
    )


class Process:
    """In the place of TFF's: the state counts the rounds, and adds up the data."""

    def __init__(self, aggregator):
        self.aggregator = aggregator

    def initialize(self):
        return STATE(
            np.zeros(2, np.float32), collections.OrderedDict(round=np.int32(0))
        )

    def next(self, state, client_data):
        weights = state.weights + np.float32([1, sum(client_data)])
        return Output(state._replace(weights=weights), collections.OrderedDict(sum=1))


def begun(folder, mechanism=MECHANISM, plan=PLAN, process=Process, **more):
    given = {"delta": DELTA, "process": process, **more}
    return dpfl.PrivateProgram(mechanism, plan, model(), folder, **given)


def train(run, rounds=None):
    """The cohorts of the next rounds, each computed from the clients' own indices."""
    cohorts = []
    for clients in run.cohorts():
        cohorts.append(clients)
        run.next(clients)
        if len(cohorts) == rounds:
            break
    return cohorts


def charged(rounds, plan=dpfl.PoissonSampling, mechanism=MECHANISM):
    return dpfl.epsilon(mechanism, plan(80, 20, rounds), D, DELTA)


def test_a_program_goes_on_from_its_folder(tmp_path):
    folder = tmp_path / "run"
    run = begun(folder)
    assert run.dimension == D and run.rounds == 0
    seen = train(run, 2)

    async def in_a_notebook():
        return begun(folder)

    again = asyncio.run(in_a_notebook())
    assert again.rounds == 2 and again.ledger.rounds == 2
    np.testing.assert_array_equal(again.state.weights, run.state.weights)
    seen += train(again)
    assert again.state.weights.tolist() == [6, sum(map(sum, seen))]
    assert again.ledger.epsilon == pytest.approx(charged(6))
    assert not train(again)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.name for path in (folder / "states").iterdir()] == ["program_state_6"]


@pytest.mark.parametrize("plan", [PLAN, EPOCHS], ids=lambda plan: plan.name)
def test_a_round_computed_and_not_saved_is_charged_twice(tmp_path, monkeypatch, plan):
    run = begun(tmp_path, plan=plan)
    first = train(run, 1)
    before = np.array(run.state.weights)

    async def stopped(*unused):
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(tff.program.FileProgramStateManager, "save", stopped)
        with pytest.raises(OSError, match="no space"):
            train(run, 1)
    again = begun(tmp_path, plan=plan)
    assert again.rounds == 1 and again.ledger.rounds == 1
    np.testing.assert_array_equal(again.state.weights, before)
    train(again, 2)
    # Clients that depend on no other round's are drawn afresh.
    assert again.ledger.again == ((1, 0) if plan is PLAN else (0, 1))
    if plan is PLAN:
        assert again.ledger.epsilon == pytest.approx(charged(3 + 1))
    else:
        # The epoch goes on: nobody is in two of its rounds.
        train(again, 1)
        known = list(map(list, again.ledger._known.values()))
        assert known[0] == first[0] and sorted(sum(known, [])) == list(range(80))


def test_an_empty_state_manager_is_no_loss_of_charges(tmp_path):
    run = begun(tmp_path)
    train(run, 2)
    asyncio.run(run._folder._states.remove_all())
    again = begun(tmp_path)
    train(again, 1)
    assert again.ledger.epsilon == pytest.approx(charged(1 + 2))


def test_a_budget_ends_the_rounds_early_after_a_loss():
    run = begun(None, epsilon=3.0)
    assert run.mechanism == dpfl.calibrate(MECHANISM, PLAN, D, 3.0, DELTA)
    run.record()
    assert len(train(run)) == 5
    assert 2.9 < run.ledger.epsilon <= 3


def test_clients_of_the_programs_own_choice():
    run = begun(None, plan=dpfl.FixedSize(80, 20, 2))
    spent = [run.record(map("client {}".format, range(20)))]
    metrics = run.next([1, 2])
    assert metrics["sum"] == 1 and metrics["delta"] == DELTA
    spent.append(run.record())
    assert metrics["epsilon"] == spent[0] < spent[1]
    assert run.next(range(9))["epsilon"] == pytest.approx(charged(2, dpfl.FixedSize))


def test_what_would_not_be_accounted_for_is_refused(tmp_path):
    run = begun(tmp_path)
    with refuses(ValueError, "round", 1, 0):
        run.next([1])
    run.record([1, 2])
    with refuses(ValueError, "client_data", 2, 3):
        run.next([1, 2, 3])
    run.next([1])
    with refuses(ValueError, "round", 2, 1):
        run.next([1])
    assert run.state.weights.tolist() == [1, 1]
    with refuses(ValueError, "next"):
        list(run.cohorts())
    with refuses(ValueError, "path", tmp_path / "ledger.jsonl"):
        begun(tmp_path, mechanism=MECHANISM.with_noise_multiplier(2.0))
    with refuses(ValueError, "model_fn", 4, D):
        run.aggregator.create(tff.to_type((np.float32, [4])))
    (tmp_path / "file").touch()
    with refuses(ValueError, "folder", tmp_path / "file"):
        begun(tmp_path / "file")


class Sums(Process):
    """The state has the sum of what the aggregator releases."""

    dimension = D

    def __init__(self, aggregator):
        self._process = aggregator.create(tff.to_type((np.float32, [self.dimension])))

    def initialize(self):
        return STATE(np.zeros(self.dimension, np.float32), self._process.initialize())

    def next(self, state, client_data):
        made = self._process.next(state.aggregator, client_data)
        return Output(STATE(state.weights + made.result, made.state), made.measurements)


def test_a_stream_of_noise_goes_on_in_another_process(tff_context, tmp_path):
    """Its saved state has the seeds of the rows that were released, and one vector."""
    plan = dpfl.OncePerEpoch(population=25, cohort_size=5, rounds=4)
    mechanism = dpfl.MatrixFactorization(
        rounds_per_epoch=5,
        cohort_size=5,
        clip_norm=1.0,
        noise_multiplier=1.0,
        matrix_method="blt",
        matrix_buffers=2,
    )
    seeds = []
    for _ in range(2):
        run = begun(tmp_path, mechanism=mechanism, plan=plan, process=Sums)
        for clients in run.cohorts():
            run.next([np.zeros(D, np.float32)] * len(clients))
            seeds.append(run.state.aggregator["row_seeds"][run.rounds - 1].tolist())
            if run.rounds == 2:
                break
    state = run.state.aggregator
    assert len(seeds) == int(state["row"]) == 4
    assert np.asarray(state["row_seeds"])[:4].tolist() == seeds
    shapes = [np.shape(part) for part in tf.nest.flatten(state)]
    assert shapes.count((D,)) == 1 and max(map(len, shapes)) <= 2
    assert np.all(run.state.weights != 0)


class ManySums(Sums):
    dimension = audited.DIMENSION


@pytest.mark.parametrize("name", audited.NOISED)
def test_noise_that_reaches_the_model_is_the_mechanism_s(tff_secure_context, name):
    """A client whose training diverged adds nothing, and one of another size is none."""
    mechanism, d = dpfl.TEST_CONFIGS[name], audited.DIMENSION
    plan, net = dpfl.FixedSize(3, 3, 1), model(d - 1)
    run = dpfl.PrivateProgram(mechanism, plan, net, delta=DELTA, process=ManySums)
    assert run.dimension == d
    sent = np.zeros([3, d], np.float32)
    sent[1, 5] = np.nan
    run.record(range(3))
    with pytest.raises(TypeError):
        run.next([*sent[:2], sent[2, :5]])
    metrics = run.next(sent)
    audited.check_noise(run.state.weights, mechanism)
    assert run.rounds == run.ledger.rounds == 1
    if not mechanism.sums_securely:
        assert metrics["exact_nonfinite_clients"] == 1


def test_a_secure_sum_opens_no_metrics(tff_secure_context):
    mechanism = dpfl.DistributedDiscreteGaussian(5, 1.0, 1.0, bits="auto")
    plan = dpfl.FixedSize(5, 5, 1)
    run = dpfl.PrivateProgram(mechanism, plan, model(), delta=DELTA, epsilon=8.0)
    assert run.mechanism == dpfl.calibrate(mechanism, plan, D, 8.0, DELTA)
    tff.test.assert_not_contains_unsecure_aggregation(run.process.next)
