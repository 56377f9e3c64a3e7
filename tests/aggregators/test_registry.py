# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What the table of aggregators has, and the type of every process made from it."""

import collections
import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import aggregators, codecs, mechanisms, privacy_coverage
from dpfl.aggregators import registry
from tests.refusals import refuses

VALUE_TYPE = tff.to_type([(np.float32, (2, 3)), np.float32])
D, N = 7, 4
INTEGERS_32 = "exact_clients exact_nonfinite_clients exact_malformed_clients round row "
INTEGERS_32 += "retained_rank past_row steps rank"
VECTORS = "error moment past first_moment second_moment"
TYPES = {
    **dict.fromkeys(INTEGERS_32.split(), np.int32),
    **dict.fromkeys("seed past_seed public_seed".split(), (np.int64, [2])),
    "row_seeds": (np.int64, [5, 2]),
    **dict.fromkeys(VECTORS.split(), (np.float32, [D])),
    **{"basis": (np.int16, [1, D]), "strengths": (np.float32, [1])},
    "memory_0": (np.float32, [2, D]),
}
NORMS = "exact_l2_clipped_fraction"
RELEASED = "clip_norm noise_stddev"
CLIPPED = f"{RELEASED} {NORMS}"
CSGM = "clip_norm linf_clip {} exact_l2_clipped_fraction exact_linf_clipped_fraction "
CSGM += "exact_malformed_clients"
INTEGERS = f"{RELEASED} granularity wrap_probability"
DOME = "noise_stddev retained_rank subspace_overlap"
DOME_STATE = "steps first_moment second_moment basis strengths rank"
RELEASE = "noise_stddev iterate_noise_stddev"
SKETCH = {"compression_rate": 2.0, "sketch_length": 2}
EPOCH = {"rounds_per_epoch": 5, "matrix_method": "blt", "matrix_buffers": 2}
ADAPTS = {"adaptive_clipping": True}


def make(name, **options):
    numbers = {"cohort_size": N, "clip_norm": 1.0, "noise_multiplier": 0.3}
    return mechanisms.MECHANISMS[name](**numbers, **options)


# Configuration, names of its own state, names of its own measurements. A mechanism that
# is not here is tested with its example, and both are None: any that its codec names.
CASES = [
    (mechanisms.NoMechanism(N), "", ""),
    (make("gaussian"), "", CLIPPED),
    (make("gaussian", **ADAPTS), "clip_norm", CLIPPED),
    (make("l2_csgm", keep_fraction=0.5), "", CSGM.format("noise_stddev")),
    (make("linf_csgm", keep_fraction=0.5), "", CSGM.format("noise_stddev")),
    (make("distributed_discrete_gaussian", bits=20), "", INTEGERS),
    (make("distributed_discrete_gaussian", bits=20, **ADAPTS), "clip_norm", INTEGERS),
    (make("distributed_skellam", bits=20), "", INTEGERS),
    (make("sketched_ddg", bits=20, **SKETCH), "", INTEGERS),
    (
        make("sketched_ddg", bits=20, threshold=1.0, **ADAPTS, **SKETCH),
        "clip_norm error",
        INTEGERS,
    ),
    (make("sparse_recovery", bits=20, sparsity=1), "", INTEGERS),
    (make("project_and_perturb", **SKETCH), "", CLIPPED),
    (make("dome", sketch_size=4), DOME_STATE, DOME),
    (
        make("dome_ddg", sketch_size=4, bits=20),
        DOME_STATE,
        f"{INTEGERS} retained_rank subspace_overlap",
    ),
    (
        make("matrix_factorization", matrix_momentum=0.5, **EPOCH),
        "row row_seeds moment memory_0",
        f"clip_norm {RELEASE} {NORMS}",
    ),
    (
        make("sgmf", keep_fraction=0.5, **EPOCH),
        "row row_seeds memory_0",
        CSGM.format(RELEASE),
    ),
]
LISTED = {type(case[0]) for case in CASES}
CASES += [
    (config, None, None)
    for config in mechanisms.TEST_CONFIGS.values()
    if type(config) not in LISTED
]
EXACT = "exact_clients exact_nonfinite_clients exact_mean_update_norm exact_uplink_bits"


@functools.cache
def process_of(config, measure=None):
    factory = aggregators.build(config, measure=measure, checks_context=False)
    assert isinstance(factory, tff.aggregators.UnweightedAggregationFactory)
    return factory.create(VALUE_TYPE)


def measured_names(process):
    measured = process.next.type_signature.result.measurements.member
    return tff.structure.name_list(measured)


def fields(names, placement=tff.SERVER):
    types = [(name, TYPES.get(name, np.float32)) for name in names.split()]
    return tff.FederatedType(collections.OrderedDict(types), placement)


@pytest.mark.parametrize(
    ("config", "state", "measurements"), CASES, ids=lambda c: getattr(c, "name", "")
)
def test_type_signatures(config, state, measurements):
    process = process_of(config)
    check_names(config, process)
    if state is None:
        return
    public = "public_seed" if config.sums_securely else ""
    state_type = fields(f"round {public} {state}")
    assert process.initialize.type_signature.is_equivalent_to(
        tff.FunctionType(None, state_type)
    )
    expected = next_type(state_type, in_order(config, measurements))
    assert process.next.type_signature.is_equivalent_to(expected)


def check_names(config, process):
    """Names of the state and of the measurements, as a configuration and codec say."""
    state_type = process.initialize.type_signature.result
    public = ["public_seed"] if config.sums_securely else []
    own = codecs.make_codec(config, D, arrays="tensorflow").initial_state()
    names = tff.structure.name_list(state_type.member)
    assert names == ["round", *public, *own]
    result = process.next.type_signature.result
    assert result.state.is_equivalent_to(state_type)
    assert result.result.is_equivalent_to(tff.FederatedType(VALUE_TYPE, tff.SERVER))
    measured = measured_names(process)
    unmarked = [name for name in measured if not name.startswith("exact_")]
    assert unmarked[0] == "downlink_bits"
    assert set(unmarked[1:]) <= set(config.released_measurements)
    exact = [] if config.sums_securely else EXACT.split()
    assert measured[len(unmarked) :][: len(exact)] == exact
    assert exact or measured == unmarked


def test_type_signature_with_weights():
    factory = aggregators.build(mechanisms.NoMechanism(N), weighted=True)
    assert isinstance(factory, tff.aggregators.WeightedAggregationFactory)
    process = factory.create(VALUE_TYPE, tff.TensorType(np.float32))
    weight = tff.FederatedType(np.float32, tff.CLIENTS)
    names = f"downlink_bits {EXACT}"
    expected = next_type(process.initialize.type_signature.result, names, weight=weight)
    assert process.next.type_signature.is_equivalent_to(expected)


def next_type(state, measurements, **weight):
    value = tff.FederatedType(VALUE_TYPE, tff.CLIENTS)
    return tff.FunctionType(
        collections.OrderedDict(state=state, value=value, **weight),
        tff.templates.MeasuredProcessOutput(
            state=state,
            result=tff.FederatedType(VALUE_TYPE, tff.SERVER),
            measurements=fields(measurements),
        ),
    )


def in_order(config, measurements):
    """Measurements as they come: the bits, what follows from the release, the exact."""
    names = measurements.split()
    released = ["downlink_bits", *(n for n in names if not n.startswith("exact_"))]
    exact = [] if config.sums_securely else EXACT.split()
    return " ".join([*released, *exact, *(n for n in names if n.startswith("exact_"))])


SECURE = [case[0] for case in CASES if case[0].sums_securely]
SECURE += [
    dataclasses.replace(config, noise_source="helpers")
    for config in SECURE
    if hasattr(config, "noise_source")
]


@pytest.mark.parametrize("config", SECURE, ids=lambda config: config.name)
def test_only_secure_sums_are_revealed(config):
    # By default, and where that is asked for, which is the same.
    for measure in (None, "released") if config == SECURE[0] else (None,):
        process = process_of(config, measure)
        tff.test.assert_contains_secure_aggregation(process.next)
        tff.test.assert_not_contains_unsecure_aggregation(process.next)
        names = measured_names(process)
        assert not [name for name in names if name.startswith("exact_")]
    if getattr(config, "noise_source", None) == "helpers":
        return
    # A sum of something that is known would open the number of clients.
    seeded = aggregators.build(config, seed=1, checks_context=False).create(VALUE_TYPE)
    sums = [str(each.next.to_building_block()) for each in (process, seeded)]
    assert len({text.count("federated_secure_modular_sum") for text in sums}) == 1


def test_exact_measurements_use_unsecure_sums():
    process = process_of(SECURE[0], "exact_for_simulation")
    assert set(EXACT.split()) <= set(measured_names(process))
    with pytest.raises(AssertionError):
        tff.test.assert_not_contains_unsecure_aggregation(process.next)


def test_secure_sum_mechanisms_are_flagged():
    for config, _, _ in CASES:
        codec = codecs.make_codec(config, D, arrays="tensorflow")
        assert codec.sums_securely == config.sums_securely, config.name
        assert ("secure sum" in config.trust) == config.sums_securely


def test_dimension_accepts_integers_only():
    gaussian, stream = make("gaussian"), make("matrix_factorization", **EPOCH)
    for length in (np.uint8(D), np.int16(D), np.float64(D)):
        assert (
            type(codecs.make_codec(gaussian, length, arrays="tensorflow").dimension)
            is int
        )
        assert registry.build_with_host_noise(stream, length)
    for wrong in (0, -1, 7.5, True, None, "7"):
        for call in (codecs.make_codec, registry.build_with_host_noise):
            with refuses((TypeError, ValueError), "dimension", wrong):
                call(gaussian, wrong)
    for wrong in ("gaussian", mechanisms.Gaussian, 3):
        for call in (codecs.make_codec, registry.build_with_host_noise):
            with refuses(TypeError, "mechanism", wrong):
                call(wrong, D)


def test_measuring_raw_updates_must_be_requested():
    config = mechanisms.Dome(N, 1.0, 0.3, 4, measures_energy=True)
    for measure in (None, "released"):
        with refuses(ValueError, "measure", measure):
            aggregators.build(config, measure=measure, checks_context=False)
    with refuses(ValueError, "measure", "all"):
        aggregators.build(config, measure="all", checks_context=False)


@pytest.mark.parametrize("weighted", [False, True])
def test_exact_measurements_are_optional_with_trusted_server(weighted):
    factory = aggregators.build(
        mechanisms.NoMechanism(N), measure="released", weighted=weighted
    )
    weight = (tff.TensorType(np.float32),) if weighted else ()
    process = factory.create(VALUE_TYPE, *weight)
    assert measured_names(process) == ["downlink_bits"]


def forgetful(codec):
    own_decode = codec.decode

    def decode(*arguments):
        decoded = own_decode(*arguments)
        more = collections.OrderedDict(decoded.measurements, own=tf.constant(0.5))
        return decoded._replace(measurements=more)

    codec.decode = decode
    return codec


def test_undeclared_measurement_is_refused_and_a_declared_one_unmarked():
    build = functools.partial(aggregators.build, around=forgetful)
    with refuses(ValueError, "released_measurements", "own"):
        build(make("gaussian")).create(VALUE_TYPE)

    @dataclasses.dataclass(frozen=True)
    class Declared(mechanisms.Gaussian):
        released_measurements = (*mechanisms.Gaussian.released_measurements, "own")

    codecs = mechanisms.registry._CODECS
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(codecs, Declared, codecs[mechanisms.Gaussian])
        process = build(Declared(N, 1.0, 0.3)).create(VALUE_TYPE)
    assert "own" in measured_names(process)
    declared = Declared.released_measurements
    assert privacy_coverage.measured_column("own", declared) == "aggregator_own"
    assert privacy_coverage.measured_column("own") == "exact_aggregator_own"


def test_every_mechanism_has_an_aggregator_and_a_test_case():
    assert set(mechanisms.TEST_CONFIGS) == set(mechanisms.MECHANISMS)
    assert {type(case[0]) for case in CASES} == {*mechanisms.MECHANISMS.values()}


@pytest.mark.parametrize("mechanism", [None, "gaussian", object()])
def test_build_refuses_other_types(mechanism):
    with refuses(TypeError, "mechanism", mechanism):
        aggregators.build(mechanism)


def test_subclasses_do_not_inherit_the_aggregator():
    @dataclasses.dataclass(frozen=True)
    class Louder(mechanisms.Gaussian):
        pass

    with refuses(TypeError, "mechanism", "Louder"):
        aggregators.build(Louder(N, 1.0, 0.3))


def test_weights_are_refused_with_bounded_contributions():
    with refuses(ValueError, "weighted", True):
        aggregators.build(make("gaussian"), weighted=True)


def test_a_mechanism_without_host_noise_leaves_the_state_alone():
    _, put_noise = aggregators.build_with_host_noise(mechanisms.NoMechanism(10), 5)
    state = object()
    assert put_noise(state) is state


def test_host_noise_state_stores_one_row():
    config = make("matrix_factorization", matrix_momentum=0.5, **EPOCH)
    factory, _ = aggregators.build_with_host_noise(config, D, seed=1)
    process = factory.create(VALUE_TYPE)
    assert process.initialize.type_signature.result.is_equivalent_to(
        fields("seed round row row_seeds moment past past_row past_seed")
    )


def test_unknown_codec_options_are_refused():
    factory = aggregators.build(mechanisms.Gaussian(N, 1.0, 0.3), block_rounds=2)
    with refuses(TypeError, "block_rounds"):
        factory.create(VALUE_TYPE)
