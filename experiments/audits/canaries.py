# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Lower bounds on epsilon of real rounds, with canaries and without.

Many canaries fit into one release: each is a client of its own with a block of
coordinates of its own, over which the noise is independent, and a coin says whether it
is there. For each of them the release is that of two neighbours, everybody else being
known; so a round with m canaries is m trials. How neighbours differ is the relation
that the run's event names: the client is not there, or it is there with zeros.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from dpfl import accounting, mechanisms
from dpfl.accounting import events
from dpfl.vectors import randomness

from . import adversary, bounds, claims, finding, rounds, score_laws, simulators

# Canaries are longer than the clip, so that a clip that is not applied shows.
_LENGTH = 8.0
# Trials in one call of the composed rounds.
_BATCH_TRIALS = 8192
_STREAMS = (mechanisms.MatrixFactorization, mechanisms.Sgmf)


@dataclasses.dataclass(frozen=True)
class Case:
    """A mechanism, and a canary in it.

    Attributes:
      mechanism: Its numbers.
      dimension: d.
      participation: Of all rounds that are released together.
      vector: What the canary is called.
      block: The canary where it appears in the release, of length 1 in units of the
        clip.
      canaries: How many are in a round.
      delta: At which epsilon is claimed and bounded.
    """

    mechanism: Any
    dimension: int
    participation: mechanisms.Participation
    vector: str
    block: tuple[float, ...]
    canaries: int
    delta: float = 1e-3

    @property
    def setting(self) -> str:
        """Returns the numbers that matter, in a few words."""
        config = self.mechanism
        words = [self.vector, f"z={getattr(config, 'noise_multiplier', 0):g}"]
        if isinstance(config, mechanisms.L2Csgm):
            words.append(f"gamma={config.keep_fraction:g}")
        if self.participation.sampling_probability < 1:
            words.append(f"q={self.participation.sampling_probability:g}")
        if config.bits is not None:
            words.append(f"{config.bits} bits")
        if getattr(config, "adaptive_clipping", False):
            words.append("adaptive clip")
        if getattr(config, "noise_source", "") == "helpers":
            words.append("helpers")
        if getattr(config, "expected_dropout", 0):
            words.append(f"{_clients(self)} of {config.cohort_size} left")
        return ", ".join(words)

    @property
    def stream_rounds(self) -> int:
        """Rounds of a stream, the canary being in the first; 1 for no stream."""
        is_stream = isinstance(self.mechanism, _STREAMS)
        return self.mechanism.rounds_per_epoch if is_stream else 1

    def claim(self) -> accounting.PrivacyReport:
        """Returns the least epsilon that is proven, and for which relation."""
        return claims.tightest(
            self.mechanism, self.participation, self.dimension, self.delta
        )

    def law(self) -> score_laws.Law:
        """Returns the law of the scores if the mechanism is what it claims to be."""
        config = self.mechanism
        if self.stream_rounds > 1:
            length, stddev = adversary.stream_column(config)
            keep = getattr(config, "keep_fraction", 1.0)
            return score_laws.gaussian(self.block, stddev / length, keep)
        law = score_laws.of_release(config, self.dimension, self.block)
        if getattr(config, "adaptive_clipping", False):
            law = law.plus(score_laws.of_count(config))
        return law.sampled(self.participation.sampling_probability)


class Canaries(bounds.Claimed):
    """Rounds of one case, through TFF's worker and composed."""

    def __init__(self, case: Case, seed: int):
        """Initializes the rounds.

        Args:
          case: The mechanism and its canary.
          seed: Of coins, keys and noise.
        """
        super().__init__(case.claim(), case.law(), case.delta)
        self._case = case
        self._seed = seed
        self._rng = np.random.default_rng(seed)
        self._clients = _clients(case)
        self._composed = rounds.ComposedRounds(
            case.mechanism, case.dimension, _images(case, self._clients)
        )
        self._present: list[np.ndarray] = []
        self._absent: list[np.ndarray] = []
        # What a secure sum opened that is no residue; None where there is none.
        self._bits: Optional[int] = getattr(case.mechanism, "bits", None)
        self._outside = 0

    @property
    def trials(self) -> int:
        """How many there were with a canary, or without, whichever are fewer."""
        parts = (self._present, self._absent)
        return min(sum(scores.size for scores in part) for part in parts)

    def findings(
        self, trials: int, rounds_in_tff: Optional[int] = None
    ) -> list[finding.Finding]:
        """Returns the bound with its verdict, and what else the rounds showed.

        Args:
          trials: With the canary, and as many without.
          rounds_in_tff: How many rounds at most go through TFF, the others being
            composed; None for all, as it is of streams; with 0 both cannot be compared.
        """
        # A stream takes several rounds, which depend on each other's state.
        if self._case.stream_rounds > 1:
            rounds_in_tff = None
        agrees = self._through_tff(trials, rounds_in_tff)
        if self.trials < trials:
            self._without_tff(trials)
        case, claim = self._case, self._claim
        scores = np.concatenate(self._present), np.concatenate(self._absent)
        own = {"mechanism": case.mechanism.name, "setting": case.setting}
        found = [bounds.epsilon_finding(claim, case.delta, self._law, scores, **own)]
        if agrees is not None:
            composition = finding.Finding(
                check="composition",
                is_sound=agrees,
                detail="a round through TFF is the composed one",
                **own,
            )
            found.append(composition)
        if self._bits is not None:
            residues = finding.Finding(
                check="residues",
                is_sound=not self._outside,
                claimed=0.0,
                found=float(self._outside),
                detail="numbers opened that are not from 0 to 2^b - 1",
                **own,
            )
            found.append(residues)
        return found

    def _through_tff(self, trials: int, most_rounds: Optional[int]) -> Optional[bool]:
        """Adds trials of the real factory; says whether the first is as composed."""
        case = self._case
        if most_rounds == 0:
            return None
        through = rounds.FactoryRounds(case.mechanism, case.dimension, self._seed)
        agrees, count = None, 0
        while self.trials < trials and count != most_rounds:
            count += 1
            seed, number = through.seed, through.number
            is_there, joined, keys = self._coins(1)
            updates = self._composed.updates(seed, number)
            here = self._is_in_round(is_there[0], joined[0])
            mine = updates * joined[0][:, np.newaxis]
            seen = [through.run(mine[here], keys[0][here])]
            if agrees is None:
                composed = self._composed.one(seed, number, mine, keys[0])
                agrees = _is_same(seen[0], composed)
            # A stream goes on without the canary; its noise is that of one epoch.
            for _ in range(case.stream_rounds - 1):
                nobody = np.zeros([1, case.dimension], np.float32)
                seen.append(through.run(nobody, keys[0][:1]))
            if case.stream_rounds == 1:
                through.forget()
            if case.stream_rounds == 1:
                scores = self._scores(seen[0])
            else:
                scores = self._stream_scores(seen, self._composed.axes(seed, number))
            self._add(scores, is_there[0])
        return agrees

    def _without_tff(self, trials: int) -> None:
        """Adds composed rounds until there are so many trials."""
        case, first = self._case, 0
        seed = tf.constant(randomness.seed_from_int(self._seed, "audit"), tf.int64)
        # Of two canaries one is there, or a few more or less.
        wanted = min(_BATCH_TRIALS, round(2.2 * (trials - self.trials)) + 50)
        count = -(-wanted // case.canaries)
        while self.trials < trials:
            is_there, joined, keys = self._coins(count)
            seen = self._composed.run(seed, first, joined, keys)
            self._add(self._scores(seen), is_there.ravel())
            first += count

    def _coins(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns which canaries there are, which clients join, and clients' keys.

        Args:
          count: How many rounds.

        Returns:
          bool[count, canaries], float32[count, clients] and int64[count, clients, 2].
        """
        case, shape = self._case, (count, self._clients)
        is_there = self._rng.random((count, case.canaries)) < 0.5
        q = case.participation.sampling_probability
        joined = np.zeros(shape, np.float32)
        joins = self._rng.random(is_there.shape) < q
        joined[:, : case.canaries] = is_there & joins
        keys = self._rng.integers(-(2**63), 2**63, (*shape, 2), np.int64)
        return is_there, joined, keys

    def _is_in_round(self, is_there: np.ndarray, joined: np.ndarray) -> np.ndarray:
        """Returns the clients that take part, of whom some may send zeros: bool[n]."""
        adds = events.NAMES[events.Relation.ADD_OR_REMOVE_ONE]
        if self._claim.relation == adds and joined.any():
            return joined > 0
        return np.ones(self._clients, bool)

    def _add(self, scores: np.ndarray, is_there: np.ndarray) -> None:
        self._present.append(scores[is_there])
        self._absent.append(scores[~is_there])

    def _scores(self, seen: rounds.Seen) -> np.ndarray:
        """Returns a score for each canary of each round."""
        case = self._case
        if self._bits is not None:
            opened = np.asarray(seen.release, np.int64)
            self._outside += int(np.sum((opened < 0) | (opened >> self._bits > 0)))
        length = len(case.block)
        released = np.atleast_2d(seen.release)[:, : length * case.canaries]
        blocks = released.reshape(-1, length)
        found = adversary.log_ratio(case.mechanism, case.dimension, blocks, case.block)
        if seen.within is not None:
            found = found + adversary.count_ratio(
                case.mechanism, np.atleast_1d(seen.within)
            )
        q = case.participation.sampling_probability
        return simulators.sampled_score(found, q)

    def _stream_scores(self, seen: list[rounds.Seen], axes: np.ndarray) -> np.ndarray:
        """Returns a score for each canary, of all rounds of a stream.

        Args:
          seen: Of each round.
          axes: float32[m, d], the coordinates of the first round's release.
        """
        case = self._case
        # What a stream releases is what the server's optimizer is given.
        results = np.stack([one.release for one in seen])
        mine = axes[: len(case.block) * case.canaries]
        return adversary.stream_ratio(case.mechanism, results @ mine.T, case.block)


def _clients(case: Case) -> int:
    """Returns how many clients take part; some may be there for their noise alone."""
    config = case.mechanism
    brings_noise = isinstance(config, mechanisms.Dome) or (
        getattr(config, "noise_source", None) == "clients"
    )
    if not brings_noise:
        return case.canaries
    return max(case.canaries, getattr(config, "shares_summed", config.cohort_size))


def _images(case: Case, clients: int) -> np.ndarray:
    """Returns float32[n, m]: each canary in a block of its own."""
    length = len(case.block)
    size = adversary.release_length(case.mechanism, case.dimension)
    images = np.zeros([clients, size], np.float32)
    scale = _LENGTH * case.mechanism.clip_norm
    for i in range(case.canaries):
        images[i, i * length : (i + 1) * length] = np.multiply(case.block, scale)
    return images


def _is_same(one: rounds.Seen, other: rounds.Seen) -> bool:
    """Returns whether two releases are equal; floats up to their rounding."""
    if one.release.dtype.kind == "f":
        size = np.max(np.abs(other.release))
        return bool(np.max(np.abs(one.release - other.release)) <= 1e-4 * size)
    one_count, other_count = (
        np.zeros(0) if seen.within is None else seen.within for seen in (one, other)
    )
    same_count = np.array_equal(one_count, other_count)
    return np.array_equal(one.release, other.release) and same_count
