# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Audit of the noise of real codecs: its tails, and whether it repeats.

    source = noise.trusted_source(mechanism)
    results = list(noise.counts(source, draws=10_000_000, seed=1))
    results += noise.runs(mechanism, seed=1, more=False)

A codec of a long vector releases the sum of no clients, or of clients that send zeros:
that is the noise alone, one draw a coordinate. Its tails are counted against its exact
distribution. Beyond 5.7 standard deviations a normal sampler in float32 has nothing
(Box-Muller with a uniform number of at least 1e-7 reaches 5.68), while a billion draws
of the claimed distribution have twelve.

Two runs of one seed that differ in any setting, two rounds, and two contrived seeds
must have unrelated noise; two equal runs have the same noise. It is the noise of a
round of the aggregator in which one client sends zeros.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import math
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Optional

import numpy as np
from scipy import special

from dpfl import codecs, mechanisms, seed_domains
from dpfl.accounting.integer import grid_numbers as numbers
from dpfl.arrays import Array
from dpfl.codecs import dome
from dpfl.codecs.base import Fields, Received
from dpfl.tasks import registry as tasks
from dpfl.training import config as config_lib
from dpfl.training import plan as plan_lib
from dpfl.training import provenance, selection
from dpfl.vectors import integers, randomness

from . import adversary, findings, library, rounds
from .library import NX

FAR = (5.0, 5.5, 5.7, 6.0, 6.5)
"""Standard deviations beyond which draws are counted if there are many."""

NEAR = (3.0, 4.0, 4.5, 5.0, 5.5)
"""Standard deviations beyond which draws are counted if there are few."""

# Standard deviation above which sums of shares have a normal distribution's tails, to
# 1e-4 of them at 6.5.
_COARSE = 1000.0
# Number of draws in one call.
_LENGTH = 1 << 20
# Draws needed to see the least size of FAR.
_MANY_DRAWS = 100_000_000
# Probability below which a count is no coincidence.
_SMALLEST_CHANCE = 1e-4
# Allowed deviation of the mean square of draws, in standard deviations.
_SPREAD_LIMIT = 5.5
_DIMENSION = 1024
# Limit of a correlation times the root of the length, which is about N(0, 1).
_LIMIT = 6.0
# Contrived seeds that differ in the sign of a word in two's complement.
_CONTRIVED = (7, 7 + (1 << 63))
# Equal clients with masks of one half.
_EQUAL_CLIENTS = 32


@dataclasses.dataclass(frozen=True)
class Source:
    """Noise as a codec releases it.

    Attributes:
      mechanism: Name of the mechanism.
      draw: Function from a seed to integers, or to floats on a grid.
      unit: Factor that makes the draws integers.
      stddev: The standard deviation, in integers.
      log_pmf: Log-probabilities of integers, if these are too coarse for a continuous
        distribution; else None.
    """

    mechanism: str
    draw: Callable[[Array], Array]
    unit: float
    stddev: float
    log_pmf: Optional[Callable[[np.ndarray], np.ndarray]] = None

    def tail(self, least: int) -> float:
        """The probability of an integer of at least that absolute value."""
        if self.log_pmf is None:
            # The sum over integers is the integral from half a step before, to 1e-9.
            return special.erfc((least - 0.5) / (self.stddev * math.sqrt(2)))
        size = np.arange(least, least + math.ceil(10 * self.stddev))
        return 2 * float(np.sum(np.exp(self.log_pmf(size))))


def trusted_source(mechanism: Any) -> Source:
    """The noise of a server, as `Codec.release` or `decode` releases it."""
    length = _LENGTH
    if isinstance(mechanism, mechanisms.ProjectAndPerturb):
        length = round(_LENGTH * mechanism.compression_rate)
    codec = codecs.make_codec(mechanism, length, arrays=library.NAME)
    names = ("l2_clipped", "linf_clipped", "kept", "clients")
    sums = collections.OrderedDict((n, NX.asarray(1.0, np.float64)) for n in names)
    nothing: Fields = collections.OrderedDict()

    def draw(seed: Array) -> Array:
        released = codec.release(Received(nothing, codec.zero(), sums, nothing, seed))
        return released["update"] if isinstance(released, dict) else released

    if isinstance(mechanism, (mechanisms.MatrixFactorization, mechanisms.Sgmf)):
        # In a stream of one row the result is a row of Z, with the scale of the mean.
        state = codec.initial_state()
        shared = codec.decode_broadcast(codec.broadcast(state, library.seed(0, 0)))
        steps = numbers.grid(1.0, 1).stddev
        unit = steps * mechanism.noise_divisor / mechanism.stddev

        def draw_row(seed: Array) -> Array:
            state = codec.initial_state()
            received = Received(state, codec.zero(), sums, shared, seed)
            return codec.decode(received).mean

        return Source(mechanism.name, draw_row, unit, _covered(steps))
    steps = adversary.steps_to_clip(mechanism, length)
    steps *= adversary.noise_multiplier(mechanism)
    return Source(mechanism.name, draw, 1.0, _covered(steps))


def _covered(steps: float) -> float:
    """The standard deviation of noise on the grid of integers."""
    return math.sqrt(steps**2 + numbers.COVER_VARIANCE)


def shares_source(mechanism: Any) -> Source:
    """The noise of all clients' shares, as the sum of encoded zeros opens it."""
    length, config, codec = _LENGTH // 4, mechanism, None
    if isinstance(config, mechanisms.Dome):
        config = dataclasses.replace(mechanism, sketch_size=length)
        codec = dome.LocalNoiseCodec(config, NX)
    made: Any = codec or codecs.make_codec(config, length, arrays=library.NAME)
    seed = library.seed(0, 0)
    shared = made.decode_broadcast(made.broadcast(collections.OrderedDict(), seed))
    zeros = NX.zeros([made.input_length], np.float32)

    def draw(seed: Array) -> Array:
        total = made.zero()
        for client in range(config.cohort_size):
            own = randomness.fold_in(seed, client)
            total = made.accumulate(total, made.encode(zeros, shared, own).message)
        return integers.center(total["update"], config.modulus_bits)

    if codec is not None:
        steps = adversary.steps_to_clip(config, length) * config.noise_multiplier
        return Source(mechanism.name, draw, 1.0, _covered(steps))
    local = config.grid(length).local_stddev_steps
    stddev = math.sqrt(config.noise_shares * config.share_variance(local))
    log_pmf = functools.partial(adversary.noise_log_pmf, config, stddev=local)
    is_coarse = stddev < _COARSE
    return Source(mechanism.name, draw, 1.0, stddev, log_pmf if is_coarse else None)


def counts(source: Source, draws: int, seed: int) -> Iterator[findings.Finding]:
    """Yields the mean square, and the counts beyond each size, of many draws.

    Args:
      source: The noise.
      draws: Least number of draws.
      seed: Seed of the draws.
    """
    sizes = FAR if draws >= _MANY_DRAWS else NEAR
    least = [math.ceil(size * source.stddev) for size in sizes]
    counts, taken, square = _counted(source, least, draws, seed)
    off = (square / source.stddev**2 - 1) * math.sqrt(taken / 2)
    yield findings.Finding(
        *("spread", source.mechanism, "mean square of the noise"),
        is_sound=abs(off) < _SPREAD_LIMIT,
        claimed=source.stddev**2,
        found=square,
        trials=taken,
        detail=f"off by {off:.2g} standard deviations",
    )
    for size, integer, count in zip(sizes, least, counts):
        expected = source.tail(integer)
        chance = findings.count_chance(count, taken, expected)
        yield findings.Finding(
            *("tails", source.mechanism, f"beyond {size:g} standard deviations"),
            is_sound=chance >= _SMALLEST_CHANCE,
            claimed=taken * expected,
            found=float(count),
            trials=taken,
            detail=f"chance {chance:.2g}",
        )


def _counted(
    source: Source, least: Sequence[int], draws: int, seed: int
) -> tuple[np.ndarray, int, float]:
    """Counts of integers of at least given sizes, the number drawn, and mean square."""

    def far(number: Array) -> tuple[Any, Array, Any]:
        own = randomness.fold_in(library.seed(seed, 77), number)
        drawn = source.draw(own)
        if drawn.dtype == np.float32:
            drawn = NX.asarray(NX.round(drawn * source.unit), np.int32)
        size = NX.abs(drawn)
        beyond = [NX.count_nonzero(size >= integer) for integer in least]
        square = NX.half_square_sum(NX.asarray(drawn, np.float32) / source.stddev)
        return beyond, square, NX.size(drawn)

    far_of = library.compiled(far)
    counts, taken, squares = np.zeros(len(least), np.int64), 0, 0.0
    number = 0
    while taken < draws:
        beyond, square, drawn = far_of(NX.asarray(number, np.int64))
        counts += [int(count) for count in beyond]
        taken += int(drawn)
        squares += 2 * float(square)
        number += 1
    return counts, taken, squares / taken * source.stddev**2


@functools.lru_cache(maxsize=8)
def digest(task: str = "digits", client_lr: float = 0.1) -> str:
    """The digest of a run's plan, from which its key is made."""
    plan = plan_lib.make_plan(
        config_lib.RunConfig(
            task=task,
            task_config=tasks.make_config(task),
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
    """The noise of the first rounds of a run, as an adversary sees it.

    Args:
      mechanism: The mechanism.
      run_digest: Digest of the run's plan.
      seed: The run's seed.
      number_of_rounds: Number of rounds.
    """
    key = selection.run_key(seed, run_digest)
    own = selection.derive_seed(key, seed_domains.RunDomain.MECHANISM)
    clients = mechanism.cohort_size if mechanism.sums_securely else 1
    words = np.array([selection.client_key(key, i) for i in range(clients)])
    return _noise_of(mechanism, own, words, number_of_rounds)


def _noise_of(
    mechanism: Any, own: int, words: np.ndarray, number_of_rounds: int
) -> list[np.ndarray]:
    """The noise of the first rounds, from the factory's seed and the clients' keys."""
    through = rounds.AGGREGATOR(mechanism, _DIMENSION, own)
    zeros = np.zeros([len(words), _DIMENSION], np.float32)
    bits = getattr(mechanism, "bits", None)
    releases = []
    for _ in range(number_of_rounds):
        released = through.run(zeros, words).release
        releases.append(
            released if bits is None else adversary.centered(released, bits)
        )
    return releases


def runs(mechanism: Any, seed: int, more: bool) -> Iterator[findings.Finding]:
    """Yields the correlation of a run's noise with that of other runs of its seed.

    Args:
      mechanism: The mechanism.
      seed: The common seed.
      more: Whether to vary the cohort and the task, besides clip and learning rate.
    """
    first, second = noise_of(mechanism, digest(), seed, 2)
    yield _compared(mechanism, "two rounds of a run", first, second)
    [again] = noise_of(mechanism, digest(), seed)
    is_same = bool(np.array_equal(first, again))
    yield findings.Finding(
        *("repeats", mechanism.name, "a run and the same again", is_same),
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


def contrived_seeds(mechanism: Any) -> Iterator[findings.Finding]:
    """Yields the largest noise correlation of seeds that were chosen to collide.

    The mechanism must have a trusted server.
    """
    words = np.zeros([1, 2], np.int64)
    noises = [
        noise for own in _CONTRIVED for noise in _noise_of(mechanism, own, words, 2)
    ]
    setting = "seeds 7 and 7 + 2^63, rounds 0 and 1"
    finding = _compared(mechanism, setting, *noises)
    yield dataclasses.replace(
        finding, check="seeds", detail=f"largest {finding.detail}"
    )


def masks(mechanism: Any, seed: int) -> Iterator[findings.Finding]:
    """Yields the deviation of counts of equal clients' kept coordinates from binomial.

    Clients with related masks keep the same coordinates, so that counts of them vary
    more.

    The mechanism must be sparsified, with noise far below a coordinate of an update.
    """
    keep, size = mechanism.keep_fraction, mechanism.clip_norm / math.sqrt(_DIMENSION)
    rng = np.random.default_rng(seed)
    keys = rng.integers(-(2**63), 2**63, (_EQUAL_CLIENTS, 2), np.int64)
    composed = rounds.ComposedRounds(
        mechanism, _DIMENSION, np.full([_EQUAL_CLIENTS, _DIMENSION], size * 0.9)
    )
    for is_keyed in (True, False):
        through = rounds.AGGREGATOR(mechanism, _DIMENSION, seed, is_keyed=is_keyed)
        updates = composed.updates(through.seed, 0)
        released = through.run(updates, keys).release
        kept = released / (adversary.steps_to_clip(mechanism, _DIMENSION) * size * 0.9)
        mean, variance = _EQUAL_CLIENTS * keep, _EQUAL_CLIENTS * keep * (1 - keep)
        dispersion = np.sum((kept / mechanism.clip_norm - mean) ** 2) / variance
        off = (dispersion - _DIMENSION) / math.sqrt(2 * _DIMENSION)
        setting = f"equal clients, {'keys' if is_keyed else 'entropy of the system'}"
        yield findings.Finding(
            *("masks", mechanism.name, setting, abs(off) < _LIMIT),
            claimed=float(_DIMENSION),
            found=float(dispersion),
            trials=_EQUAL_CLIENTS,
            detail=f"off by {off:.2g} standard deviations",
        )


def _compared(mechanism: Any, setting: str, *noises: np.ndarray) -> findings.Finding:
    """The finding whether all noises are unrelated."""
    pairs = itertools.combinations(noises, 2)
    largest = max((findings.correlation(*pair) for pair in pairs), key=abs)
    return findings.Finding(
        *("repeats", mechanism.name, setting, abs(largest) < _LIMIT),
        claimed=0.0,
        found=largest,
        trials=noises[0].size,
        detail="correlation in standard deviations",
    )
