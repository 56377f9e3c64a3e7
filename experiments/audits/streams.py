# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Lower bounds on epsilon of streams of noise over a whole run.

    for case in cases.STREAMS["sgmf"]:
        results += streams.StreamCanaries(case, seed=1).findings(900)

Every client of the population is a canary with its own block of coordinates. Cohorts
are chosen as in training. An adversary knows each client's turns, but not whether a
sampled client joins, and everything that others do.
"""

from __future__ import annotations

import collections
import dataclasses

import numpy as np

from dpfl import mechanisms
from dpfl.arrays import philox
from dpfl.mechanisms import matrix_factorization
from dpfl.training import selection

from . import adversary, canaries, findings, library, rounds, score_distributions

# Number of runs over which clients' turns are counted.
_COUNTED_RUNS = 50


class StreamCase(canaries.Case):
    """A mechanism with a stream over a run, and a canary in it, one of all clients."""

    @property
    def setting(self) -> str:
        """The numbers that matter, in a few words."""
        config, chosen = self.mechanism, self.participation
        words = [
            f"run of {config.rounds}, {chosen.name}, {chosen.separation} apart",
            f"{matrix_factorization.bands(config)} diagonals",
            f"z={config.noise_multiplier:g}",
        ]
        if isinstance(config, mechanisms.L2Csgm):
            words.append(f"gamma={config.keep_fraction:g}")
        if chosen.sampling_probability < 1:
            words.append(f"q={chosen.sampling_probability:g}")
        if len(self.block) > 1:
            words.append(f"spread over {len(self.block)}")
        return ", ".join(words)

    def expected(self) -> score_distributions.ScoreDistribution:
        """The scores' distribution if the mechanism is what it claims to be.

        It is a mixture over the clients' patterns of turns.
        """
        columns: collections.Counter[tuple[bool, ...]] = collections.Counter()
        everybody = _of_whole_groups(self.participation)
        for run in range(_COUNTED_RUNS):
            turns = _turns(everybody, run)
            most = turns.sum(axis=0) == everybody.max_participations
            columns.update(map(tuple, turns[:, most].T))
        parts = [self._expected_of(np.array(column)) for column in columns]
        return score_distributions.mixed(parts, list(columns.values()))

    def _expected_of(self, turns: np.ndarray) -> score_distributions.ScoreDistribution:
        """The scores of a client with these turns, bool[T]."""
        config = self.mechanism
        stddev, encoder = (
            config.stddev / config.clip_norm,
            config.factorization.encoder(),
        )
        if matrix_factorization.bands(config) > self.participation.separation:
            length = np.linalg.norm(encoder @ turns)
            return score_distributions.gaussian([length], stddev)
        keep = config.keep_fraction
        q = self.participation.sampling_probability
        return score_distributions.summed(
            score_distributions.gaussian(self.block, stddev / length, keep).sampled(q)
            for length in np.linalg.norm(encoder[:, turns], axis=0)
        )


class StreamCanaries(canaries.Trials):
    """Runs of one case, of composed rounds."""

    def __init__(self, case: StreamCase, seed: int):
        """Initializes the runs; see `canaries.Trials`."""
        super().__init__(case, seed)
        clients = case.participation.population
        self._rounds = rounds.ComposedRounds(
            *(case.mechanism, case.dimension), canaries.images(case, clients, clients)
        )
        self._encoder = case.mechanism.factorization.encoder()
        self._count = 0

    def findings(self, trials: int, *, in_tff: bool = True) -> list[findings.Finding]:
        """The bound with its verdict, and whether the aggregator has these results.

        Args:
          trials: Number of runs with the canary, and as many without.
          in_tff: Whether a run is repeated by the aggregator, for comparison.
        """
        while self.trials < trials:
            self._add(*self._run())
        results = [self._bound()]
        if in_tff:
            agrees, detail = (
                self._agrees_with_tff(),
                "a run of the aggregator is the composed one",
            )
            results.append(self._finding("composition", agrees, detail=detail))
        return results

    def _run(self) -> tuple[np.ndarray, np.ndarray]:
        """A score for each canary of a run, and which of them were present."""
        case, total = self._case, self._case.participation.rounds
        turns, joined, keys, is_there = self._coins()
        seed = library.seed(*philox.seed_from_int(self._seed, "stream"))
        first = self._count * total
        self._count += 1
        noised = self._rounds.stream(seed, first, joined, keys)
        axes = [self._rounds.axes(seed, first + t) for t in range(total)]
        sent = np.zeros_like(noised)
        if isinstance(case.mechanism, mechanisms.L2Csgm):
            # A run with the same noise and no clients: the difference is what all
            # clients sent, which an adversary knows of all but one. Without rotations
            # nobody else is in a canary's coordinates in any round.
            sent = noised - self._rounds.stream(seed, first, 0 * joined, keys)
        scores = self._scores(noised, sent, np.stack(axes), turns)
        # Clients with the most turns show most.
        counts = turns.sum(axis=0)
        most = counts == case.participation.max_participations
        return scores[most], is_there[most]

    def _coins(self) -> tuple[np.ndarray, ...]:
        """Draws turns, joins, clients' keys, and which clients are present.

        The results are bool[T, N], float32[T, N], int64[T, N, 2] and bool[N].
        """
        chosen = self._case.participation
        shape = (chosen.rounds, chosen.population, 2)
        run = int(self._rng.integers(2**60))
        is_there = self._rng.random(chosen.population) < 0.5
        turns, joined = _turns(_of_whole_groups(chosen), run), _turns(chosen, run)
        keys = self._rng.integers(-(2**63), 2**63, shape, np.int64)
        return turns, (joined & is_there).astype(np.float32), keys, is_there

    def _scores(
        self, noised: np.ndarray, sent: np.ndarray, axes: np.ndarray, turns: np.ndarray
    ) -> np.ndarray:
        """The ratio log P/Q of each canary from results of a run, float32[T, d].

        `sent` is the part of them without noise, zeros if nothing is rotated. `axes`
        are the coordinates of each round's release, float32[T, m, d], and `turns` the
        clients' turns, bool[T, N].
        """
        case, config = self._case, self._case.mechanism
        scale = config.noise_divisor / config.clip_norm
        stddev = config.stddev / config.clip_norm
        if matrix_factorization.bands(config) > case.participation.separation:
            # All turns of a client are one shift, in a coordinate of its own.
            shift = self._encoder @ turns
            rows = self._encoder @ noised * scale
            return np.sum((rows - shift / 2) * shift, axis=0) / stddev**2
        scores = np.zeros(turns.shape[1])
        for t in np.flatnonzero(turns.any(axis=1)):
            mine = axes[t, : case.dimension].T
            others = sent @ mine
            # In its round only the canary is in its coordinates; before and after,
            # rotations are others.
            others[t] = 0
            column = self._encoder[:, t]
            length = np.linalg.norm(column)
            along = (column / length) @ self._encoder @ (noised @ mine - others)
            blocks = (along * scale / length).reshape(-1, len(case.block))
            keep = config.keep_fraction
            ratio = adversary.gaussian_ratio(
                blocks, np.asarray(case.block), stddev / length, keep
            )
            q = case.participation.sampling_probability
            scores += np.where(turns[t], adversary.sampled_score(ratio, q), 0.0)
        return scores

    def _agrees_with_tff(self) -> bool:
        """Whether a run in TFF's worker gives the results of the composed one."""
        case = self._case
        through = rounds.AGGREGATOR(case.mechanism, case.dimension, self._seed)
        _, joined, keys, _ = self._coins()
        seed = through.seed
        composed = self._rounds.stream(seed, 0, joined, keys)
        for t in range(case.participation.rounds):
            updates = self._rounds.updates(seed, t) * joined[t][:, np.newaxis]
            result = through.run(updates, keys[t]).release
            size = np.max(np.abs(result))
            if np.max(np.abs(result - composed[t])) > 1e-4 * size:
                return False
        return True


def _turns(participation: mechanisms.Participation, run: int) -> np.ndarray:
    """The clients of each round of a run, bool[T, N]."""
    turns = np.zeros((participation.rounds, participation.population), bool)
    for t in range(participation.rounds):
        turns[t, selection.select_cohort(participation, run, t)] = True
    return turns


def _of_whole_groups(
    participation: mechanisms.Participation,
) -> mechanisms.Participation:
    """The same turns, in which every client of the group joins."""
    if participation.sampling_probability == 1:
        return participation
    everybody = participation.population // participation.groups
    return dataclasses.replace(participation, cohort_size=everybody)
