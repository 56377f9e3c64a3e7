# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Computations with the same results in each library, and digests of them.

No operation on floats rounds in these cases, but for products of two floats: updates
are small integers over a power of two, noise multipliers are powers of two, Hadamard
transforms are of 16 or 256 coordinates, and no clip binds. `digests.csv` has what numpy
computed; `python -m tests.arrays.cases` writes it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dpfl
from dpfl import arrays, factorization, files, noise_streams
from dpfl.vectors import (
    count_sketch,
    gaussian_sketch,
    integer_noise,
    masks,
    randomness,
    rotation,
    rounding,
)
from tests.arrays import libraries

FILE = Path(__file__).with_name("digests.csv")
DIMENSION, CLIENTS = 256, 4
# Mechanisms whose eigenvectors no two libraries share: `test_dome` compares them.
BY_SUBSPACE = {"dome", "dome_ddg"}
# Mechanisms without exact inputs but zeros. The entries of a drawn Gaussian matrix have
# all the bits of a float32, so that sums of them round, in each library in its order: in
# the matmul of the sketch; for an update of one coordinate, whose sketch is exact, in the
# matmul of the rotation after it; and in the Gram matrix and `eigvalsh`, from which the
# step is. The matrix itself is in "matrices".
INEXACT = {"sparse_recovery"}
# Mechanisms with streams of real coefficients; `_streams` has whole ones.
STREAMED = {"matrix_factorization", "sgmf"}
# Mechanisms whose integers are compared in the loops of all frameworks.
SUMMED = ("gaussian_adaptive", "l2_csgm", "distributed_discrete_gaussian")
PARTS = ("shared", "messages", "sums", "total", "released")


def _compared() -> dict[str, Any]:
    configs = {
        name: dataclasses.replace(config, cohort_size=CLIENTS)
        for name, config in dpfl.TEST_CONFIGS.items()
        if name not in BY_SUBSPACE
    }
    for name, config in configs.items():
        if name != "none":
            configs[name] = config.with_noise_multiplier(0.25)
    for name in ("sketched_ddg", "project_and_perturb"):
        # A sketch of 256 numbers.
        configs[name] = dataclasses.replace(configs[name], compression_rate=1.0)
    for name in ("gaussian", "distributed_skellam"):
        changed = dataclasses.replace(configs[name], adaptive_clipping=True)
        configs[f"{name}_adaptive"] = changed
    return configs


# Mechanisms by case.
COMPARED = _compared()
EXACT = {name: config for name, config in COMPARED.items() if name not in INEXACT}
for _name in STREAMED:
    EXACT[_name] = dataclasses.replace(
        EXACT[_name], matrix_method="identity", matrix_buffers=None
    )


def exact_updates() -> np.ndarray:
    """Updates of norms below 1, float32[CLIENTS, DIMENSION]."""
    steps = np.random.default_rng(0).integers(-8, 9, [CLIENTS, DIMENSION])
    return (steps / 128).astype(np.float32)


def generic_updates() -> np.ndarray:
    """Updates of norms below and above 1, float32[CLIENTS, DIMENSION]."""
    values = np.random.default_rng(1).standard_normal([CLIENTS, DIMENSION])
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return (values * [[0.3], [0.9], [2.0], [7.0]]).astype(np.float32)


def _random(nx: Any, seed: Any) -> Iterator[tuple[str, Any]]:
    yield "fold_in", randomness.fold_in(seed, 3, -1)
    for dtype in (np.uint32, np.int64):
        name = np.dtype(dtype).name
        yield f"words_{name}", arrays.of(seed).random_words(seed, 1001, dtype)
    yield "uniform", arrays.of(seed).uniform(seed, 1001)
    yield "float_uniform", arrays.of(seed).float_uniform(seed, 1001)
    yield "below", arrays.of(seed).below(seed, 1001, 37)
    yield "rademacher", randomness.rademacher(seed, 1001)


def _masks(nx: Any, seed: Any) -> Iterator[tuple[str, Any]]:
    vector = nx.asarray(np.arange(1, 4097), np.float32)
    for fraction in (1.0, 0.1):
        mask = masks.build_mask(4096, fraction)
        values, number = mask.gather(vector, seed)
        yield f"gather_{fraction:g}", np.asarray(values)[: int(number)]
        steps = nx.asarray(values, np.int32)
        added, _ = mask.scatter_add(nx.zeros([4096], np.int32), steps, seed)
        yield f"scatter_{fraction:g}", added


def _rotations(nx: Any, seed: Any) -> Iterator[tuple[str, Any]]:
    steps = np.random.default_rng(2).integers(-8, 9, 768)
    vector = nx.asarray(steps, np.float32)
    every = {
        "hadamard": rotation.HadamardRotation(256),
        "block_hadamard": rotation.HadamardRotation(768),
        "overlap": rotation.OverlapRotation(300),
    }
    for name, rotate in every.items():
        expanded = rotate.expand(seed)
        rotated = rotate.rotate(vector[: rotate.length], expanded)
        yield name, rotated
        yield f"{name}_back", rotate.invert(rotated, expanded)


def _rounding(nx: Any, seed: Any) -> Iterator[tuple[str, Any]]:
    quarters = np.random.default_rng(3).integers(-99, 100, 1001) / 4
    vector = nx.asarray(quarters, np.float32)
    yield "randomized_round", rounding.randomized_round(vector, seed, 1e4, 99.0)
    yield "round_within", rounding.round_within(vector, 10**8)


def _noise(nx: Any, seed: Any) -> Iterator[tuple[str, Any]]:
    for kind, stddevs in {
        "discrete_gaussian": (0.3, 300.0, 2.0**18, 2.0**22),
        "skellam": (5.0,),
    }.items():
        for stddev in stddevs:
            sample = integer_noise.NOISE[kind](stddev).sample
            draw = libraries.traced(nx, functools.partial(sample, length=4097))
            yield f"{kind}_{stddev:g}", draw(seed)


def _streams(nx: Any, seed: Any) -> Iterator[tuple[str, Any]]:
    """Rows of streams with whole coefficients, of given rows of Z."""
    workload = factorization.prefix_sum(6)
    steps = np.random.default_rng(4).integers(-(1 << 20), 1 << 20, [6, 257])
    z = nx.asarray(steps / (1 << 18), np.float32)
    bands = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    banded = factorization.ToeplitzFactors(bands)
    for found in (
        factorization.Factorization(workload, "banded", {}, banded),
        factorization.compute(workload, "honaker-online"),
    ):
        stream = noise_streams.build_stream(found, 257, nx=nx)
        memory, rows = stream.initial_memory(), []
        for place in range(6):
            row = nx.asarray(place, np.int32)
            noise, memory = stream.step(lambda at: nx.take(z, at, axis=0), row, memory)
            rows.append(np.asarray(noise))
        yield found.method, np.stack(rows)


SKETCHES = {
    "one_row": count_sketch.ShiftSketch(600, 1, 100),
    "partly_filled": count_sketch.ShiftSketch(600, 16, 7),
    "no_compression": count_sketch.ShiftSketch(600, 4, 150),
    "grouped": count_sketch.GroupedSketch(
        [count_sketch.ShiftSketch(200, 4, 5), count_sketch.ShiftSketch(400, 4, 6)]
    ),
}


def _sketches(nx: Any, seed: Any) -> Iterator[tuple[str, Any]]:
    """Integers, which a sketch adds and halves exactly, there and back."""
    steps = np.random.default_rng(1).integers(-50, 51, 600)
    for name, sketch in SKETCHES.items():
        padded = np.pad(steps, (0, sketch.input_length - 600))

        def there_and_back(seed: Any, vector: Any, sketch: Any = sketch) -> Any:
            expanded = sketch.expand(seed)
            encoded = sketch.encode(vector, expanded)
            return encoded, sketch.decode(encoded, expanded)

        vector = nx.asarray(padded, np.float32)
        encoded, decoded = libraries.traced(nx, there_and_back)(seed, vector)
        yield name, encoded
        yield f"{name}_back", decoded


def _matrices(nx: Any, seed: Any) -> Iterator[tuple[str, Any]]:
    yield "gaussian", gaussian_sketch.GaussianSketch(60, 17).expand(seed)


VECTORS: dict[str, Callable[[Any, Any], Iterator[tuple[str, Any]]]] = {
    "random": _random,
    "masks": _masks,
    "rotations": _rotations,
    "rounding": _rounding,
    "noise": _noise,
    "streams": _streams,
    "matrices": _matrices,
    "sketches": _sketches,
}


def of_vectors(case: str, nx: Any) -> dict[str, str]:
    """The digests of one of `VECTORS`, by part."""
    seed = nx.asarray(np.array([5, -7]), np.int64)
    return {
        part: libraries.digest(np.asarray(value))
        for part, value in VECTORS[case](nx, seed)
    }


def of_round(found: libraries.Round) -> dict[str, str]:
    """The digests of a round, by part."""
    return {part: libraries.digest(getattr(found, part)) for part in PARTS}


def stored() -> dict[str, dict[str, str]]:
    """The digests in `digests.csv`, by case and part."""
    by_case: dict[str, dict[str, str]] = {}
    for row in files.read_csv(FILE):
        by_case.setdefault(row["case"], {})[row["part"]] = row["digest"]
    return by_case


def main() -> None:
    """Writes `digests.csv`."""
    nx = arrays.named("numpy")
    found = {case: of_vectors(case, nx) for case in VECTORS}
    for case, config in EXACT.items():
        rounds = libraries.Rounds(config, exact_updates(), nx)
        found[case] = of_round(rounds.run("eager"))
    rows = [
        f"{case},{part},{digest}\n"
        for case, parts in found.items()
        for part, digest in parts.items()
    ]
    FILE.write_text("case,part,digest\n" + "".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
