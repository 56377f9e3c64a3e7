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

VALUE_TYPE = tff.to_type([(np.float32, (5, 7)), np.float32])
D, N = 36, 4
SKETCH = {"compression_rate": 2.0, "sketch_length": 2}
EPOCH = {"rounds_per_epoch": 5, "matrix_method": "blt", "matrix_buffers": 2}
ADAPTS = {"adaptive_clipping": True}


def make(name, **options):
    numbers = {"cohort_size": N, "clip_norm": 1.0, "noise_multiplier": 0.3}
    return mechanisms.MECHANISMS[name](**numbers, **options)


CONFIGS = [
    *mechanisms.TEST_CONFIGS.values(),
    make("gaussian", **ADAPTS),
    make("distributed_discrete_gaussian", bits=20, **ADAPTS),
    make("sketched_ddg", bits=20, threshold=1.0, **ADAPTS, **SKETCH),
    make("matrix_factorization", matrix_momentum=0.5, **EPOCH),
]
EXACT = "exact_clients exact_nonfinite_clients exact_mean_update_norm exact_uplink_bits"


@functools.cache
def process_of(config, measure=None):
    factory = aggregators.build(config, measure=measure)
    assert isinstance(factory, tff.aggregators.UnweightedAggregationFactory)
    return factory.create(VALUE_TYPE)


def state_names(process):
    return tff.structure.name_list(process.initialize.type_signature.result.member)


def measured_names(process):
    measured = process.next.type_signature.result.measurements.member
    return tff.structure.name_list(measured)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_names_and_types_of_states_and_measurements(config):
    """As a configuration and its codec say."""
    process = process_of(config)
    state_type = process.initialize.type_signature.result
    public = ["public_seed"] if config.sums_securely else []
    own = codecs.make_codec(config, D, arrays="tensorflow").initial_state()
    assert state_names(process) == ["round", *public, *own]
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


SECURE = [config for config in CONFIGS if config.sums_securely]
HELPED = make("distributed_discrete_gaussian", bits=20, noise_source="helpers")


@pytest.mark.parametrize("config", [*SECURE, HELPED], ids=lambda config: config.name)
def test_only_secure_sums_are_revealed(config):
    # By default, and where that is asked for, which is the same.
    for measure in (None, "released") if config == SECURE[0] else (None,):
        process = process_of(config, measure)
        tff.test.assert_contains_secure_aggregation(process.next)
        tff.test.assert_not_contains_unsecure_aggregation(process.next)
        names = measured_names(process)
        assert not [name for name in names if name.startswith("exact_")]
    if config not in SECURE[:1]:
        return
    # A sum of something that is known would open the number of clients.
    seeded = aggregators.build(config, seed=1).create(VALUE_TYPE)
    sums = [str(each.next.to_building_block()) for each in (process, seeded)]
    assert len({text.count("federated_secure_modular_sum") for text in sums}) == 1


def test_exact_measurements_use_unsecure_sums():
    process = process_of(SECURE[0], "exact_for_simulation")
    assert set(EXACT.split()) <= set(measured_names(process))
    with pytest.raises(AssertionError):
        tff.test.assert_not_contains_unsecure_aggregation(process.next)


def test_secure_sum_mechanisms_are_flagged():
    for config in CONFIGS:
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
            aggregators.build(config, measure=measure)
    with refuses(ValueError, "measure", "all"):
        aggregators.build(config, measure="all")


def test_exact_measurements_are_optional_with_trusted_server():
    process = process_of(mechanisms.NoMechanism(N), "released")
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


def test_every_mechanism_has_an_example():
    assert set(mechanisms.TEST_CONFIGS) == set(mechanisms.MECHANISMS)


def test_subclasses_do_not_inherit_the_aggregator():
    @dataclasses.dataclass(frozen=True)
    class Louder(mechanisms.Gaussian):
        pass

    with refuses(TypeError, "mechanism", "Louder"):
        aggregators.build(Louder(N, 1.0, 0.3))


def test_weights_are_refused_with_bounded_contributions_and_in_processes():
    with refuses(ValueError, "weighted", True):
        aggregators.build(make("gaussian"), weighted=True)
    factory = aggregators.build(mechanisms.NoMechanism(N), weighted=True)
    with refuses(ValueError, "weighted", "MeanFactory"):
        factory.create(VALUE_TYPE)


def test_a_mechanism_without_host_noise_leaves_the_state_alone():
    _, put_noise = aggregators.build_with_host_noise(mechanisms.NoMechanism(10), 5)
    state = object()
    assert put_noise(state) is state


def test_host_noise_state_stores_one_row():
    config = make("matrix_factorization", matrix_momentum=0.5, **EPOCH)
    factory, _ = aggregators.build_with_host_noise(config, D, seed=1)
    process = factory.create(VALUE_TYPE)
    names = "seed round row row_seeds moment past past_row past_seed"
    assert state_names(process) == names.split()


def test_unknown_codec_options_are_refused():
    factory = aggregators.build(mechanisms.Gaussian(N, 1.0, 0.3), block_rounds=2)
    with refuses(TypeError, "block_rounds"):
        factory.create(VALUE_TYPE)
