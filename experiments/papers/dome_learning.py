# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Accuracy of DOME's sketch in learning a subspace: the tables of docs/dome.md.

  python -m experiments.papers.dome_learning docs/results/dome_learning.csv

One client's gradients are random combinations of a few directions; nothing is clipped.
The program writes a row for each run, and takes some minutes.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from dpfl import files, mechanisms
from dpfl.arrays import in_tensorflow as nx
from dpfl.codecs import dome, measurements
from dpfl.codecs.base import Decoded, Received
from dpfl.vectors import adaptive_sketch, randomness

# A clip so large that nothing is clipped.
_CLIP_NORM = 1e3
SEEDS = (0, 1, 2)
# Domains of a round's seed: of the sketch, of the client and of the noise.
_DOMAINS = (1, 2, 3)
SKETCH_SIZE = 32

# Settings of the first table by name: noise on each of the k numbers, and `mean`.
SETTINGS = {"no noise": (0.0, 0.0), "noise": (0.1, 0.0), "noise, mean": (0.1, 3.0)}
PAPER = {"sketch_rule": "qr", "sketch_decay": 1.0, "sketch_target": "gradient"}
CHOICES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    '`sketch_rule="qr"`': {"sketch_rule": "qr"},
    "`sketch_decay=1`": {"sketch_decay": 1.0},
    '`sketch_target="gradient"`': {"sketch_target": "gradient"},
    "`energy_fraction=0.99`": {"energy_fraction": 0.99},
    "`max_rank` = k / 8": {"max_rank": SKETCH_SIZE // 8},
    "`max_rank` = k": {"max_rank": SKETCH_SIZE},
    "`mean_removal=False`": {"mean_removal": False},
    "the paper's four choices": {**PAPER, "max_rank": SKETCH_SIZE},
}
DRIFTS = (0.0, 0.01, 0.03, 0.1)


class Learned(NamedTuple):
    """Squared L2 errors of the decoded mean of each round, float64[rounds].

    The overlaps are the shares of the subspace that the kept directions hold.
    """

    errors: np.ndarray
    overlaps: np.ndarray


def config(noise: float = 0.0, **changes: Any) -> mechanisms.Dome:
    """A sketch for one client, with given noise on each of the k numbers."""
    numbers = {"sketch_size": SKETCH_SIZE, "direction": "gradient", **changes}
    return mechanisms.Dome(1, _CLIP_NORM, noise / _CLIP_NORM, **numbers)


class Learner:
    """A configuration that learns from gradients of one length."""

    def __init__(self, numbers: mechanisms.Dome, dimension: int):
        """Initializes the learner of a `config` for dimension d."""
        self._codec = dome.DomeCodec(numbers, dimension, nx)
        self._round: Callable[..., Decoded] = tf.function(self._run_round)

    def _run_round(self, gradient: Any, number: Any, state: Any) -> Decoded:
        codec = self._codec
        seed = tf.stack([tf.cast(number, tf.int64), 99])
        shared_seed, client_seed, noise_seed = (
            randomness.fold_in(seed, domain) for domain in _DOMAINS
        )
        shared = codec.decode_broadcast(codec.broadcast(state, shared_seed))
        encoded = codec.encode(gradient, shared, client_seed)
        sums = measurements.client_sums(encoded.normed, 0.0, encoded.sums)
        total = codec.accumulate(codec.zero(), encoded.message)
        return codec.decode(Received(state, total, sums, shared, noise_seed))

    def learn(
        self,
        rounds: int,
        rank: int = 4,
        drift: float = 0,
        mean: float = 0,
        seed: int = 0,
    ) -> Learned:
        """Learns a random subspace from gradients of mean square 1.

        Args:
          rounds: Number of rounds.
          rank: Dimension of the subspace.
          drift: Radians by which each direction turns in a round, about.
          mean: Size of the part of the gradients that is the same in every round.
          seed: Seed of all randomness.
        """
        d = self._codec.dimension
        rng = np.random.default_rng(seed)
        subspace = _orthonormal(rank, d, rng)
        state, errors, overlaps = self._codec.initial_state(), [], []
        weights = mean * rng.standard_normal(rank)
        for number in range(rounds):
            subspace = subspace + drift * _orthonormal(rank, d, rng)
            subspace = np.linalg.qr(subspace.T)[0].T
            x = (weights + rng.standard_normal(rank)) / math.sqrt(rank) @ subspace
            decoded = self._round(
                tf.constant(x, tf.float32), tf.constant(number + 10_000 * seed), state
            )
            state = decoded.state
            kept = adaptive_sketch.unpack(state["basis"]).numpy()
            errors.append(np.sum((decoded.mean.numpy() - x) ** 2))
            overlaps.append(np.sum((kept @ subspace.T) ** 2) / rank)
        return Learned(np.array(errors), np.array(overlaps))


def _orthonormal(count: int, dimension: int, rng: np.random.Generator) -> np.ndarray:
    """Random orthonormal rows, float64[count, dimension]."""
    return np.linalg.qr(rng.standard_normal([dimension, count]))[0].T


_COLUMNS = ("study", "row", "column", "seed", "overlap", "excess_error")


def choices(rounds: int = 120, dimension: int = 100) -> Iterator[dict[str, Any]]:
    """A row of each run on DOME's choices: error and overlap in the last quarter."""
    both = itertools.product(CHOICES.items(), SETTINGS.items())
    for (name, changes), (setting, (noise, mean)) in both:
        numbers = config(noise, **changes)
        learner = Learner(numbers, dimension)
        floor = numbers.mean_squared_error(dimension)
        for seed in SEEDS:
            run = learner.learn(rounds, mean=mean, seed=seed)
            error = run.errors[-rounds // 4 :].mean() - floor
            overlap = run.overlaps[-rounds // 4 :].mean()
            texts = f"{overlap:.6f}", f"{error:.6f}"
            yield dict(zip(_COLUMNS, ("choices", name, setting, seed, *texts)))


def drifting(rounds: int = 150, dimension: int = 64) -> Iterator[dict[str, Any]]:
    """A row of each run with drift: overlap in the last third.

    The subspace has three directions; the sketch has half of the dimensions, with and
    without probes.
    """
    learners = {
        name: Learner(config(probes=name == "probes"), dimension)
        for name in ("probes", "no probes")
    }
    for drift, (name, learner) in itertools.product(DRIFTS, learners.items()):
        for seed in SEEDS:
            run = learner.learn(rounds, rank=3, drift=drift, seed=seed)
            numbers = f"{run.overlaps[-rounds // 3 :].mean():.6f}", ""
            yield dict(zip(_COLUMNS, ("drift", f"{drift:g}", name, seed, *numbers)))


def main(argv: Sequence[str]) -> None:
    """Writes the table to the given path."""
    rows = [*drifting(), *choices()]
    files.write_atomically(argv[0], files.csv_text(rows[0], rows, end="\r\n"))


if __name__ == "__main__":
    main(sys.argv[1:])
