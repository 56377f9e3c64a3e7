# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What a configuration refuses, a field at a time; the sentence names both."""

import dataclasses
from math import inf, nan

import pytest

from dpfl import mechanisms
from tests.refusals import refuses

NOISED = {"clip_norm": (0.0, inf, 1e-30, 1e30, 1e300), "noise_multiplier": (-1.0, nan)}
NOISED = {**NOISED, "cohort_size": (0, 10**12)}
ADAPTIVE = {"target_quantile": (1.5, nan), "clip_learning_rate": (0.0, 11.0)}
ADAPTIVE = {**NOISED, **ADAPTIVE, "count_stddev": (-1.0, 1e10)}
INTEGER = {
    **{**ADAPTIVE, "bits": (1, 31), "rotation": ("none",), "noise_source": ("server",)},
    **{"expected_dropout": (1.0, -0.1), "colluding_clients": (-1, 3)},
}
CSGM = {
    **{**NOISED, "rotation": ("fft",)},
    **dict.fromkeys(["keep_fraction", "linf_ratio"], (0, -0.5, 1.01, nan, inf)),
}
SKETCHED = {
    **{"compression_rate": (0.5, nan), "sketch_clip": (0.0,)},
    **{"sketch_length": (15, 0), "layers": ("a,b", "5,0", "inf", "nan")},
    "layer_rates": ("2,3", "0.5"),
}
DOME = {
    **{**NOISED, "sketch_size": (0,), "energy_fraction": (0.0,)},
    **{"sketch_decay": (1.5,)},
    **{"max_rank": (9,), "sketch_rule": ("svd",), "sketch_target": ("x",)},
    **{"direction": ("sgd",), "beta_1": (1.0, nan)},
    "second_moment_floor": (0.0,),
}
MATRIX = {
    **{"matrix_method": ("best",), "matrix_momentum": (1.0, -0.1, nan)},
    **{"matrix_schedule": ("cosine",), "matrix_buffers": (0,), "matrix_bands": (3,)},
    **{"rounds_per_epoch": (0,), "noise_stream": ("year",), "rounds": (48,)},
}
# Values out of range, by mechanism and field.
VALUES = {
    **{"gaussian": ADAPTIVE, "distributed_skellam": INTEGER, "l2_csgm": CSGM},
    **{"sketched_ddg": {**INTEGER, **SKETCHED, "threshold": (0.0,)}},
    **{"project_and_perturb": {**NOISED, **SKETCHED}},
    "sparse_recovery": {
        **{"sparsity": (0,), "measurements": (0.0,)},
        "solver_steps": (0,),
    },
    **{"dome": DOME, "dome_ddg": {**DOME, "bits": (1, 31)}},
    **{"matrix_factorization": {**NOISED, **MATRIX}, "sgmf": {**CSGM, **MATRIX}},
}
TYPES = {
    "l2_csgm": {
        **{"clip_norm": (True,), "noise_multiplier": ("1",), "keep_fraction": (False,)},
        "cohort_size": (2.5, True),
    },
    "dome": {"sketch_size": (2.5,)},
    "matrix_factorization": {"rounds_per_epoch": (True, 9.0, "9")},
}
CASES = [
    pytest.param(name, field, value, error, id=f"{name}-{field}-{value}")
    for error, table in ((ValueError, VALUES), (TypeError, TYPES))
    for name, fields in table.items()
    for field, values in fields.items()
    for value in values
]


@pytest.mark.parametrize(("name", "field", "value", "error"), CASES)
def test_bad_fields_are_refused_by_name(name, field, value, error):
    with refuses(error, field, value):
        dataclasses.replace(mechanisms.TEST_CONFIGS[name], **{field: value})


RUN = {"rounds_per_epoch": None, "noise_stream": "run"}
TOEPLITZ = {**RUN, "rounds": 48, "matrix_method": "toeplitz", "matrix_buffers": None}
BANDED = {"matrix_method": "banded", "matrix_buffers": None}
OPTIMAL = {"matrix_method": "optimal", "matrix_buffers": None}


@pytest.mark.parametrize("name", ["matrix_factorization", "sgmf"])
@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        (BANDED, ("matrix_bands", "banded")),
        (
            {**BANDED, "rounds_per_epoch": 9, "matrix_bands": 10},
            ("matrix_bands", 10, 9),
        ),
        (
            {**OPTIMAL, "matrix_file": "a", "matrix_momentum": 0.9},
            ("matrix_momentum", 0.9, "matrix_file"),
        ),
        (RUN, ("rounds", "noise_stream", "run")),
        ({**RUN, "rounds": 0}, ("rounds", 0)),
        ({**TOEPLITZ, "matrix_bands": 49}, ("matrix_bands", 49)),
        ({"rounds": 48}, ("rounds", 48, "noise_stream", "epoch")),
    ],
)
def test_fields_that_do_not_fit_each_other_are_refused(name, changes, parts):
    with refuses(ValueError, *parts):
        dataclasses.replace(mechanisms.TEST_CONFIGS[name], **changes)


@pytest.mark.parametrize(
    ("field", "value"),
    [("population", 10**30), ("cohort_size", 10**12), ("rounds", 10**10)],
)
def test_impossible_numbers_of_clients_and_rounds_are_refused(field, value):
    fixed = mechanisms.FixedSize(population=10, cohort_size=10, rounds=1)
    with refuses(ValueError, field, value):
        dataclasses.replace(fixed, **{field: value})
