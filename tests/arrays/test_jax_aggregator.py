# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The aggregator for loops in JAX."""

import collections
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, sharding
from numpy.testing import assert_allclose, assert_array_equal

import dpfl
from dpfl.arrays import philox
from dpfl.codecs.round_functions import RoundFunctions
from dpfl.engines.jax import layout
from experiments.benchmarks import harness, jax_rounds
from tests.arrays import cases
from tests.codecs import rounds
from tests.loops import audited
from tests.refusals import refuses

# As many clients on each of two or four devices.
CLIENTS = 8
TEMPLATE = {"w": jnp.zeros([6, 5]), "b": [jnp.zeros(7, jnp.bfloat16)]}
# Noise compiles for seconds: the sums, masks and rounding are the same without.
NO_NOISE = {
    name: dpfl.TEST_CONFIGS[name].with_noise_multiplier(0.0)
    for name in ("l2_csgm", "distributed_discrete_gaussian")
}
CSGM, INTEGER = NO_NOISE.values()
NOISED = dpfl.TEST_CONFIGS["distributed_skellam"]


def updates(number=CLIENTS, seed=0):
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: jnp.asarray(
            rng.normal(size=(number, *leaf.shape)) / 9, leaf.dtype
        ),
        TEMPLATE,
    )


def assert_same(one, two):
    assert jax.tree.structure(one) == jax.tree.structure(two)
    for found, wanted in zip(jax.tree.leaves(one), jax.tree.leaves(two)):
        assert found.dtype == wanted.dtype
        assert_array_equal(found, wanted)


def assert_same_rounds(one, two):
    """But for the last bits of means, in which programs add up in another order."""
    means = ([each.mean for each in rounds] for rounds in (one, two))
    for found, wanted in zip(*map(jax.tree.leaves, means)):
        spacing = float(jnp.finfo(found.dtype).eps)
        assert_allclose(found, wanted, rtol=spacing, atol=1e-7)
    assert_same([each.measured for each in one], [each.measured for each in two])


def test_rounds_are_the_same_however_they_are_executed():
    """Two rounds: at once, in chunks in a scan, and over devices, in chunks too."""
    keys = jax.random.split(jax.random.key(3), CLIENTS)
    cohorts = [updates(seed=number) for number in range(2)]
    at_once = dpfl.jax_aggregator(CSGM, TEMPLATE, clients_at_once=CLIENTS)
    state, first = rounds_of(jax.jit(at_once.update), at_once.init(1), cohorts, keys)
    chunks = dpfl.jax_aggregator(CSGM, TEMPLATE, clients_at_once=3)
    scan = jax.jit(functools.partial(scanned, chunks, True, keys))
    stacked = jax.tree.map(lambda *each: jnp.stack(each), *cohorts)
    last, made = scan(chunks.init(seed=1), stacked)
    assert_same(last, state)
    assert_same_rounds([made], [jax.tree.map(lambda *each: jnp.stack(each), *first)])
    update = jax.jit(over_devices(CSGM, 4, 1))
    last, others = rounds_of(update, at_once.init(1), cohorts, keys)
    assert_same(last, state)
    assert_same_rounds(others, first)


def rounds_of(update, state, cohorts, keys):
    """The state after rounds one by one, and their results."""
    found = []
    for cohort in cohorts:
        found.append(update(state, cohort, keys))
        state = found[-1].state
    return state, found


def over_devices(mechanism, devices, most):
    """The update of clients that are distributed over devices."""
    agg = dpfl.jax_aggregator(mechanism, TEMPLATE, axis_name="c", clients_at_once=most)
    each = sharding.PartitionSpec("c")
    return jax.shard_map(
        agg.update,
        mesh=sharding.Mesh(np.array(jax.devices()[:devices]), ("c",)),
        in_specs=(sharding.PartitionSpec(), each, each),
        out_specs=sharding.PartitionSpec(),
        check_vma=False,
    )


def scanned(agg, is_function, keys, state, cohorts):
    """The state after rounds in a `lax.scan`, and their results."""

    def body(state, cohort):
        def of(places):
            return jax.tree.map(lambda leaf: leaf[places], cohort)

        made = agg.update(state, of if is_function else cohort, keys)
        return made.state, made

    return lax.scan(body, state, cohorts)


def test_types_of_64_bits_stay_inside():
    agg = dpfl.jax_aggregator(INTEGER, TEMPLATE)
    made, wide = [], []

    def of(places):
        wide.append(jax.config.jax_enable_x64)
        return jax.tree.map(lambda leaf: leaf[places], updates())

    for is_wide in (False, True):
        with jax.enable_x64(is_wide):
            state, keys = agg.init(seed=1), jnp.arange(CLIENTS)
            made.append(
                jax.jit(lambda state, keys: agg.update(state, of, keys))(state, keys)
            )
        for leaf in jax.tree.leaves((state, made[-1])):
            assert leaf.dtype.itemsize <= 4
    assert_same(*made)
    assert wide == [False, True]
    mean = made[0].mean
    assert mean["w"].dtype == np.float32 and mean["b"][0].dtype == jnp.bfloat16
    assert mean["w"].shape == (6, 5)


@functools.cache
def compiled_csgm():
    """The compiled update, and a state."""
    agg = dpfl.jax_aggregator(CSGM, TEMPLATE)
    return jax.jit(agg.update), agg.init(seed=1)


def test_a_client_that_is_masked_adds_nothing():
    """Not even one that is not finite; keys, as places, stay with their clients."""
    update, state, keys = *compiled_csgm(), jnp.arange(CLIENTS)
    cohort = updates()
    padded = jax.tree.map(lambda leaf: leaf.at[3:].set(jnp.nan), cohort)
    few = jax.tree.map(lambda leaf: leaf[:3], cohort)
    mask = jnp.array([2.0, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0])
    made = update(state, padded, keys, None, mask)
    assert_same(made, update(state, few, keys[:3]))
    assert made.measured["exact_clients"] == 3
    assert made.measured["exact_nonfinite_clients"] == 0
    nobody = update(state, padded, keys, None, 0 * mask)
    assert nobody.measured["exact_clients"] == 0
    # Also without any rows, of which nothing is computed here.
    jax.eval_shape(update, state, jax.tree.map(lambda leaf: leaf[:0], cohort))
    assert not np.any(nobody.mean["w"])


def test_weights_make_the_weighted_mean_of_finite_updates():
    """A weight, or a product of the two, that is not finite is left out, as in TFF."""
    none = dpfl.NoMechanism(CLIENTS)
    agg = dpfl.jax_aggregator(none, TEMPLATE, weighted=True, clients_at_once=3)
    cohort = updates()
    cohort = {**cohort, "w": cohort["w"].at[6].mul(1e3)}
    weights = jnp.array([1, 2.5, 0, 7, jnp.nan, -1, 1e37, 3])
    mask = jnp.arange(CLIENTS) < 7
    update = jax.jit(agg.update)
    made = update(agg.init(1), cohort, None, None, mask, weights=weights)
    counted = np.asarray(weights[:4], np.float64)
    wanted = np.tensordot(counted, cohort["w"][:4], 1) / counted.sum()
    assert_allclose(made.mean["w"], wanted, rtol=1e-5)
    assert made.measured["exact_clients"] == 7
    assert made.measured["exact_nonfinite_clients"] == 3
    assert made.measured["exact_uplink_bits"] == 32 * (37 + 1)
    nobody = agg.update(agg.init(1), cohort, weights=jnp.zeros(CLIENTS))
    assert not np.any(nobody.mean["w"])


def test_keys_and_places_give_clients_their_own_randomness():
    update, state = compiled_csgm()
    same = jax.tree.map(lambda leaf: jnp.stack([leaf[0]] * CLIENTS), updates())
    every = None, jnp.ones(CLIENTS)
    found = [
        # Of the types of the test above, whose program is this one's.
        update(state, same, jnp.full([CLIENTS], key, jnp.int32), *every).mean["w"]
        for key in range(2)
    ]
    # Were the masks of all clients equal, about half of the coordinates were dropped.
    assert np.mean(found[0] == found[1]) < 0.1
    assert len(np.unique(np.round(np.asarray(found[0]), 5))) > 20


NAMES = ("gaussian", "l2_csgm", "distributed_skellam")


@pytest.mark.parametrize("name", NAMES)
def test_two_rounds_of_one_state_have_independent_noise(name):
    mechanism = dataclasses.replace(dpfl.TEST_CONFIGS[name], clip_norm=1.0)
    d = audited.DIMENSION
    agg = dpfl.jax_aggregator(mechanism, jnp.zeros(d))
    cohort = jnp.asarray(np.random.default_rng(0).normal(size=[3, d]) / 80, np.float32)
    state, update = agg.init(), jax.jit(agg.update)
    assert "seed" not in state
    entropy = agg.entropy()
    assert entropy.shape == (4,) and not np.array_equal(entropy, agg.entropy())
    made = [update(state, cohort, None, agg.entropy()) for _ in range(3)]
    means = [np.asarray(each.mean) for each in made]
    stddev = float(made[0].measured["noise_stddev"])
    for one, two in (means[:2], means[1:]):
        assert np.std(one - two) > 0.95 * stddev * np.sqrt(2)
        assert np.mean(one == two) < 0.1
    again = [update(state, cohort, None, entropy) for _ in range(2)]
    assert_same(*again)
    # Of zeros and of a client that diverged there is noise alone.
    silent = update(state, (0 * cohort).at[1, 5].set(jnp.nan), None, agg.entropy())
    audited.check_noise(np.asarray(silent.mean), mechanism)
    if "exact_nonfinite_clients" in silent.measured:
        assert silent.measured["exact_nonfinite_clients"] == 1
    # The round counts too, so that one entropy may serve a whole scan.
    later = update(made[0].state, cohort, None, entropy)
    assert np.std(np.asarray(later.mean) - again[0].mean) > 0.95 * stddev * np.sqrt(2)


# A stream of noise behind masks, and a state beside a secure sum. Each compilation takes
# seconds: `test_same_integers` has the codecs, and `test_bounds` traces their rounds.
@pytest.mark.parametrize("name", ["sgmf", "dome_ddg"])
def test_a_round_is_that_of_the_codec_in_numpy(name):
    """Two rounds in a scan; to a thousandth where rounded floats become integers."""
    config = cases.COMPARED.get(name, dpfl.TEST_CONFIGS[name])
    config = dataclasses.replace(config, cohort_size=cases.CLIENTS)
    agg = dpfl.jax_aggregator(config, jnp.zeros(cases.DIMENSION))
    given = np.stack([cases.exact_updates(), cases.exact_updates()[::-1]])
    scan = jax.jit(functools.partial(scanned, agg, False, None))
    _, made = scan(agg.init(seed=1), jnp.asarray(given))
    expected = of_numpy(config, agg, given)
    for found, wanted in zip(made.mean, expected):
        # A mean of equal sums is rotated back in floats.
        share = 1e-6 if name in cases.EXACT else 1e-3
        atol = share * np.abs(wanted).max()
        assert_allclose(found, wanted, rtol=0, atol=atol)


def of_numpy(config, agg, cohorts):
    """The results of rounds of one client after the other in numpy."""
    codec = dpfl.make_codec(config, cases.DIMENSION, arrays="numpy")
    declared = config.released_measurements
    steps = RoundFunctions(codec, None, released_measurements=declared)
    state, results = steps.first_state(philox.seed_from_int(1, agg._identity)), []
    for cohort in cohorts:
        _, made = rounds.finished(steps, state, cohort)
        state = made["state"]
        results.append(made["result"])
    return results


def test_keys_of_a_tree_are_sorted():
    """As in the layout of TFF's values; JAX sorts no OrderedDict."""
    tree = collections.OrderedDict(z=jnp.arange(2.0), a=[jnp.arange(3.0) + 5])
    own = layout.TreeLayout(tree)
    vector = own.flatten(tree, 6)
    assert_array_equal(vector, [5, 6, 7, 0, 1, 0])
    assert_same(own.restore(vector[:5]), tree)


def test_entropy_that_is_none_or_a_constant_of_a_program_is_refused():
    agg, cohort = dpfl.jax_aggregator(CSGM, TEMPLATE), updates()
    state, drawn = agg.init(), agg.entropy()
    keys = jnp.arange(CLIENTS)

    def of_places(updates):
        return lambda places: jax.tree.map(lambda leaf: leaf[places], updates)

    for call in (
        lambda: agg.update(state, cohort, None, None),
        lambda: agg.update(state, cohort, None, np.zeros(3, np.uint32)),
        lambda: agg.update(state, cohort, None, np.zeros(4, np.int32)),
        lambda: jax.jit(lambda s, u: agg.update(s, u, None, drawn))(state, cohort),
        # A function hides what it depends on, an operation that it is a constant.
        lambda: jax.jit(lambda u: agg.update(state, of_places(u), keys, drawn))(cohort),
        lambda: jax.jit(lambda: jnp.asarray(agg.entropy()))(),
        lambda: jax.eval_shape(lambda: jnp.asarray(agg.entropy())),
        lambda: lax.scan(lambda *_: (0, jnp.asarray(agg.entropy())), 0, length=2),
    ):
        with refuses(ValueError, "entropy"):
            call()
    assert "seed" not in jax.eval_shape(agg.init)


OF_UPDATES = [
    ("state", ValueError, {"state": {"more": jnp.zeros(1)}}),
    ("state", ValueError, {"state": {"round": jnp.zeros(2)}}),
    ("keys", ValueError, {"keys": jnp.arange(3)}),
    ("keys", TypeError, {"keys": jnp.zeros(CLIENTS)}),
    ("mask", ValueError, {"mask": jnp.ones(3)}),
    ("weights", ValueError, {"weights": jnp.ones(CLIENTS)}),
    ("updates", TypeError, {"updates": jnp.zeros([CLIENTS, 6, 5])}),
    ("keys", ValueError, {"updates": lambda places: updates()}),
    ("updates", ValueError, {"updates": lambda _: updates(2), "keys": jnp.arange(8)}),
]
OF_AGGREGATORS = [
    ("template", ValueError, {"template": {}}),
    ("template", TypeError, {"template": jnp.zeros(3, jnp.int32)}),
    ("output", ValueError, {"output": "median"}),
    ("measure", ValueError, {"measure": "all"}),
    ("weighted", ValueError, {"weighted": True}),
]


def test_refusals_before_anything_is_computed():
    agg = dpfl.jax_aggregator(CSGM, TEMPLATE)
    for name, error, wrong in OF_UPDATES:
        own = {"updates": updates(), **wrong}
        own["state"] = agg.init(1) | wrong.get("state", {})
        with refuses(error, name):
            agg.update(**own)
    for name, error, wrong in OF_AGGREGATORS:
        with refuses(error, name):
            dpfl.jax_aggregator(CSGM, **{"template": TEMPLATE, **wrong})


def test_too_few_clients_who_bring_the_noise_are_refused():
    agg = dpfl.jax_aggregator(NOISED, TEMPLATE, measure="exact_for_simulation")
    state = agg.init(seed=1)
    few = jax.tree.map(lambda leaf: leaf[:2], updates())
    with refuses(ValueError, "updates"):
        agg.update(state, few)
    masked = jax.jit(agg.update)(state, updates(), mask=jnp.arange(CLIENTS) < 2)
    assert masked.measured["exact_clients"] == 2
    assert not np.any(masked.mean["w"])


def test_the_benchmark_has_rows_of_mechanisms(monkeypatch):
    settings = harness.settings(True, 1, model=50)
    made = jax_rounds.measured_mechanisms(settings)
    of_each = {mechanism.name for mechanism in made.values()}
    assert of_each == dpfl.MECHANISMS.keys() - {"sparse_recovery"}
    # Each compilation takes seconds.
    first = {name: made[name] for name in ("none", "csgm_0.1")}
    monkeypatch.setattr(jax_rounds, "measured_mechanisms", lambda settings: first)
    rows = harness.measure("jax_aggregation", settings)
    assert [row["name"] for row in rows] == ["cpu: none", "cpu: csgm_0.1"]
    assert all(row["baseline"] == "cpu: none" for row in rows)
    assert rows[1]["seconds_median"] > 0 and rows[1]["ratio"] > 0
