# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A private strategy and its mod in Flower, without its processes: package/test_flower."""

import json
import math
import stat
from pathlib import Path

import numpy as np
import pytest

import dpfl

pytest.importorskip("flwr", reason="runs in the environment with Flower")

from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.common import serde
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM
from flwr.supercore.task_identity import TaskIdentity

from dpfl.arrays import in_numpy
from dpfl.loops.flower import PrivateStrategy, private_mod
from tests.arrays import cases
from tests.loops import audited
from tests.refusals import refuses
from tools import frameworks

TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
DELTA = 1e-3
SHAPES = {"kernel": (20, 30), "bias": (30,), "scale": ()}
D = 631
GAUSSIAN = dpfl.Gaussian(cohort_size=10, clip_norm=1.0, noise_multiplier=0.5)
PLAN = dpfl.PoissonSampling(population=30, cohort_size=10, rounds=6)


def record(arrays):
    return ArrayRecord({name: Array(np.asarray(x)) for name, x in arrays.items()})


def numpy_of(arrays):
    return {name: array.numpy() for name, array in arrays.items()}


def initial():
    arrays = {name: np.ones(s, np.float32) for name, s in SHAPES.items()}
    return record({**arrays, "counter": np.array([3, 4])})


def client_app(step=lambda node, arrays: 0.001):
    """An app whose clients add a step to each array, and count in their own way."""
    app = ClientApp(mods=[private_mod])

    @app.train()
    def train(message, context):
        assert set(message.content) == {"arrays", "config"}
        arrays = numpy_of(message.content["arrays"])
        size = np.float32(step(context.node_id, arrays))
        trained = {k: x + size for k, x in arrays.items() if k != "counter"}
        trained["counter"] = arrays["counter"] + 1
        metrics = MetricRecord({"num-examples": context.node_id, "loss": 1.0})
        content = RecordDict({"arrays": record(trained), "metrics": metrics})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        return Message(RecordDict(), reply_to=message)

    return app


class InProcess(Grid):
    """Nodes of one process; messages cross as bytes, and each reply may be changed."""

    run = None

    def __init__(self, nodes, app=None, changed=lambda reply: [reply]):
        self.nodes = nodes
        self.app = app or client_app()
        self.changed = changed
        self.cohorts = []
        self.sizes = []
        self.lengths = []

    def get_node_ids(self):
        return list(self.nodes)

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        if messages or not self.cohorts:
            self.cohorts.append([m.metadata.dst_node_id for m in messages])
        for message in messages:
            node = message.metadata.dst_node_id
            message.content = crossed(message.content)
            context = Context(1, node, {"partition-id": node}, RecordDict(), {})
            try:
                reply = self.app(message, context)
                [sent] = reply.content.values()
                assert list(sent) == ["update"]
                self.lengths.append(len(sent["update"]))
                reply.content = crossed(reply.content)
            except Exception as error:
                reply = Message(Error(0, repr(error)), reply_to=message)
            replies += self.changed(reply)
        return replies

    def create_message(self, *arguments):
        raise NotImplementedError

    set_run = push_messages = pull_messages = create_message


def crossed(content):
    data = serde.recorddict_to_proto(content).SerializeToString()
    return serde.recorddict_from_proto(serde.ProtoRecordDict.FromString(data))


def trained(grid, mechanism=GAUSSIAN, plan=PLAN, inner=None, rounds=10**9, **options):
    options = {"delta": DELTA, **options}
    arrays = options.pop("arrays", None) or initial()
    strategy = PrivateStrategy(inner or FedAvg(), mechanism, plan, **options)
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=rounds)
    return strategy, result


NODES = range(10**18, 10**18 + 30)


def released(mechanism, updates, plan=None, **options):
    """The arrays after a round of clients with these updates, from zeros on."""
    step = client_app(lambda node, arrays: updates[node - NODES[0]])
    arrays = record({"w": np.zeros_like(updates[0]), "counter": np.array([3, 4])})
    grid = InProcess(NODES[: len(updates)], step)
    plan = plan or audited.plan_of(updates)
    _, result = trained(grid, mechanism, plan, arrays=arrays, **options)
    return {"w": result.arrays["w"].numpy()}


@pytest.mark.parametrize("name", audited.RESTORED)
def test_two_releases_of_one_state_have_noise_of_their_own(name, tmp_path):
    def after_one_more(mechanism, updates, plan, folder):
        path = folder / "run.npz"
        run = {"path": path, "rounds": 1 + path.exists()}
        return released(mechanism, updates, plan, **run)["w"]

    audited.check_restored(name, tmp_path, after_one_more)


@pytest.mark.parametrize("name", cases.SUMMED)
def test_sums_are_the_integers_of_a_server(name):
    audited.check_sum(name, released, {"w": np.zeros(cases.DIMENSION, np.float32)})


@pytest.mark.parametrize("name", audited.SENT)
def test_a_reply_is_the_claimed_bits_alone(name):
    mechanism = dpfl.TEST_CONFIGS[name]
    plan = dpfl.WithoutReplacement(12, 3, 2)
    if hasattr(mechanism, "rounds_per_epoch"):
        plan = dpfl.OncePerEpoch(12, 3, 2)
    grid = InProcess(NODES[:12])
    strategy, result = trained(grid, mechanism, plan)
    assert strategy.server.rounds_left == 0
    metrics = result.train_metrics_clientapp[2]
    assert metrics["exact_clients"] == 3 and "loss" not in metrics
    assert len(grid.lengths) == 6
    audited.check_bytes(grid.lengths, mechanism, D)
    after = numpy_of(result.arrays)
    assert np.array_equal(after["counter"], [3, 4])
    assert {k: (x.dtype, x.shape) for k, x in after.items()} == {
        k: (x.dtype, x.shape) for k, x in numpy_of(initial()).items()
    }


@pytest.mark.parametrize(
    ("inner", "moves"),
    [
        (FedAvg(), [1.0, 2.0]),
        # Steps at half the rate, and then with what is left of the first.
        (FedAvgM(server_learning_rate=0.5, server_momentum=0.5), [0.5, 1.25]),
    ],
)
def test_strategies_move_by_the_mean(inner, moves):
    """Half of n clients report: the mean divides by n all the same."""
    grid = InProcess(NODES[:5], client_app(lambda node, arrays: 1.0))
    plan = dpfl.PoissonSampling(population=10, cohort_size=10, rounds=2)
    mechanism = dpfl.NoMechanism(cohort_size=10)
    for rounds, moved in enumerate(moves, 1):
        inner.current_arrays = inner.momentum_vector = None
        _, result = trained(grid, mechanism, plan, inner, rounds)
        after = numpy_of(result.arrays)
        for name in SHAPES:
            np.testing.assert_allclose(after[name], 1 + moved, rtol=1e-6)
        assert result.train_metrics_clientapp[rounds]["exact_silent"] == 5


def test_noise_and_epsilon_are_those_of_the_budget():
    grid = InProcess(NODES, client_app(lambda node, arrays: 0.0))
    strategy, result = trained(grid, epsilon=4.0)
    noise = strategy.server.mechanism.noise_multiplier
    again = dpfl.calibrate(GAUSSIAN, PLAN, D, epsilon=4.0, delta=DELTA)
    assert noise == again.noise_multiplier
    found = [result.train_metrics_clientapp[n]["epsilon"] for n in range(1, 7)]
    assert found == sorted(found) and 3.98 < found[-1] <= 4
    three = dpfl.epsilon(again, PLAN.first(3), D, DELTA)
    assert found[2] == pytest.approx(three, rel=1e-3)
    # Nothing but noise, of six rounds: its variance, within five standard errors.
    moved = np.concatenate(
        [x.numpy().ravel() - 1 for k, x in result.arrays.items() if k != "counter"]
    )
    variance = 6 * (noise / 10) ** 2
    assert abs(np.mean(moved**2) / variance - 1) < 5 * math.sqrt(2 / D)


def test_clients_that_fail_or_send_garbage_are_counted():
    garbage = [
        lambda reply: [],
        lambda reply: [as_error(reply)],
        lambda reply: [reply, reply],
        # Of a client without the mod.
        lambda reply: [with_content(reply, RecordDict({"arrays": initial()}))],
        lambda reply: [with_content(reply, update_of(b"short"))],
        lambda reply: [with_content(reply, update_of(b"\x7f" * 4 * D))],
        lambda reply: [with_content(reply, update_of(1))],
        lambda reply: [from_node(reply, 77), reply],
    ]

    def changed(reply):
        place = reply.metadata.src_node_id - NODES[0]
        return garbage[place](reply) if place < len(garbage) else [reply]

    def step(node, arrays):
        # The last client's training diverges.
        return np.nan if node == NODES[9] else 0.01

    plan = dpfl.PoissonSampling(population=12, cohort_size=12, rounds=2)
    mechanism = dpfl.Gaussian(cohort_size=12, clip_norm=1.0, noise_multiplier=1e-3)
    grid = InProcess(NODES[:11], client_app(step), changed)
    _, result = trained(grid, mechanism, plan)
    for metrics in result.train_metrics_clientapp.values():
        # One is not connected, one is late, and replies come of an unknown node.
        assert metrics["exact_silent"] == 2 and metrics["exact_failed"] == 1
        assert metrics["exact_refused_duplicate"] == 1
        assert metrics["exact_refused_length"] == 3
        assert metrics["exact_refused_numbers"] == 1
        assert metrics["exact_clients"] == 5
    # Four clients by 0.01 in each of two rounds, and zeros of the diverged one.
    after = result.arrays["kernel"].numpy()
    np.testing.assert_allclose(after, 1 + 2 * 4 * 0.01 / 12, atol=1e-3)


def as_error(reply):
    reply.__dict__.update(_content=None, _error=Error(0, "lost"))
    return reply


def with_content(reply, content):
    reply.content = content
    return reply


def update_of(data):
    return RecordDict({"dpfl": ConfigRecord({"update": data})})


def from_node(reply, node):
    other = Message(
        RecordDict(dict(reply.content)), reply.metadata.dst_node_id, "train"
    )
    other.metadata.__dict__["_src_node_id"] = node
    return other


class Killed(Exception):
    pass


@pytest.mark.parametrize(
    "inner",
    [
        FedAvg,
        lambda: FedAdam(eta=0.1),
        lambda: FedAvgM(server_learning_rate=0.5, server_momentum=0.9),
    ],
)
def test_a_killed_run_goes_on_as_if_nothing_had_happened(inner, tmp_path):
    plan = dpfl.OncePerEpoch(population=30, cohort_size=10, rounds=6)
    path = tmp_path / "run.npz"
    options = {"seed": 3, "plan": plan}

    def step(node, arrays):
        return 0.01 * (node % 7) * arrays["bias"].mean()

    _, whole = trained(InProcess(NODES, client_app(step)), inner=inner(), **options)

    grid = InProcess(NODES, client_app(step))
    grid.changed = lambda reply: [reply] if len(grid.cohorts) < 3 else kill()

    def kill():
        raise Killed

    with pytest.raises(Killed):
        trained(grid, inner=inner(), path=path, **options)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # A simulation that begins again gives its nodes other numbers.
    others = InProcess(
        range(100, 130), client_app(lambda node, x: step(node - 100 + NODES[0], x))
    )
    strategy, rest = trained(others, inner=inner(), path=path, rounds=6, **options)
    assert [m["round"] for m in rest.train_metrics_clientapp.values()] == [3, 4, 5, 6]
    last = rest.train_metrics_clientapp[4]
    assert last["epsilon"] == whole.train_metrics_clientapp[6]["epsilon"]
    for name, array in whole.arrays.items():
        assert np.array_equal(array.numpy(), rest.arrays[name].numpy()), name
    # Nothing is left to do, and no other run goes on from the file.
    again, nothing = trained(others, inner=inner(), path=path, **options)
    assert nothing.train_metrics_clientapp == {}
    assert np.array_equal(nothing.arrays["bias"].numpy(), rest.arrays["bias"].numpy())
    with refuses(ValueError, "path", path, "state"):
        trained(others, inner=inner(), path=path, delta=0.1, **options)


def test_a_start_says_what_it_goes_on_from(tmp_path, caplog):
    path = tmp_path / "run.npz"
    with caplog.at_level("INFO", "flwr"):
        trained(InProcess(NODES), path=path, rounds=2)
        assert str(path) not in caplog.text
        trained(InProcess(NODES), path=path, rounds=4)
        assert f"{path} after round 2 of 4" in caplog.text
        assert "is complete" not in caplog.text
        trained(InProcess(NODES), path=path, rounds=4)
        assert "is complete, after round 4" in caplog.text
    np.savez(path, header=np.array("{}"), others=np.ones(3))
    with refuses(ValueError, "path", path):
        trained(InProcess(NODES), path=path)


def test_a_run_killed_in_its_first_round_keeps_its_cohort(tmp_path):
    path = tmp_path / "run.npz"
    with pytest.raises(Killed):
        trained(first := InProcess(NODES, changed=killed), path=path)
    trained(second := InProcess(NODES), path=path, rounds=1)
    assert second.cohorts[0] == first.cohorts[0]


def killed(reply):
    raise Killed


def test_a_second_start_spends_no_second_budget(tmp_path):
    strategy, _ = trained(grid := InProcess(NODES), epsilon=4.0, rounds=2)
    more = {"grid": grid, "initial_arrays": initial()}
    with refuses(ValueError, "path", None):
        strategy.start(**more)
    assert len(grid.cohorts) == strategy.server.ledger.rounds == 2
    path = tmp_path / "run.npz"
    strategy, _ = trained(InProcess(NODES), epsilon=4.0, rounds=2, path=path)
    metrics = strategy.start(**more).train_metrics_clientapp
    assert [m["round"] for m in metrics.values()] == [3, 4, 5, 6]
    path.unlink()
    with refuses(ValueError, "path", path.name):
        strategy.start(**more)


@pytest.mark.parametrize("seed", range(3))
def test_nodes_keep_their_numbers_when_all_others_are_new(seed):
    """Half of the nodes, the other half, and then all: in an epoch nobody is twice."""
    parts = NODES[:15], NODES[15:], NODES
    grid = InProcess([])
    grid.get_node_ids = lambda: list(parts[len(grid.cohorts)])
    plan = dpfl.OncePerEpoch(population=30, cohort_size=10, rounds=3)
    trained(grid, plan=plan, seed=seed)
    drawn = [node for cohort in grid.cohorts for node in cohort]
    assert len(drawn) == len({*drawn}) > len(grid.cohorts[2]) == 10


def test_nodes_beyond_the_population_are_never_drawn():
    halves = NODES[:15], NODES[15:]
    grid = InProcess([])
    grid.get_node_ids = lambda: list(halves[len(grid.cohorts) > 2])
    plan = dpfl.OncePerEpoch(population=15, cohort_size=5, rounds=6)
    _, result = trained(grid, dpfl.NoMechanism(cohort_size=5), plan)
    assert [len(cohort) for cohort in grid.cohorts] == [5, 5, 5]
    assert result.train_metrics_clientapp[6]["exact_silent"] == 5


def test_clients_without_the_mod_spend_nothing():
    def changed(reply):
        return [with_content(reply, RecordDict({"arrays": initial()}))]

    strategy = PrivateStrategy(FedAvg(), GAUSSIAN, PLAN, delta=DELTA)
    with refuses(ValueError, "ClientApp", "private_mod"):
        grid = InProcess(NODES, changed=changed)
        strategy.start(grid=grid, initial_arrays=initial())
    assert len(grid.cohorts) == 1 and strategy.server.ledger.rounds == 0


def test_one_client_without_the_mod_ends_no_run(tmp_path):
    """Not even alone in its round, and after a restart."""

    def changed(reply):
        first = reply.metadata.src_node_id == NODES[0]
        return [with_content(reply, RecordDict({"arrays": initial()}))] if first else []

    path, plan = tmp_path / "run.npz", dpfl.WithoutReplacement(4, 4, 3)
    mechanism = dpfl.NoMechanism(cohort_size=4)
    for rounds, own in enumerate((lambda reply: [reply], changed, changed), 1):
        grid = InProcess(NODES[:4], changed=own)
        _, result = trained(grid, mechanism, plan, rounds=rounds, path=path)
    metrics = result.train_metrics_clientapp[1]
    assert metrics["round"] == 3 and metrics["exact_refused_length"] == 1
    assert metrics["exact_clients"] == 0


def test_too_few_clients_that_bring_noise_release_nothing():
    mechanism = dpfl.DistributedDiscreteGaussian(
        cohort_size=4, clip_norm=1.0, noise_multiplier=1.0, bits=16
    )
    plan = dpfl.WithoutReplacement(population=8, cohort_size=4, rounds=3)
    grid = InProcess(NODES[:8])
    grid.changed = lambda reply: [] if len(grid.cohorts) == 2 else [reply]
    strategy, result = trained(grid, mechanism, plan)
    first, second, third = result.train_metrics_clientapp.values()
    assert "epsilon" not in second and second["exact_silent"] == 4
    assert third["round"] == second["round"] == 2
    assert third["epsilon"] == pytest.approx(
        dpfl.epsilon(mechanism, plan.first(2), D, DELTA)
    )
    assert strategy.server.rounds_left == 1


def test_a_client_of_a_strategy_that_is_not_private_fails():
    app, context = client_app(), Context(1, 5, {}, RecordDict(), {})
    content = RecordDict({"arrays": initial(), "config": ConfigRecord()})
    with refuses(ValueError, "strategy"):
        app(Message(content, 5, "train"), context)
    assert app(Message(content, 5, "evaluate"), context).has_content()


def test_other_arrays_than_a_client_received_are_a_failure():
    grid = InProcess(NODES, client_app(lambda node, arrays: np.zeros(3, np.float32)))
    _, result = trained(grid, rounds=1)
    metrics = result.train_metrics_clientapp[1]
    assert metrics["exact_failed"] > 0 == metrics["exact_clients"]


def test_the_example_s_app(monkeypatch, tmp_path):
    folder = Path(__file__).resolve().parents[2] / "examples/flower_digits"
    monkeypatch.syspath_prepend(str(folder))
    import client_app
    import model
    import server_app

    # Its gradient, beside differences of the loss along a direction.
    rng = np.random.default_rng(0)
    x, y = model.task().test_examples()
    shapes = [w.shape for w in model.task().network.initial_weights(seed=0)]
    weights, away = ([rng.normal(0, 0.1, shape) for shape in shapes] for _ in range(2))

    def loss(step):
        moved = [w + step * d for w, d in zip(weights, away)]
        logits = model.forward(moved, x[:20])[2]
        own = logits[np.arange(20), y[:20]]
        return np.mean(np.log(np.exp(logits).sum(1)) - own)

    slope = (loss(1e-5) - loss(-1e-5)) / 2e-5
    gradient = model.gradient(weights, x[:20], y[:20])
    found = sum(np.sum(g * d) for g, d in zip(gradient, away))
    assert found == pytest.approx(slope, rel=1e-4)

    config = {"epsilon": 8.0, "delta": 1e-3, "rounds": 1, "seed": 0, "state": ""}
    config["result"] = str(tmp_path / "result.json")
    grid = InProcess(range(100), client_app.app)
    server_app.app(grid, Context(1, 1, {}, RecordDict(), config))
    result = json.loads((tmp_path / "result.json").read_text())
    assert 7.99 < result["epsilon"] <= 8 and 0 < result["accuracy"] < 1
    # A hundredth of 2^14 places in 32 bits, with their number and the mask's seed.
    claimed = 4 * 2**14 / 100 + 4 + 16
    assert np.mean(grid.lengths) == pytest.approx(claimed, rel=0.06)


def test_the_example_s_app_trains_as_a_loop_in_numpy(monkeypatch):
    """To the same weights, if the seeds of the clients' masks are equal too."""
    model = frameworks.app("model")
    monkeypatch.setattr(model, "NAMES", model.NAMES)
    monkeypatch.setattr(
        model, "accuracy", lambda ends: sum(map(float, map(np.sum, ends)))
    )
    monkeypatch.setattr(in_numpy, "fresh_seed", lambda: np.zeros(2, np.int64))
    plan = dpfl.PoissonSampling(population=100, cohort_size=50, rounds=2)
    monkeypatch.setattr(frameworks, "PLAN", plan)
    # Both would calibrate to one budget for seconds: the noise is as it is.
    monkeypatch.setitem(frameworks.BUDGET, "epsilon", None)
    one, two = (frameworks.of_loop(name, 1) for name in ("numpy", "flower"))
    assert two == pytest.approx(one, rel=1e-6)
