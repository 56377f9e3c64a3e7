# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The adapter for Apple's pfl."""

import contextlib
import dataclasses
import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dpfl

pytest.importorskip("pfl", reason="runs in the environment with pfl")

from pfl.callback.restore_training import RestoreTrainingCallback
from pfl.exception import CheckpointNotFoundError
from pfl.internal.ops.numpy_ops import NumpySeedScope
from pfl.stats import MappedVectorStatistics

from dpfl.loops.pfl import DpflMechanism
from tests.arrays import cases
from tests.loops import audited, pfl_loop
from tests.loops.pfl_loop import CLIENTS
from tests.refusals import refuses

COHORT, ROUNDS = 4, 3
IDS = range(CLIENTS)
FIXED = dpfl.FixedSize(CLIENTS, COHORT, ROUNDS)
POISSON = dpfl.PoissonSampling(CLIENTS, COHORT, ROUNDS)
ONCE = dpfl.OncePerEpoch(CLIENTS, COHORT, ROUNDS)
GAUSSIAN = dpfl.Gaussian(COHORT, clip_norm=1.0, noise_multiplier=0.5)


def private(mechanism=GAUSSIAN, plan=ONCE, **options):
    like = pfl_loop.Model().get_parameters()
    return DpflMechanism(mechanism, plan, like, **{"delta": 1e-3, **options})


def small(name):
    """A mechanism for a cohort, with little noise."""
    config = dpfl.TEST_CONFIGS[name]
    fields = {field.name for field in dataclasses.fields(config)}
    own = {"cohort_size": COHORT, "rounds_per_epoch": ROUNDS, "release_rounds": 1}
    own = {key: value for key, value in own.items() if key in fields}
    return dataclasses.replace(config, **own)


@pytest.mark.parametrize("name", ["none", *audited.RESTORED])
def test_rounds_are_those_of_a_server(name):
    """Releases of a seed, where clients draw nothing; else their noise and structure."""
    made = private(small(name), ONCE, seed=5)
    like = list(pfl_loop.target(0).values())
    alone = dpfl.Server(small(name), ONCE, like, delta=1e-3, seed=5)
    model, algorithm = pfl_loop.Model(), pfl_loop.Algorithm()
    seen = pfl_loop.train(
        made, made.cohorts(pfl_loop.dataset(), IDS), model, 9, algorithm=algorithm
    )
    assert len(seen) == len(model.releases) == ROUNDS
    heard = iter(algorithm.heard)
    for found, metrics in zip(model.releases, seen):
        now = alone.begin_round()
        for client in now.clients:
            assert client == next(heard)
            own = list(pfl_loop.target(client).values())
            alone.add(client, dpfl.encode(alone.mechanism, own, now.message))
        wanted = alone.end_round()
        assert metrics["Central DP | epsilon"] == wanted.epsilon
        assert metrics["Exact_clients"] == wanted.metrics["exact_clients"]
        for part, mean in zip(found.values(), wanted.mean):
            assert part.shape == mean.shape and np.all(np.isfinite(part))
            if name in ("gaussian", "matrix_factorization", "none"):
                assert_array_equal(part, mean)
    assert next(heard, None) is None


def released(mechanism, updates, plan=None, folder=None, **options):
    """The mean of a round of clients with these updates, the next one of a folder."""
    ids, zeros = range(len(updates)), np.zeros_like(updates[0])
    like = MappedVectorStatistics({"w": zeros})
    plan = plan or audited.plan_of(updates)
    made = DpflMechanism(mechanism, plan, like, delta=1e-3, **options)
    data = made.cohorts(pfl_loop.dataset(clients=len(updates)), ids)
    if folder is not None:
        with contextlib.suppress(CheckpointNotFoundError):
            made.load(folder)
    for member, _ in data.get_cohort(plan.cohort_size):
        stats = MappedVectorStatistics({"w": updates[member.user_id]})
        empty, _ = made.postprocess_one_user(stats=stats, user_context=None)
    more = {"central_context": None, "aggregate_metrics": None}
    mean, _ = made.postprocess_server(stats=empty, **more)
    if folder is not None:
        made.save(folder)
    return [mean["w"]]


@pytest.mark.parametrize("name", audited.RESTORED)
def test_two_releases_of_one_state_have_noise_of_their_own(name, tmp_path):
    audited.check_restored(name, tmp_path, lambda *run: released(*run)[0])


@pytest.mark.parametrize("name", cases.SUMMED)
def test_sums_are_the_integers_of_a_server(name):
    audited.check_sum(name, released, [np.zeros(cases.DIMENSION, np.float32)])


@pytest.mark.parametrize("name", audited.SENT)
def test_clients_add_the_claimed_bits_and_pfl_nothing(name):
    made, lengths = private(small(name)), []
    made.server.add = lambda client, data: lengths.append(len(data))
    for member, _ in made.cohorts(pfl_loop.dataset(), IDS).get_cohort(COHORT):
        stats = MappedVectorStatistics(pfl_loop.target(member.user_id))
        empty, _ = made.postprocess_one_user(stats=stats, user_context=None)
        assert [part.size for part in (empty + empty).values()] == [0, 0]
    assert len(lengths) == COHORT
    audited.check_bytes(lengths, made.server.mechanism, made.server.dimension)


def test_statistics_of_garbage_add_nothing_and_are_counted():
    made, alone = private(seed=5), private(seed=5).server
    data = made.cohorts(pfl_loop.dataset(), IDS)
    garbage = [dict, lambda own: {**own, "w": own["w"] * np.nan}]
    garbage += [lambda own: {**own, "b": own["b"] + np.inf}]
    garbage += [lambda own: {**own, "w": own["w"][:5]}]
    now = alone.begin_round()
    for place, (member, _) in enumerate(data.get_cohort(COHORT)):
        own = pfl_loop.target(member.user_id)
        if not place:
            sent = dpfl.encode(GAUSSIAN, list(own.values()), now.message)
            assert alone.add(member.user_id, sent)
        stats = MappedVectorStatistics(garbage[place](own))
        empty, _ = made.postprocess_one_user(stats=stats, user_context=None)
    more = {"central_context": None, "aggregate_metrics": None}
    found, metrics = made.postprocess_server(stats=empty, **more)
    for part, mean in zip(found.values(), alone.end_round().mean):
        assert_array_equal(part, mean)
    counts = metrics.to_simple_dict()
    # Updates that are not finite are zeros, of clients that are in the round.
    assert counts["Exact_clients"] == 3 and counts["Exact_refused_length"] == 1


def test_a_run_stops_at_its_budget():
    plan = dpfl.PoissonSampling(CLIENTS, COHORT, rounds=4)
    made = private(GAUSSIAN, plan, epsilon=5.0)
    seen = pfl_loop.train(
        made, made.cohorts(pfl_loop.dataset(), IDS), pfl_loop.Model(), 9
    )
    spent = [metrics["Central DP | epsilon"] for metrics in seen]
    assert len(spent) == 4 and spent == sorted(spent) and 4.9 < spent[-1] <= 5
    noise = made.server.mechanism.noise_multiplier / COHORT
    assert_allclose(seen[0]["Central DP | noise_stddev"], noise, rtol=1e-6)


def test_a_round_without_clients_is_noise_alone():
    plan = dpfl.PoissonSampling(CLIENTS, cohort_size=1, rounds=12)
    made = private(dpfl.Gaussian(1, 1.0, 1e-6), plan, seed=1)
    model = pfl_loop.Model()
    seen = pfl_loop.train(made, made.cohorts(pfl_loop.dataset(), IDS), model, 12)
    counts = [metrics["Exact_clients"] for metrics in seen]
    assert len(counts) == 12 and {0, 1} <= set(counts)
    for count, release in zip(counts, model.releases):
        assert (np.abs(release["w"]).max() < 1e-4) == (count == 0)


@pytest.mark.parametrize("name", ["gaussian", "matrix_factorization"])
def test_a_run_resumes(name, tmp_path):
    whole, parts, nothing = pfl_loop.Model(), [], contextlib.nullcontext()
    made = private(small(name), seed=2)
    pfl_loop.train(made, made.cohorts(pfl_loop.dataset(), IDS), whole, ROUNDS)
    ended = refuses(ValueError, "rounds_left", 0)
    for rounds, end in ((1, nothing), (ROUNDS + 1, nothing), (ROUNDS + 1, ended)):
        model, algorithm = pfl_loop.Model(), pfl_loop.Algorithm()
        made = private(small(name), seed=2)
        parts.append(model)
        restore = RestoreTrainingCallback([made, model, algorithm], str(tmp_path))
        data = made.cohorts(pfl_loop.dataset(), IDS)
        with end:
            pfl_loop.train(made, data, model, rounds, [restore], algorithm)
    assert [len(model.releases) for model in parts] == [1, ROUNDS - 1, 0]
    for key, part in whole.parameters.items():
        assert_array_equal(parts[1].parameters[key], part)
    assert made.server.ledger.rounds == ROUNDS
    saved = tmp_path / "dpfl.npz"
    assert saved.stat().st_mode & 0o077 == 0


def test_pfls_cycle_is_a_plan():
    """The order of its 'minimize_reuse', which has no client twice in an epoch."""
    made = private()
    algorithm = pfl_loop.Algorithm()
    data = made.cohorts(pfl_loop.dataset("minimize_reuse"))
    pfl_loop.train(made, data, pfl_loop.Model(), ROUNDS, algorithm=algorithm)
    assert algorithm.heard == list(IDS)


def test_pfls_random_sampler_repeats_clients():
    """What no plan has: the ledger refuses the round."""
    plan = dpfl.FixedSize(CLIENTS, CLIENTS, ROUNDS)
    made = private(dpfl.Gaussian(CLIENTS, 1.0, 1.0), plan)
    with NumpySeedScope(1):
        data = made.cohorts(pfl_loop.dataset("random"))
        with refuses(ValueError, "participants"):
            pfl_loop.train(made, data, pfl_loop.Model(), 1)


def test_other_choices_of_clients_are_refused():
    others = (POISSON, "random"), (POISSON, "minimize_reuse"), (ONCE, "random")
    for plan, sampler in others:
        with refuses(ValueError, "user_ids", plan):
            private(plan=plan).cohorts(pfl_loop.dataset(sampler))
    # Each client has one id.
    for ids in ([*IDS, 0], [*IDS, CLIENTS], [0, *IDS][:-1], IDS[:-1]):
        with refuses(ValueError, "user_ids", f"{len(ids)} of {len(set(ids))}"):
            private().cohorts(pfl_loop.dataset(), ids)


def test_a_saved_run_keeps_the_order_of_ids(tmp_path):
    data, names = pfl_loop.dataset(), [str(client) for client in IDS]
    made, other = private(), names[::-1]
    made.cohorts(data, names)
    made.save(str(tmp_path))
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o077 == 0
    for known_first in (True, False):
        again = private()
        if not known_first:
            again.load(str(tmp_path))
        with refuses(ValueError, "user_ids", "saved"):
            again.cohorts(data, other)
            again.load(str(tmp_path))
    again.cohorts(data, tuple(names))
    with refuses(ValueError, "user_ids"):
        again.cohorts(data)
    (tmp_path / "dpfl.ids").unlink()
    with refuses(ValueError, "dir_path", "dpfl.ids", tmp_path):
        private().load(str(tmp_path))
    (tmp_path / "dpfl.npz").unlink()
    with pytest.raises(CheckpointNotFoundError):
        private().load(str(tmp_path))


def test_other_runs_are_refused():
    made, model = private(), pfl_loop.Model()
    data = made.cohorts(pfl_loop.dataset(), IDS)
    with refuses(ValueError, "cohort_size", COHORT + 1):
        pfl_loop.train(made, data, model, 1, size=COHORT + 1)
    with refuses(ValueError, "training_data"):
        pfl_loop.train(private(), pfl_loop.dataset(), model, 1)
    (member, _), *_ = itertools.islice(data.get_cohort(COHORT), 1)
    weighted = MappedVectorStatistics(pfl_loop.target(member.user_id), weight=2.0)
    with refuses(ValueError, "weight", "WeightByUser", 2.0):
        made.postprocess_one_user(stats=weighted, user_context=None)
    with refuses(TypeError, "dataset"):
        made.cohorts(data, IDS)
