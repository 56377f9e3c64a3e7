# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Numbers as people have them: what is kept and used is what the check returned.

Nothing here needs TensorFlow: tests/package/test_wheel.py runs it with numpy 2 too.
"""

import contextlib
import dataclasses
import functools
import inspect
import math
import types
import warnings
from collections.abc import Callable
from typing import Any, Optional

import dp_accounting
import numpy as np
import pytest

import dpfl
from dpfl import accounting, factorization, fields, mechanisms
from dpfl.accounting import matrix_factorization
from tests.refusals import refuses

PLAN = dpfl.PoissonSampling(population=1000, cohort_size=100, rounds=10)


@dataclasses.dataclass(frozen=True)
class PlugIn(dpfl.Gaussian):
    """Another package's, that forgets all that it should do."""

    size: int = 3
    share: float = 0.5
    words: Optional[str] = None

    def __post_init__(self):
        seen = type(self.size), type(self.cohort_size)
        object.__setattr__(self, "seen", seen)

    def uplink_bits(self, dimension):
        return 32 * dimension * self.size


class TestConfigurations:
    def test_plug_in_without_checks_is_checked_by_field_types(self):
        made = PlugIn(np.int8(100), np.float32(1.5), 2, size=np.uint8(100), share=1)
        assert made == PlugIn(100, 1.5, 2.0, size=100, share=1.0)
        assert made.seen == (int, int) and type(made.noise_multiplier) is float
        assert made.uplink_bits(np.int32(10**8)) == 320 * 10**9
        for wrong in ({"size": 2.0}, {"share": "1"}, {"words": 3}, {"cohort_size": 0}):
            [name] = wrong
            with refuses((TypeError, ValueError), name, repr(wrong[name])):
                dataclasses.replace(made, **wrong)
        with refuses(ValueError, "dimension", 0):
            made.uplink_bits(0)

    def test_a_field_without_a_check_is_refused(self):
        @dataclasses.dataclass(frozen=True)
        class Vague(dpfl.Gaussian):
            thing: Any = None
            name = "vague"

        for make in (lambda: dpfl.register(Vague, "x:Y"), lambda: Vague(3, 1.0, 1.0)):
            with refuses(TypeError, "thing", "Vague"):
                make()
        assert Vague not in mechanisms.MECHANISMS.values()

    def test_auto_stays(self):
        assert mechanisms.DistributedSkellam(3, 1.0, 1.0, bits="auto").bits == "auto"
        with refuses(TypeError, "bits", "many"):
            mechanisms.DistributedSkellam(3, 1.0, 1.0, bits="many")


def test_a_count_of_parameters():
    shapes = [(50, 30), (30,), (20, 2, 2)]
    counts = [np.prod(shape) for shape in shapes]
    for name, example in mechanisms.TEST_CONFIGS.items():
        for own, length in ((counts, 1610), ([*counts, np.prod(())], 1611)):
            bits = example.uplink_bits(sum(own))
            assert bits == example.uplink_bits(length), name
            assert type(bits) is float
    with refuses(TypeError, "dimension", 26.5):
        example.uplink_bits(26.5)


def test_an_epoch_of_many_rounds():
    """The sums of small integers of numpy are small integers, and wrap."""
    mechanism = dpfl.Gaussian(10, 1.0, 2.0)
    plan = dpfl.OncePerEpoch(3000, 10, np.uint8(200))
    assert dpfl.epsilon(mechanism, plan, 1000, 1e-5) == pytest.approx(1.993, abs=1e-3)
    ledger = dpfl.Ledger(mechanism, plan, 1000, 1e-5)
    assert ledger.record_round() == dpfl.epsilon(mechanism, plan, 1000, 1e-5)
    assert dpfl.Gaussian(10, 1.0, 2.0).uplink_bits(np.int32(10**8)) == 32e8


# --- Every public name, with every kind of number.

KINDS = [getattr(np, f"{sign}int{n}") for sign in ("", "u") for n in (8, 16, 32, 64)]
KINDS += [np.float16, np.float32, np.float64]
NONSENSE = [True, np.True_, math.nan, math.inf, -1, np.int8(-1), -0.5, 0, 1e-320, 1e300]
NONSENSE += [10**400, np.float32(math.nan), "1", 1j, np.ones(2), object()]
PARTICIPATION = {"population": 120, "cohort_size": 12, "rounds": 100}
# Values of fields and arguments that are optional, or for which an example says too
# little; small, so that the smallest types hold them, and products of two do not fit.
VALUES: dict[str, Any] = {
    **{"epoch_rounds": 10, "min_separation": 2, "count_stddev": 0.3, "linf_ratio": 0.5},
    "drawn_rounds": 200,
    **{"wrap_probability": 0.25, "max_rank": 4, "second_moment_floor": 0.5},
    **{"threshold": 0.5, "expected_dropout": 0.25, "colluding_clients": 1},
    **{"sketch_size": 8, "max_examples_per_client": 100, "max_test_examples": 100},
}
# What a sentence says of an argument in place of its name.
ALIASES = {"target_epsilon": "budget", "sampling_probability": "noise_source"}
# Methods that are for other mechanisms.
REFUSED = {("sgmf", "again_event"), ("none", "with_noise_multiplier")}


def said(value: Any) -> Any:
    """A result with the type of each number, so that equal ones are the same."""
    if isinstance(value, fields.Checked) and not hasattr(value, "event"):
        names = fields.checks_of(type(value))
        return type(value), [said(getattr(value, name)) for name in names]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tolist()
    if isinstance(value, (list, tuple)):
        return type(value), [said(one) for one in value]
    return type(value), repr(value)


def outcome(call: Callable[..., Any], given: dict[str, Any], name: str) -> Any:
    """A result as text, or the error, if that is a sentence on the argument."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return said(call(**given))
        except (TypeError, ValueError) as error:
            names = name, ALIASES.get(name, name)
            assert any(each in str(error) for each in names), (given, error)
            assert "\n" not in str(error), (given, error)
            return None


def check_argument(call: Callable[..., Any], given: dict[str, Any], name: str) -> None:
    """Tries an argument as every kind of number, and what is none."""
    value = given[name]
    assert outcome(call, given, name) is not None, (call, given)
    for kind in KINDS if not isinstance(value, bool) else ():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                number = kind(value)
            except (OverflowError, TypeError, ValueError):
                continue
        plain = number.item()
        if isinstance(value, int) and number != value:
            continue
        found = outcome(call, {**given, name: number}, name)
        expected = outcome(call, {**given, name: plain}, name)
        if isinstance(value, int) and isinstance(number, np.integer):
            assert found is not None, (call, name, number)
        if isinstance(value, float) and not isinstance(number, np.integer):
            assert found is not None or expected is None, (call, name, number)
        assert found is None or found == expected, (call, name, number)
    for number in NONSENSE:
        outcome(call, {**given, name: number}, name)


def check_all(call: Callable[..., Any], given: dict[str, Any]) -> None:
    """Tries each argument that is a number or a flag."""
    for name, value in given.items():
        if isinstance(value, (int, float)):
            check_argument(call, given, name)


def fields_of(config: Any) -> dict[str, Any]:
    """The fields of a small configuration that differ from None, by name."""
    own = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    given = {k: VALUES.get(k) if v is None else v for k, v in own.items()}
    return {k: v for k, v in given.items() if v is not None}


def small(config: dpfl.Mechanism) -> dpfl.Mechanism:
    """An example with as many optional numbers as go together."""
    for name, value in VALUES.items():
        if hasattr(config, name):
            with contextlib.suppress(ValueError):
                config = dataclasses.replace(config, **{name: value})
    return config


@pytest.mark.parametrize("name", sorted(dpfl.MECHANISMS))
class TestMechanisms:
    def test_fields(self, name):
        config = small(dpfl.TEST_CONFIGS[name])
        for field, value in fields_of(config).items():
            if isinstance(value, (int, float)):
                change = functools.partial(dataclasses.replace, config)
                check_argument(change, {field: value}, field)

    def test_methods(self, name):
        config = dpfl.TEST_CONFIGS[name]
        plan = dpfl.OncePerEpoch(12, 3, 4)
        known = {"dimension": 96, "sampling_probability": 1.0, "participation": plan}
        known = {**known, "noise_multiplier": 0.25, "accounting_method": "rdp"}
        for method in [each for each in dir(config) if not each.startswith("_")]:
            call = getattr(type(config), method, None)
            if not isinstance(call, types.FunctionType):
                continue
            names = list(inspect.signature(call).parameters)[1:]
            given = {each: known[each] for each in names if each in known}
            if len(given) < len(names):
                continue
            if (name, method) in REFUSED:
                assert outcome(functools.partial(call, config), given, "") is None
                continue
            check_all(functools.partial(call, config), given)
            for wrong in (None, 3, "poisson", type(plan), config):
                if "participation" in given:
                    with refuses(TypeError, "participation"):
                        call(config, **{**given, "participation": wrong})


@pytest.mark.parametrize("kind", dpfl.PARTICIPATIONS.values(), ids=lambda k: k.name)
def test_participations(kind):
    names = [field.name for field in dataclasses.fields(kind)]
    given = {name: {**VALUES, **PARTICIPATION}[name] for name in names}
    check_all(kind, given)
    plan = kind(**given)
    turns = {"first": 100, "last": 120}
    for name, value in (
        *(("first", {"rounds": 7}), ("group_of", {"round_index": 7})),
        ("most_rounds_in", turns),
    ):
        check_all(getattr(plan, name), value)
    for method in (plan.excluded_from, plan.known_from):
        check_all(method, {"round_index": 7})


RELEASE = dp_accounting.GaussianDpEvent(1.5)
CSGM = {"noise_multiplier": 1.5, "keep_fraction": 0.5, "linf_ratio": 0.25}


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (accounting.SparsifiedGaussianDpEvent, {**CSGM, "dimension": 100}),
        (factorization.Workload, {"rounds": 100, "momentum": 0.5}),
    ],
)
def test_classes(kind, given):
    """Of attrs and dataclasses; the others have their checks from the same base."""
    check_all(kind, given)


GAUSSIAN = dpfl.Gaussian(12, 1.0, 1.5)
OF_A_RUN = {"mechanism": GAUSSIAN, "participation": dpfl.FixedSize(**PARTICIPATION)}
OF_A_RUN = {**OF_A_RUN, "dimension": 96}
OF_AN_EPSILON = {**OF_A_RUN, "delta": 0.125}
EVENT = {"event": RELEASE, "delta": 0.125}
WORKLOAD = factorization.prefix_sum(8)


def calibrate_event(**given: Any) -> float:
    make = dp_accounting.GaussianDpEvent
    return accounting.calibrate_noise_multiplier(make, **given)


def ledger(rounds: Any = 3, **given: Any) -> Any:
    made = dpfl.Ledger(**given)
    made.check_room(rounds)
    made.resume_at(rounds)
    return made.epsilon, made.report().epsilon, made.cost.epsilon_after(rounds)


# A call for each public function, by its name, and arguments.
FUNCTIONS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "epsilon": (dpfl.epsilon, OF_AN_EPSILON),
    "privacy_report": (
        lambda **more: dpfl.privacy_report(**more).epsilon,
        OF_AN_EPSILON,
    ),
    "calibrate": (dpfl.calibrate, {**OF_AN_EPSILON, "epsilon": 1.5}),
    "resolve": (
        lambda **more: dpfl.resolve(**more).mechanism,
        {**OF_AN_EPSILON, "epsilon": 1.5},
    ),
    "noise": (
        lambda **more: list(dpfl.noise(**more))[:1],
        {**OF_A_RUN, "seed": 100, "first_round": 99},
    ),
    "Ledger": (ledger, {**OF_AN_EPSILON, "rounds": 100, "target_epsilon": 100.0}),
    "loss_distribution": (
        lambda **more: dpfl.loss_distribution(**more).get_epsilon_for_delta(0.125),
        {**EVENT, "interval": 0.125},
    ),
    "DpflAccountant": (
        lambda order, count, **target: (
            dpfl.DpflAccountant([order]).compose(RELEASE, count).get_epsilon(**target)
        ),
        {"order": 16.0, "count": 100, "target_delta": 0.125},
    ),
    "DpflAccountant.get_delta": (
        dpfl.DpflAccountant([16.0]).compose(RELEASE).get_delta,
        {"target_epsilon": 8.0},
    ),
    "accounting.epsilon": (lambda **more: accounting.epsilon(**more).epsilon, EVENT),
    "accounting.gaussian_delta": (
        accounting.gaussian_delta,
        {"epsilon": 1.5, "noise_multiplier": 1.5},
    ),
    "accounting.gaussian_epsilon": (
        accounting.gaussian_epsilon,
        {"delta": 0.125, "noise_multiplier": 1.5},
    ),
    "accounting.calibrate_noise_multiplier": (
        calibrate_event,
        {"target_epsilon": 1.5, "target_delta": 0.125, "guess": 2.0, "rtol": 0.125},
    ),
    "accounting.banded_stream_event": (
        functools.partial(matrix_factorization.banded_stream_event, RELEASE),
        {
            **{"rounds": 100, "bands": 2, "separation": 100, "participations": 100},
            "sampling_probability": 0.5,
        },
    ),
    "factorization.prefix_sum": (factorization.prefix_sum, {"rounds": 100}),
    "factorization.compute": (
        lambda **more: factorization.compute(WORKLOAD, "toeplitz", **more).loss,
        {"bands": 2, "separation": 2, "participations": 2},
    ),
    "mechanisms.default_linf_ratio": (
        mechanisms.default_linf_ratio,
        {"dimension": 96, "cohort_size": 120},
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    call, given = FUNCTIONS[name]
    check_all(call, given)
    for argument in {"mechanism", "participation"} & set(given):
        for wrong in (3, "gaussian", dpfl.Gaussian, dpfl.FixedSize):
            with refuses(TypeError, argument):
                call(**{**given, argument: wrong})
