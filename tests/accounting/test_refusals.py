# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What accounting refuses, an argument at a time; the sentence names both."""

import functools
from math import inf, nan

import dp_accounting
import numpy as np
import pytest

from dpfl import accounting
from dpfl.accounting import gaussian, k_of_t, lower_bounds, one_run
from dpfl.accounting.balls_in_bins import BallsInBinsDpEvent
from dpfl.accounting.integer import grid_numbers
from dpfl.accounting.integer.summed_noise import DiscreteGaussianNoise, SkellamNoise
from dpfl.accounting.integer.whole_shifts import shift_rate
from dpfl.accounting.matrix_factorization import banded_stream_event
from dpfl.accounting.min_separation import MinSeparationDpEvent
from tests.accounting.event_names import GAUSSIAN, L2, LINF, SLOT
from tests.refusals import refuses

MASKED = {"noise_multiplier": 1.0, "keep_fraction": 0.1, "linf_ratio": 0.1}
MASKED = {**MASKED, "dimension": 10, "sampling_probability": 0.5}
BAD_MASKED = {
    **{"noise_multiplier": (-1.0, nan, inf), "linf_ratio": (0.0, "1")},
    **{"keep_fraction": (0.0, 1.01, True), "dimension": (0, 10.0)},
    "sampling_probability": (1.5, -0.1),
}
INTEGERS = {"noise_clients": 100, "local_stddev": 0.5, "granularity": 1.0}
INTEGERS = {**INTEGERS, "clip_norm": 1.0, "dimension": 1}
BAD_INTEGERS = {
    **{"noise_clients": (0, True), "granularity": (-1.0,), "dimension": (2.5,)},
    **{"local_stddev": (0.0, nan, 1e12, 1e300), "sampling_probability": (1.5,)},
    **{"clip_norm": (inf, 1e-200, 1e-31, 1e16, 1e200), "max_coordinate": (0.0,)},
}
DDG = accounting.DistributedDiscreteGaussianDpEvent
SKELLAM = accounting.DistributedSkellamDpEvent
OWN_NOISE = DDG(100, 0.1, 0.01, 1.0, 64)
STREAM = {"release": GAUSSIAN(1.0), "rounds": 4, "bands": 2, "separation": 2}
WAITS = {"noise_multiplier": 1.0, "columns": [[1.0, 0.5], [1.0, 0.0]]}
WAITS = {**WAITS, "separation": 2, "probability": 0.5}
SLOTS = {"round_event": GAUSSIAN(1.0), "rounds": 4, "slots": 5}
SETS = {"noise_multiplier": 1.0, "rounds": 12, "k": 3, "of_rounds": 12}
RATE = {"orders": [2.0], "noise": DiscreteGaussianNoise(5, 1.0), "max_shift": 1}
BUDGET = {"make_event": GAUSSIAN, "target_epsilon": 1.0, "target_delta": 1e-5}
SCORES = {"present": np.zeros(9), "absent": np.zeros(9), "delta": 0.1}
CANARIES = {"scores": np.zeros(9), "is_in": np.arange(9) % 2 > 0, "delta": 0.1}
BAD_ORDERS = ([0.9, 2.0], [2, nan], [-inf], [], ["a"], ["2"], "'2'", {2: 3})
TARGETS = (nan, -1e-5, True, None, "1e-5", 1j)
BOOK = accounting.DpflAccountant([2.0, inf]).compose(GAUSSIAN(1.0))
# A function, arguments that it takes, and others that it refuses.
TABLE = [
    *((kind, MASKED, BAD_MASKED) for kind in (L2, LINF)),
    *((kind, INTEGERS, BAD_INTEGERS) for kind in (DDG, SKELLAM)),
    (
        *(accounting.MatrixFactorizationDpEvent, {}),
        {"noise_multiplier": (-1.0, nan, inf, True, "1", None)},
    ),
    (
        *(banded_stream_event, STREAM),
        {"rounds": (0,), "sampling_probability": (1.5,), "release": (OWN_NOISE,)},
    ),
    (banded_stream_event, STREAM, {"release": (L2(1.0, 0.1, 0.1, 10, 0.5),)}),
    (
        *(MinSeparationDpEvent, WAITS),
        {"separation": (1,), "probability": (0.0, 1.5), "columns": (np.ones([3, 2]),)},
    ),
    (
        *(BallsInBinsDpEvent, {"noise_multiplier": 1.0}),
        {"gram": (np.ones((2, 3)), [[1, -0.1], [-0.1, 1]], [[4, 0], [3.6, 4]])},
    ),
    (SLOT, SLOTS, {"slots": (3.9,), "rounds": (0,)}),
    (SLOT, SLOTS, {"round_event": (dp_accounting.NoOpDpEvent(), OWN_NOISE)}),
    (
        *(gaussian.FixedSizeDpEvent, {"fraction": 0.1}),
        {"round_event": (accounting.MatrixFactorizationDpEvent(2.0), OWN_NOISE)},
    ),
    (k_of_t.KOfTDpEvent, SETS, {"rounds": (13,), "k": (13, 0)}),
    (k_of_t.KOfTDpEvent, {**SETS, "chance": 0.1}, {"k": (12,)}),
    (shift_rate, RATE, {"orders": ([1.0],), "max_shift": (0,)}),
    (shift_rate, {**RATE, "noise": SkellamNoise(1.0)}, {"max_shift": (0,)}),
    (
        *(DiscreteGaussianNoise, {"count": 5, "stddev": 1.0}),
        {"count": (0, 2.5), "stddev": (nan, -1.0, 0.0, True)},
    ),
    (SkellamNoise, {}, {"variance": (inf, 0.0)}),
    (
        *(grid_numbers.grid, {"noise_multiplier": 1.0, "clients": 100}),
        {"noise_multiplier": (0.0,), "linf_ratio": (1.5,), "clients": (0,)},
    ),
    (
        *(accounting.calibrate_noise_multiplier, BUDGET),
        {
            **{"target_epsilon": (0.0, nan, True), "target_delta": (0.0, 1.0, "1e-5")},
            **{"rtol": (0.0, 1.0), "accounting_method": ("moments",)},
            "orders": ([0.5],),
        },
    ),
    (
        *(accounting.epsilon, {"event": GAUSSIAN(1.0), "delta": 0.1}),
        {"delta": (0,), "accounting_method": ("x",)},
    ),
    (
        *(accounting.gaussian_epsilon, {"noise_multiplier": 1.0}),
        {"delta": (0.0, 1.0, -1.0, nan, True, "a")},
    ),
    (L2(1.0, 0.1, 0.1, 10).rdp, {}, {"orders": ([1.0], [0.5, 2], [nan], [inf], "x")}),
    (accounting.DpflAccountant, {}, {"orders": BAD_ORDERS}),
    (
        *(accounting.DpflAccountant, {}),
        {"neighboring_relation": ("add_or_remove", 1, None)},
    ),
    *(
        (call, {}, {f"target_{name}": TARGETS})
        for name, calls in {
            "delta": (BOOK.get_epsilon, BOOK.get_epsilon_and_optimal_order),
            "epsilon": (BOOK.get_delta, BOOK.get_delta_and_optimal_order),
        }.items()
        for call in calls
    ),
    (
        *(lower_bounds.clopper_pearson, {"successes": 1, "trials": 10, "error": 0.1}),
        {"successes": (11,), "error": (0.0,)},
    ),
    (
        *(lower_bounds.epsilon_lower_bound, SCORES),
        {"present": (np.zeros(3),), "absent": (np.full(9, nan),)},
    ),
    (one_run.lower_bounds, CANARIES, {"delta": (0.0,), "confidence": (1.0,)}),
]
CASES = [
    pytest.param(functools.partial(call, **good), name, value, id=f"{name}-{i}-{j}")
    for i, (call, good, bad) in enumerate(TABLE)
    for name, values in bad.items()
    for j, value in enumerate(values)
]


@pytest.mark.parametrize(("call", "name", "value"), CASES)
def test_bad_arguments_are_refused_by_name(call, name, value):
    is_shown = isinstance(value, (int, float, str, complex, type(None)))
    shown = [value] if is_shown else []
    if isinstance(value, dp_accounting.DpEvent):
        shown = [type(value).__name__]
    with refuses((TypeError, ValueError), name, *shown):
        call(**{name: value})


@pytest.mark.parametrize("kind", [DDG, SKELLAM])
def test_too_much_integer_noise_is_named_so(kind):
    """For a calibration, which goes on at the other side."""
    with refuses(accounting.NoiseTooLargeError, "local_stddev", 1e12):
        kind(**{**INTEGERS, "local_stddev": 1e12})
