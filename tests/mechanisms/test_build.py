# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""From names and values to configurations."""

import dataclasses

import pytest

from dpfl import fields, mechanisms
from dpfl.mechanisms import build
from tests.refusals import refuses

COMMON = {"cohort_size": 100, "clip_norm": 0.5, "noise_multiplier": 2.0}
# Enough for every mechanism.
EVERY = {**COMMON, "bits": 12, "sketch_size": 8, "rounds_per_epoch": 5}
NAMES = sorted(mechanisms.MECHANISMS)


def enough(name):
    """Values of the required fields; of those that `EVERY` lacks, the example's."""
    example = mechanisms.TEST_CONFIGS[name]
    missing = build.missing_fields(name, EVERY)
    return {**EVERY, **{field: getattr(example, field) for field in missing}}


@pytest.mark.parametrize("name", NAMES)
class TestEach:
    def test_takes_the_values_of_its_fields(self, name):
        built = build.build(name, {**enough(name), "no_such_field": 1})
        assert type(built) is build.config_class(name)
        for field, value in EVERY.items():
            if field in build.field_types(type(built)):
                assert getattr(built, field) == value

    def test_names_each_missing_value(self, name):
        for field in build.missing_fields(name, {}):
            values = {key: value for key, value in enough(name).items() if key != field}
            assert build.missing_fields(name, values) == [field]
            with refuses(ValueError, field, name):
                build.build(name, values)

    def test_every_field_is_a_flag_with_help(self, name):
        config = build.config_class(name)
        names = [field.name for field in dataclasses.fields(config)]
        assert list(build.field_types(config)) == names
        assert set(names) <= build.accepted_fields(name)
        for field in dataclasses.fields(config):
            text = fields.help_text(field)
            assert text.endswith(".") and ". " not in text, (field.name, text)
            assert len(text) < 220
            # Flags of these names would be negated twice.
            assert not field.name.startswith(("has_", "is_", "no_"))


def test_field_types_see_through_optional():
    types = build.field_types(mechanisms.Gaussian)
    assert types["count_stddev"] is float
    assert types["adaptive_clipping"] is bool
    assert types["cohort_size"] is int
    assert build.field_types(mechanisms.SketchedDdg)["layers"] is str


def test_required_fields():
    assert build.missing_fields("none", {}) == ["cohort_size"]
    assert build.missing_fields("sketched_ddg", {}) == [*COMMON, "bits"]
    assert build.missing_fields("sketched_ddg", {"bits": None}) == [*COMMON, "bits"]
    # The rate is filled in.
    assert build.missing_fields("l2_csgm", {}) == list(COMMON)


class TestRates:
    def build(self, name, **rates):
        return build.build(name, {**EVERY, **rates})

    @pytest.mark.parametrize("name", ["l2_csgm", "linf_csgm", "sgmf"])
    def test_compression_given_as_keep_fraction(self, name):
        assert self.build(name).keep_fraction == 0.01
        assert self.build(name, compression_rate=8).keep_fraction == 0.125
        assert self.build(name, keep_fraction=0.3).keep_fraction == 0.3

    @pytest.mark.parametrize("name", ["sketched_ddg", "project_and_perturb"])
    def test_compression_given_as_rate(self, name):
        assert self.build(name).compression_rate == 100
        assert self.build(name, compression_rate=7).compression_rate == 7
        assert "keep_fraction" not in build.accepted_fields(name)
        # The class and the commands have one default.
        assert build.config_class(name).compression_rate == 100

    def test_rate_is_ignored_without_compression(self):
        built = self.build("gaussian", keep_fraction=0.1, compression_rate=10)
        assert built == mechanisms.Gaussian(**COMMON)
        assert not build.accepted_fields("gaussian").intersection(build.RATE_FIELDS)

    @pytest.mark.parametrize("name", ["l2_csgm", "sgmf"])
    def test_fraction_and_rate_together_are_refused(self, name):
        assert build.accepted_fields(name).issuperset(build.RATE_FIELDS)
        with refuses(ValueError, "compression_rate", 10, "keep_fraction"):
            self.build(name, keep_fraction=0.1, compression_rate=10)
        assert self.build(name, keep_fraction=None, compression_rate=None)

    @pytest.mark.parametrize("rate", [0, 0.5, -3.0, float("inf"), float("nan")])
    @pytest.mark.parametrize("name", ["l2_csgm", "sketched_ddg"])
    def test_rates_out_of_range_are_refused(self, name, rate):
        with refuses(ValueError, "compression_rate", rate):
            self.build(name, compression_rate=rate)

    def test_auto_is_for_sketches(self):
        assert self.build("sketched_ddg", compression_rate="auto")
        with refuses(TypeError, "compression_rate", "auto"):
            self.build("l2_csgm", compression_rate="auto")


def test_an_unknown_name_is_refused():
    with refuses(ValueError, "mechanism", "magic"):
        build.build("magic", EVERY)


@pytest.mark.parametrize(
    ("field", "value"),
    [("target_quantile", 0.7), ("clip_learning_rate", 0.1), ("count_stddev", 2.0)],
)
@pytest.mark.parametrize("name", ["gaussian", "distributed_skellam"])
def test_adaptive_options_are_refused_without_adaptive_clipping(name, field, value):
    for given in ({}, {"adaptive_clipping": False}):
        with refuses(ValueError, field, value, "adaptive_clipping"):
            build.build(name, {**EVERY, **given, field: value})
    built = build.build(name, {**EVERY, "adaptive_clipping": True, field: value})
    assert getattr(built, field) == value
    # Where no clip adapts the value belongs to another mechanism.
    build.build("l2_csgm", {**EVERY, field: value})
