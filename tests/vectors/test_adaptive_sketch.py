# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from dpfl.arrays import in_tensorflow as nx
from dpfl.vectors import adaptive_sketch, probes, randomness
from dpfl.vectors.adaptive_sketch import AdaptiveSketch
from tests.many_draws import many
from tests.refusals import refuses

D, K = 60, 8
SEED = tf.constant([3, 4], tf.int64)


def make(d=D, k=K, max_rank=None, energy_fraction=0.999, **kwargs):
    return AdaptiveSketch(
        d, k, max_rank=max_rank or k, energy_fraction=energy_fraction, **kwargs
    )


def random_rows(count, d=D, seed=0):
    if not count:
        return np.zeros([0, d], np.float32)
    values = np.random.default_rng(seed).standard_normal([d, count])
    return np.linalg.qr(values)[0].T.astype(np.float32)


def state_of(updated):
    """What the codec of DOME keeps of an update."""
    basis = adaptive_sketch.pack(updated.directions)
    return {"basis": basis, "strengths": updated.strengths, "rank": updated.rank}


def as_sketch(rows):
    """Orthonormal rows as a sketch without probes."""
    return adaptive_sketch.Sketch(
        kept=tf.constant(rows),
        rank=tf.constant(len(rows)),
        signs=tf.ones([rows.shape[1]]),
        mix=tf.eye(len(rows)),
    )


def sketch_of(sketch, kept, seed=SEED):
    """The sketch of kept rows, each of which is a direction."""
    return sketch.expand(tf.constant(kept), tf.constant(len(kept)), seed)


def expanded(sketch, kept, seed=SEED):
    return adaptive_sketch.dense(sketch_of(sketch, kept, seed)).numpy()


def projector(rows):
    return rows.T @ rows


def defect(rows):
    rows = np.asarray(rows, np.float64)
    return np.abs(rows @ rows.T - np.eye(len(rows))).max()


def dense_paper(sketch, strengths, gradient):
    """Algorithm 2, lines 3 to 8, on the d x k matrix itself, in float64."""
    s = np.asarray(sketch, np.float64).T
    g = np.asarray(gradient, np.float64)[:, None]
    y = s @ np.diag(strengths) + g @ (g.T @ s)
    order = np.argsort(-np.linalg.norm(y, axis=0), kind="stable")
    q, r = np.linalg.qr(y[:, order])
    # Where a column depends on those before, its direction is anybody's.
    return q.T, np.sqrt((r * r).sum(0)), np.abs(np.diag(r)) > 1e-4


def dense_eigen(sketch, strengths, gradient):
    s, g = np.asarray(sketch, np.float64), np.asarray(gradient, np.float64)
    values, vectors = np.linalg.eigh(s.T @ np.diag(strengths) @ s + np.outer(g, g))
    return vectors.T[::-1], values[::-1], values[::-1] > 1e-4


def least_rank(strengths, q):
    energy = np.cumsum(np.square(strengths))
    return int(np.argmax(energy >= q * energy[-1] * (1 - 1e-9))) + 1


class TestExpand:
    @pytest.mark.parametrize("d,k", [(1, 1), (9, 9), (33, 32), (300, 256), (4000, 16)])
    def test_rows_are_orthonormal(self, d, k):
        for rank in {0, k // 4}:
            kept = random_rows(rank, d)
            rows = expanded(make(d, k), kept)
            assert rows.shape == (k, d)
            # With hardly more coordinates than rows a probe is nearly in the kept span.
            assert defect(rows) < (1e-4 if (d, rank) == (33, 8) else 1e-5)

    @pytest.mark.parametrize("rank", [0, 3, K])
    def test_the_first_rows_span_what_is_kept(self, rank):
        kept = random_rows(rank)
        rows = expanded(make(), kept)
        assert_allclose(projector(rows[:rank]), projector(kept), atol=1e-6)
        assert defect(rows) < 1e-6

    def test_probes_are_functions_of_the_seed(self):
        kept = random_rows(2)
        first, again = (expanded(make(), kept) for _ in range(2))
        other = expanded(make(), kept, SEED + 1)
        assert_array_equal(first, again)
        assert_allclose(first[:2], other[:2], atol=1e-6)
        # Six of 58 directions overlap by a tenth.
        assert np.linalg.norm(first[2:] @ other[2:].T) ** 2 / 6 < 0.4

    def test_probes_see_every_direction_alike(self):
        """E ||Q g||^2 is (k - r) / d, for coordinates of one probe and of several."""
        d, sketch = 12, make(12, 3)
        nothing, zero = tf.zeros([0, d]), tf.constant(0)
        rows = many(
            lambda number: adaptive_sketch.dense(
                sketch.expand(nothing, zero, tf.stack([number, 8]))
            ),
            4000,
        )
        axes = np.eye(d, dtype=np.float32)
        # A standard error of 1.6% where two coordinates are in one probe or in two.
        for g in (axes[0], axes[1] + axes[4], axes[0] - 2 * axes[3], np.sum(axes, 0)):
            share = np.mean(np.sum((rows @ g) ** 2, 1)) / np.sum(g**2)
            assert share == pytest.approx(3 / d, rel=0.05)

    def test_gram_schmidt_in_row_order(self):
        rows = np.random.default_rng(1).standard_normal([5, D]).astype(np.float32)
        rows /= np.sqrt(D)
        q, r = np.linalg.qr(rows.T.astype(np.float64))
        want = (q * np.sign(np.diag(r))).T
        assert_allclose(expanded(make(), rows)[:5], want, atol=1e-5)

    def test_nearly_dependent_rows(self):
        rows = random_rows(6)
        rows[1:3] = rows[0] + 0.03 * rows[1:3]
        result = expanded(make(), rows)
        assert defect(result) < 1e-4
        assert_allclose(projector(result[:6]), projector(random_rows(6)), atol=1e-4)

    def test_probe_within_the_kept_span_gives_a_short_row(self):
        """Nothing fails; the other rows stay orthonormal."""
        # Of two probes on three coordinates the second has coordinate 1 alone.
        rows = expanded(make(3, 3), np.array([[0, 1, 0]], np.float32))
        sizes = np.linalg.norm(rows, axis=1)
        assert np.all(np.isfinite(rows)) and np.all(sizes < 1 + 1e-5)
        assert np.sum(np.abs(sizes - 1) < 1e-4) == 2


class TestUpdate:
    @pytest.mark.parametrize(
        "rule,dense", [("qr", dense_paper), ("eigen", dense_eigen)]
    )
    @pytest.mark.parametrize("where", ["inside", "outside"])
    def test_update_equals_the_dense_computation(self, rule, dense, where):
        sketch = random_rows(K)
        strengths = np.array([5, 2, 0.5, 0, 0, 0, 0, 0], np.float32)
        noise = np.random.default_rng(2).standard_normal(D).astype(np.float32)
        gradient = sketch[1] - 2 * sketch[5] + (noise if where == "outside" else 0)
        rows, values, is_defined = dense(sketch, strengths * 0.9, gradient)
        for q in (0.5, 0.99, 1.0):
            own = make(rule=rule, decay=0.9, energy_fraction=q)
            got = own.update(as_sketch(sketch), strengths, tf.constant(3), gradient)
            rank = int(got.rank)
            assert rank == least_rank(values[:K], q)
            assert_allclose(got.strengths[:rank], values[:rank], rtol=1e-4, atol=1e-6)
            for r in range(1, rank + 1):
                if not is_defined[r - 1]:
                    break
                found = projector(got.directions[:r].numpy())
                assert_allclose(found, projector(rows[:r]), atol=2e-4)
            assert np.all(got.directions[rank:] == 0)
            assert np.all(got.strengths[rank:] == 0)

    @pytest.mark.parametrize("rule", ["qr", "eigen"])
    def test_the_first_gradient_is_the_first_direction(self, rule):
        sketch = random_rows(K)
        gradient = sketch.T @ np.arange(1, K + 1, dtype=np.float32)
        got = make(rule=rule).update(
            as_sketch(sketch), tf.zeros([K]), tf.constant(0), tf.constant(gradient)
        )
        cosine = got.directions[0].numpy() @ gradient / np.linalg.norm(gradient)
        assert abs(cosine) == pytest.approx(1, abs=1e-5)
        assert got.overlap == 0
        # All the energy is in one direction; the paper's column norms spread it.
        assert int(got.rank) == (1 if rule == "eigen" else K)

    def test_zero_gradient_keeps_the_sketch_and_empty_stays_empty(self):
        sketch, strengths = random_rows(K), np.zeros(K, np.float32)
        strengths[:2] = [3.0, 1.0]
        zero = tf.zeros([D])
        got = make().update(as_sketch(sketch), strengths, tf.constant(2), zero)
        found = projector(got.directions[:2].numpy())
        assert_allclose(found, projector(sketch[:2]), atol=1e-6)
        assert_allclose(got.strengths, strengths)
        assert float(got.overlap) == pytest.approx(1)
        empty = make().update(as_sketch(sketch), tf.zeros([K]), tf.constant(0), zero)
        assert int(empty.rank) == 0
        assert np.all(empty.directions == 0)

    def test_overlap_by_hand(self):
        sketch = random_rows(K)
        strengths = np.zeros(K, np.float32)
        strengths[0] = 1.0
        # The new leading direction is at 45 degrees from the only old one.
        gradient = tf.constant(2.0 * sketch[1])
        got = make(energy_fraction=0.5).update(
            as_sketch(sketch), strengths, tf.constant(1), gradient
        )
        assert (int(got.rank), float(got.overlap)) == (1, pytest.approx(0, abs=1e-6))
        both = make().update(as_sketch(sketch), strengths, tf.constant(1), gradient)
        assert (int(both.rank), float(both.overlap)) == (2, pytest.approx(1, abs=1e-6))

    def test_max_rank_leaves_room_for_probes(self):
        strengths = tf.constant([4.0, 3.0, 2.0])
        got = make(max_rank=3, energy_fraction=1.0).update(
            as_sketch(random_rows(K)), strengths, tf.constant(3), tf.ones([D])
        )
        assert int(got.rank) == 3
        assert got.directions.shape == [3, D]

    def test_without_probes_all_directions_are_kept(self):
        got = make(has_probes=False).update(
            as_sketch(random_rows(K)), tf.zeros([K]), tf.constant(0), tf.ones([D])
        )
        assert int(got.rank) == K
        assert defect(got.directions) < 1e-5


def rows_of_rounds(sketch, d, rounds, changes_probes=True):
    """The rows of each round, with updates by what clients' projections decode to."""

    @tf.function(autograph=False)
    def step(state, number):
        seed = randomness.fold_in(SEED, number)
        kept = adaptive_sketch.unpack(state["basis"])[: state["rank"]]
        basis = sketch.expand(kept, state["rank"], seed if changes_probes else SEED)
        gradient = tf.random.stateless_normal([d], seed + 1)
        decoded = adaptive_sketch.lift(basis, adaptive_sketch.project(basis, gradient))
        new = sketch.update(basis, state["strengths"], state["rank"], decoded)
        return state_of(new), adaptive_sketch.dense(basis)

    state, rows = dict(sketch.initial_state(nx)), []
    for number in range(rounds):
        state, latest = step(state, tf.constant(number))
        rows.append(latest.numpy())
    assert int(state["rank"]) > 1
    return rows


@pytest.mark.parametrize("rule", ["qr", "eigen"])
def test_orthonormal_after_a_hundred_updates(rule):
    sketch = make(100, 12, 9, rule=rule, decay=0.95)
    assert max(map(defect, rows_of_rounds(sketch, 100, 100))) < 1e-5


def test_gradients_within_the_subspace_keep_it_without_probes():
    """What clients' projections decode to lies in the sketch, which must not shrink."""
    sketch = make(64, 6, 6, has_probes=False)
    spans = rows_of_rounds(sketch, 64, 20, changes_probes=False)
    assert max(map(defect, spans)) < 1e-5
    assert np.square(spans[0] @ spans[-1].T).sum() / 6 > 0.999


@pytest.mark.parametrize("rank", [0, 3, K])
def test_project_lift_and_diagonal(rank):
    sketch = sketch_of(make(), random_rows(rank))
    rows, vector = adaptive_sketch.dense(sketch).numpy(), np.arange(D, dtype=np.float32)
    inside = adaptive_sketch.project(sketch, tf.constant(vector))
    assert_allclose(inside, rows @ vector, rtol=1e-4, atol=1e-4)
    lifted = adaptive_sketch.lift(sketch, inside)
    assert_allclose(lifted, projector(rows) @ vector, atol=1e-3)
    found = adaptive_sketch.diagonal(sketch)
    assert_allclose(found, np.diag(projector(rows)), atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        ({"k": 0}, "size", 0),
        ({"k": D + 1}, "size", 61),
        ({"max_rank": K + 1}, "max_rank", 9),
        ({"max_rank": 3, "has_probes": False}, "max_rank", 3),
        ({"rule": "svd"}, "rule", "svd"),
    ],
)
def test_refuses_bad_arguments(arguments, name, value):
    with refuses(ValueError, name, value):
        make(**arguments)


@pytest.mark.parametrize(("columns", "rank"), [(7, 0), (25, 3), (D - 1, 3), (7, K)])
def test_blocks_of_coordinates_change_rounding_alone(columns, rank, monkeypatch):
    """Of whole blocks and a part, with probes that are a coordinate longer or not."""
    kept = adaptive_sketch.pack(tf.constant(random_rows(K)[:rank]))
    gradient = tf.range(D, dtype=tf.float32)
    strengths = tf.linspace(2.0, 1.0, K) * tf.cast(tf.range(K) < rank, tf.float32)

    def everything():
        sketch = make()
        basis = sketch_of(sketch, kept)
        new = sketch.update(basis, strengths, tf.constant(rank), gradient)
        inside = adaptive_sketch.project(basis, gradient)
        return [
            *(basis["mix"], inside, adaptive_sketch.lift(basis, inside)),
            *(adaptive_sketch.diagonal(basis), adaptive_sketch.dense(basis)),
            projector(new.directions.numpy()),
        ]

    whole = everything()
    monkeypatch.setattr(probes, "_COLUMNS_AT_A_TIME", columns)
    for found, expected in zip(everything(), whole):
        scale = np.abs(expected).max()
        assert_allclose(found, expected, atol=2e-6 * scale)


def test_packed_or_not_a_sketch_is_the_same():
    rows = tf.constant(random_rows(3))
    packed = adaptive_sketch.pack(rows)
    found, expected = (
        sketch_of(make(), kept) for kept in (packed, adaptive_sketch.unpack(packed))
    )
    assert found["kept"].dtype == tf.int16
    assert_array_equal(found["mix"], expected["mix"])
    dense = [adaptive_sketch.dense(sketch) for sketch in (found, expected)]
    assert_array_equal(*dense)


def test_components_outside_the_subspace_vanish_in_tff_graphs():
    """They are built where `==` of two tensors asks whether they are the same one."""
    with tf.Graph().as_default() as graph:
        given = [tf.constant(x, tf.float64) for x in ([0.0, 0.0], [0.0, 1.0], 0.0)]
        core = adaptive_sketch._eigen_rule(*given)
        with tf.compat.v1.Session(graph=graph) as session:
            rows = session.run(core.rows)
    # The axis outside, the last, is dropped; otherwise it ties with the first.
    assert_allclose(np.abs(rows), [[0, 1, 0], [1, 0, 0]], atol=1e-12)
