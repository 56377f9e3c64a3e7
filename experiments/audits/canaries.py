# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Lower bounds on epsilon of real rounds, with canaries and without.

    case = cases.of("gaussian")[0]
    results = canaries.Canaries(case, seed=1).findings(20_000, rounds_in_tff=20)

Many canaries fit into one release: each is a client with its own block of coordinates,
over which the noise is independent, and a coin decides whether it is present. For each
of them the release is that of two neighbours, all other clients being known; so a round
with m canaries is m trials. Neighbours differ by the relation that the run's event
names: the client is absent, or present with zeros.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

import numpy as np

from dpfl import accounting, mechanisms
from dpfl.accounting import events
from dpfl.arrays import philox

from . import adversary, findings, library, rounds, score_distributions

# Factor of canaries over the clip, so that a missing clip is detected.
_LENGTH = 8.0
_CONCENTRATED = "all in one coordinate"
# Trials in one call of the composed rounds.
_BATCH_TRIALS = 8192
_STREAMS = (mechanisms.MatrixFactorization, mechanisms.Sgmf)
Block = tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Case:
    """A mechanism, and a canary in it.

    Attributes:
      mechanism: The mechanism.
      dimension: d.
      participation: Participation of clients in the rounds that are released together.
      block: The canary's block of the release, of length 1 in units of the clip.
      canaries: Number of canaries in a round.
      delta: The delta at which epsilon is claimed and bounded.
      vector: Name of the canary, if there is more to say than its length.
    """

    mechanism: Any
    dimension: int
    participation: mechanisms.Participation
    block: Block
    canaries: int
    delta: float = 1e-2
    vector: str = ""

    @property
    def setting(self) -> str:
        """The numbers that matter, in a few words."""
        config = self.mechanism
        spread = f"spread over {len(self.block)}" if self.block[1:] else _CONCENTRATED
        words = [self.vector or spread, f"z={getattr(config, 'noise_multiplier', 0):g}"]
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
        """Rounds of a stream, with the canary in the first; 1 without a stream."""
        is_stream = isinstance(self.mechanism, _STREAMS)
        return self.mechanism.rounds_per_epoch if is_stream else 1

    def claim(self) -> accounting.PrivacyReport:
        """The least epsilon that is proven, with its relation."""
        return findings.tightest(
            self.mechanism, self.participation, self.dimension, self.delta
        )

    def expected(self) -> score_distributions.ScoreDistribution:
        """The scores' distribution if the mechanism is what it claims to be."""
        config = self.mechanism
        if self.stream_rounds > 1:
            length, stddev = adversary.stream_column(config)
            keep = config.keep_fraction
            return score_distributions.gaussian(self.block, stddev / length, keep)
        scores = score_distributions.of_release(config, self.dimension, self.block)
        if getattr(config, "adaptive_clipping", False):
            scores = scores.plus(score_distributions.of_count(config))
        return scores.sampled(self.participation.sampling_probability)


class Trials:
    """Trials of one case, with a canary and without, compared with its claim."""

    def __init__(self, case: Any, seed: int):
        """Initializes the trials.

        Args:
          case: The mechanism and its canary.
          seed: The seed of coins, cohorts, keys and noise.
        """
        self._case, self._seed = case, seed
        self._rng = np.random.default_rng(seed)
        self._claim, self._expected = case.claim(), case.expected()
        self._present: list[np.ndarray] = []
        self._absent: list[np.ndarray] = []

    @property
    def trials(self) -> int:
        """The number of trials with a canary, or without, whichever is smaller."""
        parts = (self._present, self._absent)
        return min(sum(scores.size for scores in part) for part in parts)

    def enough(self, trials: int) -> int:
        """The number of trials that are expected to show half of the claim."""
        return findings.enough_trials(
            self._expected, self._claim.epsilon, self._case.delta, trials
        )

    def _add(self, scores: np.ndarray, is_there: np.ndarray) -> None:
        self._present.append(scores[is_there])
        self._absent.append(scores[~is_there])

    def _bound(self) -> findings.Finding:
        """The bound with its verdict."""
        case = self._case
        scores = np.concatenate(self._present), np.concatenate(self._absent)
        own = {"mechanism": case.mechanism.name, "setting": case.setting}
        return findings.epsilon_finding(
            self._claim, case.delta, self._expected, scores, **own
        )

    def _finding(self, check: str, is_sound: bool, **more: Any) -> findings.Finding:
        case = self._case
        return findings.Finding(
            check, case.mechanism.name, case.setting, is_sound, **more
        )


class Canaries(Trials):
    """Rounds of one case, of the aggregator and composed."""

    def __init__(self, case: Case, seed: int):
        """Initializes the rounds; see `Trials`."""
        super().__init__(case, seed)
        self._clients = _clients(case)
        self._composed = rounds.ComposedRounds(
            case.mechanism, case.dimension, images(case, self._clients, case.canaries)
        )
        # Bits of the secure sum, None without one, and the largest opened value that is
        # no residue.
        self._bits: Optional[int] = getattr(case.mechanism, "bits", None)
        self._outside = 0

    def findings(
        self, trials: int, rounds_in_tff: Optional[int] = None
    ) -> list[findings.Finding]:
        """The bound with its verdict, and other findings of the rounds.

        Args:
          trials: Number of trials with the canary, and as many without.
          rounds_in_tff: Most rounds of the aggregator, the others being composed;
            None for all, as for streams; with 0 both cannot be compared.
        """
        # A stream takes several rounds, which depend on each other's state.
        if self._case.stream_rounds > 1:
            rounds_in_tff = None
        agrees = self._through_tff(trials, rounds_in_tff)
        if self.trials < trials:
            self._without_tff(trials)
        results = [self._bound()]
        if agrees is not None:
            detail = "a round of the aggregator is the composed one"
            results.append(self._finding("composition", agrees, detail=detail))
        if self._bits is not None:
            detail = "numbers opened that are not from 0 to 2^b - 1"
            seen = {"claimed": 0.0, "found": float(self._outside), "detail": detail}
            results.append(self._finding("residues", not self._outside, **seen))
        return results

    def _through_tff(self, trials: int, most_rounds: Optional[int]) -> Optional[bool]:
        """Adds trials of the aggregator; returns whether the first is as composed."""
        case = self._case
        if most_rounds == 0:
            return None
        through = rounds.AGGREGATOR(case.mechanism, case.dimension, self._seed)
        agrees, count = None, 0
        while self.trials < trials and count != most_rounds:
            count += 1
            seed, number = through.seed, through.number
            is_there, joined, keys = self._coins(1)
            updates = self._composed.updates(seed, number)
            here = self._is_in_round(is_there[0], joined[0])
            mine = updates * joined[0][:, np.newaxis]
            seen = [through.run(mine, keys[0], here)]
            if agrees is None:
                composed = self._composed.one(seed, number, mine, keys[0])
                agrees = _is_same(seen[0], composed)
            # A stream continues without the canary; its noise is that of one epoch.
            for _ in range(case.stream_rounds - 1):
                nobody = np.arange(len(mine)) == 0
                seen.append(through.run(0 * mine, keys[0], nobody))
            if case.stream_rounds == 1:
                through.forget()
                scores = self._scores(seen[0])
            else:
                scores = self._stream_scores(seen, self._composed.axes(seed, number))
            self._add(scores, is_there[0])
        return agrees

    def _without_tff(self, trials: int) -> None:
        """Adds composed rounds up to a number of trials."""
        case, first = self._case, 0
        seed = library.seed(*philox.seed_from_int(self._seed, "audit"))
        # About one of two canaries is present.
        wanted = min(_BATCH_TRIALS, round(2.2 * (trials - self.trials)) + 50)
        count = -(-wanted // case.canaries)
        while self.trials < trials:
            is_there, joined, keys = self._coins(count)
            seen = self._composed.run(seed, first, joined, keys)
            self._add(self._scores(seen), is_there.ravel())
            first += count

    def _coins(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draws which canaries are present, which clients join, and clients' keys.

        The results are bool[count, canaries], float32[count, clients] and int64[count,
        clients, 2].
        """
        case, shape = self._case, (count, self._clients)
        is_there = self._rng.random((count, case.canaries)) < 0.5
        q = case.participation.sampling_probability
        joined = np.zeros(shape, np.float32)
        joins = self._rng.random(is_there.shape) < q
        joined[:, : case.canaries] = is_there & joins
        keys = self._rng.integers(-(2**63), 2**63, (*shape, 2), "int64")
        return is_there, joined, keys

    def _is_in_round(self, is_there: np.ndarray, joined: np.ndarray) -> np.ndarray:
        """The clients that take part, some of which may send zeros: bool[n]."""
        adds = events.NAMES[events.Relation.ADD_OR_REMOVE_ONE]
        if self._claim.relation == adds and joined.any():
            return joined > 0
        return np.ones(self._clients, bool)

    def _scores(self, seen: rounds.AdversaryView) -> np.ndarray:
        """A score for each canary of each round."""
        case = self._case
        if self._bits is not None:
            opened = np.asarray(seen.release, np.int64)
            self._outside += int(np.sum((opened < 0) | (opened >> self._bits > 0)))
        length = len(case.block)
        released = np.atleast_2d(seen.release)[:, : length * case.canaries]
        blocks = released.reshape(-1, length)
        scores = adversary.log_ratio(case.mechanism, case.dimension, blocks, case.block)
        if seen.within is not None:
            scores = scores + adversary.count_ratio(
                case.mechanism, np.atleast_1d(seen.within)
            )
        q = case.participation.sampling_probability
        return adversary.sampled_score(scores, q)

    def _stream_scores(
        self, seen: list[rounds.AdversaryView], axes: np.ndarray
    ) -> np.ndarray:
        """A score for each canary, of all rounds of a stream.

        `axes` are the coordinates of the first round's release, float32[m, d].
        """
        case = self._case
        # A stream releases the input of the server's optimizer.
        results = np.stack([one.release for one in seen])
        mine = axes[: len(case.block) * case.canaries]
        return adversary.stream_ratio(case.mechanism, results @ mine.T, case.block)


def _clients(case: Case) -> int:
    """The number of clients that take part; some may be there for their noise only."""
    config = case.mechanism
    brings_noise = isinstance(config, mechanisms.Dome) or (
        getattr(config, "noise_source", None) == "clients"
    )
    if not brings_noise:
        return case.canaries
    return max(case.canaries, getattr(config, "shares_summed", config.cohort_size))


def images(case: Any, clients: int, canaries: int) -> np.ndarray:
    """The clients' images, each canary in its own block: float32[n, m].

    Args:
      case: The case.
      clients: Number of clients, n.
      canaries: Number of canaries, which come first.
    """
    length = len(case.block)
    size = adversary.release_length(case.mechanism, case.dimension)
    pictures = np.zeros([clients, size], np.float32)
    scale = _LENGTH * case.mechanism.clip_norm
    for i in range(canaries):
        pictures[i, i * length : (i + 1) * length] = np.multiply(case.block, scale)
    return pictures


def _is_same(one: rounds.AdversaryView, other: rounds.AdversaryView) -> bool:
    """Whether two releases are equal; floats up to rounding."""
    if one.release.dtype.kind == "f":
        size = np.max(np.abs(other.release))
        return bool(np.max(np.abs(one.release - other.release)) <= 1e-4 * size)
    count, other_count = (np.asarray(seen.within) for seen in (one, other))
    same_count = np.array_equal(count, other_count)
    return np.array_equal(one.release, other.release) and same_count
