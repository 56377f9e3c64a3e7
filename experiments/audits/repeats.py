# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Whether noise, or a mask, ever comes a second time where it must not.

Noise is that of a round through TFF in which one client sends zeros. Two runs of one
seed that differ in anything, two rounds, and two contrived seeds must have noise that
has nothing in common; two that differ in nothing have the same.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from dpfl import purposes
from dpfl.tasks import registry
from dpfl.training import config as config_lib
from dpfl.training import plan as plan_lib
from dpfl.training import provenance, selection

from . import adversary, finding, rounds

_DIMENSION = 1024
# A correlation times the root of the length is about N(0, 1).
_LIMIT = 6.0
# Seeds that differ in the sign of a word, as two's complement has it.
_CONTRIVED = (7, 7 + (1 << 63))
# Equal clients with masks of one half.
_EQUAL_CLIENTS = 32


@functools.lru_cache(maxsize=8)
def digest(task: str = "digits", client_lr: float = 0.1) -> str:
    """Returns the digest of a run's plan, as its key is made from.

    Args:
      task: Name of a task.
      client_lr: Learning rate of the clients.
    """
    plan = plan_lib.make_plan(
        config_lib.RunConfig(
            task=task,
            task_config=registry.make_config(task),
            mechanism="gaussian",
            mechanism_options={},
            output_dir=pathlib.Path(),
            noise_multiplier=1.0,
            rounds=1,
            client_lr=client_lr,
        )
    )
    return provenance.digest(plan)


def noise_of(
    mechanism: Any, run_digest: str, seed: int, number_of_rounds: int = 1
) -> list[np.ndarray]:
    """Returns the noise of the first rounds of a run, as an adversary sees it.

    Args:
      mechanism: Its numbers.
      run_digest: Of the run's plan.
      seed: Of the run.
      number_of_rounds: How many.
    """
    key = selection.run_key(seed, run_digest)
    own = selection.derive_seed(key, purposes.Run.MECHANISM)
    clients = mechanism.cohort_size if mechanism.sums_securely else 1
    words = np.array([selection.client_key(key, i) for i in range(clients)])
    return _noise_of(mechanism, own, words, number_of_rounds)


def _noise_of(
    mechanism: Any, own: int, words: np.ndarray, number_of_rounds: int
) -> list[np.ndarray]:
    """Returns the same from the seed of the factory and the clients' keys."""
    through = rounds.FactoryRounds(mechanism, _DIMENSION, own)
    zeros = np.zeros([len(words), _DIMENSION], np.float32)
    bits = getattr(mechanism, "bits", None)
    found = []
    for _ in range(number_of_rounds):
        released = through.run(zeros, words).release
        found.append(released if bits is None else adversary.centered(released, bits))
    return found


def runs(mechanism: Any, seed: int, more: bool) -> Iterator[finding.Finding]:
    """Yields the correlation of the noise of a run with that of others of its seed.

    Args:
      mechanism: Of the run.
      seed: Of all runs.
      more: Whether many settings are changed, or the clip and the learning rate alone.
    """
    first, second = noise_of(mechanism, digest(), seed, 2)
    yield _compared(mechanism, "two rounds of a run", first, second)
    [again] = noise_of(mechanism, digest(), seed)
    yield finding.Finding(
        check="repeats",
        mechanism=mechanism.name,
        setting="a run and the same again",
        is_sound=bool(np.array_equal(first, again)),
        detail="equal, as a run that is resumed must be",
    )
    clip = dataclasses.replace(mechanism, clip_norm=mechanism.clip_norm * 2)
    others = {
        "clip": (clip, digest()),
        "learning rate": (mechanism, digest(client_lr=0.2)),
    }
    if more:
        cohort = dataclasses.replace(mechanism, cohort_size=mechanism.cohort_size + 1)
        others["cohort"] = (cohort, digest())
        others["task"] = (mechanism, digest(task="synthetic"))
    for name, (config, run_digest) in others.items():
        [noise] = noise_of(config, run_digest, seed)
        yield _compared(mechanism, f"a run and one of another {name}", first, noise)


def contrived_seeds(mechanism: Any) -> Iterator[finding.Finding]:
    """Yields the largest correlation of noise of seeds that were chosen to collide.

    Args:
      mechanism: Of a trusted server.
    """
    words = np.zeros([1, 2], np.int64)
    noises = [
        noise for own in _CONTRIVED for noise in _noise_of(mechanism, own, words, 2)
    ]
    worst = max(
        (finding.correlation(*pair) for pair in itertools.combinations(noises, 2)),
        key=abs,
    )
    yield finding.Finding(
        check="seeds",
        mechanism=mechanism.name,
        setting="seeds 7 and 7 + 2^63, rounds 0 and 1",
        is_sound=abs(worst) < _LIMIT,
        claimed=0.0,
        found=worst,
        trials=_DIMENSION,
        detail="largest correlation in standard deviations",
    )


def masks(mechanism: Any, seed: int) -> Iterator[finding.Finding]:
    """Yields how far counts of kept coordinates of equal clients are from binomial.

    Clients with masks that have something in common keep the same coordinates, and
    counts of them vary more.

    Args:
      mechanism: A sparsified one, its noise far below a coordinate of an update.
      seed: Of the factory and the keys.
    """
    keep, size = mechanism.keep_fraction, mechanism.clip_norm / math.sqrt(_DIMENSION)
    rng = np.random.default_rng(seed)
    keys = rng.integers(-(2**63), 2**63, (_EQUAL_CLIENTS, 2), np.int64)
    composed = rounds.ComposedRounds(
        mechanism, _DIMENSION, np.full([_EQUAL_CLIENTS, _DIMENSION], size * 0.9)
    )
    for is_keyed in (True, False):
        through = rounds.FactoryRounds(mechanism, _DIMENSION, seed, is_keyed=is_keyed)
        updates = composed.updates(through.seed, 0)
        released = through.run(updates, keys).release
        kept = released / (adversary.steps_to_clip(mechanism, _DIMENSION) * size * 0.9)
        mean, variance = _EQUAL_CLIENTS * keep, _EQUAL_CLIENTS * keep * (1 - keep)
        dispersion = np.sum((kept / mechanism.clip_norm - mean) ** 2) / variance
        off = (dispersion - _DIMENSION) / math.sqrt(2 * _DIMENSION)
        yield finding.Finding(
            check="masks",
            mechanism=mechanism.name,
            setting="equal clients, "
            + ("keys" if is_keyed else "entropy of the system"),
            is_sound=abs(off) < _LIMIT,
            claimed=float(_DIMENSION),
            found=float(dispersion),
            trials=_EQUAL_CLIENTS,
            detail=f"off by {off:.2g} standard deviations",
        )


def _compared(
    mechanism: Any, setting: str, one: np.ndarray, other: np.ndarray
) -> finding.Finding:
    """Returns whether two noises have nothing in common."""
    found = finding.correlation(one, other)
    return finding.Finding(
        check="repeats",
        mechanism=mechanism.name,
        setting=setting,
        is_sound=abs(found) < _LIMIT,
        claimed=0.0,
        found=found,
        trials=one.size,
        detail="correlation in standard deviations",
    )
