# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The noise that runs need by dpfl, by the best other accountant, and in truth.

  python -m tools.tightness docs/results/tightness.csv [--run=WORDS]

It recomputes dpfl's noise and a lower bound on the true noise, for all runs of
`tightness.csv` or those with WORDS in their names. The noise of other accountants is
kept as the table has it; docs/privacy/tightness.md has the calls that computed it.
CSGM's cohorts of two of 16 rounds are of one client, so that no masks of others hide
it.

The truth is bounded from below by two neighbours: with less noise they break the
budget. The characteristic function of their loss is a sum over a grid or over integers;
its power is that of all releases, which a Fourier series inverts. There is no directed
rounding: errors are below 1e-5. A loss of many rounds at once is sampled, and three
standard errors are subtracted. Nothing here uses dpfl.accounting.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Union

import numpy as np
from scipy import fft, optimize, special, stats

from dpfl import files, mechanisms, planning
from experiments import tables

Row = Mapping[str, str]
DIMENSION = 1_018_174
_STEP = 0.005
_SERIES = 1 << 14
# Log of the mass beyond the ends of a series.
_BEYOND = -34.0
_BATCHES, _DRAWS = 20, 40_000
# Relative tolerance of the noise, which is rounded down by as much.
_TOLERANCE = 1e-5


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two neighbours' distributions on the same points, float64 [m] each.

    Attributes:
      loss: log(P/Q), where P is with the client.
      given: The masses of P.
      without: The masses of Q.
    """

    loss: np.ndarray
    given: np.ndarray
    without: np.ndarray

    def sampled(self, q: float) -> Pair:
        """The pair if the client joins with probability q."""
        rest = math.log1p(-q) if q < 1 else -math.inf
        loss = np.logaddexp(rest, self.loss + math.log(q))
        return Pair(loss, (1 - q) * self.without + q * self.given, self.without)

    def summed(self, count: int) -> Pair:
        """The loss of independent pairs together, in equal steps."""
        laws = self.given, self.without
        ends = [_ends(self.loss, law, count) for law in laws]
        low, high = min(ends)[0], max(high for _, high in ends)
        loss = np.linspace(low, high, _SERIES, endpoint=False)
        return Pair(loss, *(_sum(self.loss, law, count, loss) for law in laws))

    def drawn(
        self, with_client: np.ndarray, generator: np.random.Generator
    ) -> np.ndarray:
        """Losses of independent draws, of P where the client is and else of Q."""
        places = np.empty(with_client.shape, np.int64)
        for law, where in ((self.given, with_client), (self.without, ~with_client)):
            chances = np.cumsum(law) / np.sum(law)
            uniform = generator.random(np.count_nonzero(where))
            places[where] = np.searchsorted(chances, uniform)
        return self.loss[places]

    def delta(self, epsilon: float) -> float:
        """The larger hockey-stick divergence of both directions."""
        there, back = (
            -np.expm1(np.minimum(epsilon - sign * self.loss, 0)) for sign in (1, -1)
        )
        return float(max(self.given @ there, self.without @ back))


def _ends(loss: np.ndarray, law: np.ndarray, count: int) -> tuple[float, float]:
    """The points where Chernoff's bounds on the tails of a sum are small."""
    rates = np.geomspace(1e-3, 300, 60) / (np.std(loss) + 1e-300)
    ends = []
    for sign in (-1, 1):
        logs = special.logsumexp(sign * rates[:, None] * loss, axis=1, b=law)
        ends.append(sign * float(np.min((count * logs - _BEYOND) / rates)))
    return ends[0], ends[1]


def _sum(
    loss: np.ndarray, law: np.ndarray, count: int, points: np.ndarray
) -> np.ndarray:
    """Masses of the sum of `count` losses of a law at equally spaced points."""
    width = len(points) * (points[1] - points[0])
    waves = np.zeros(len(points) // 2 + 1, np.complex128)
    for first in range(0, len(waves), 32):
        u = 2 * math.pi / width * np.arange(first, min(first + 32, len(waves)))
        one = np.exp(1j * u[:, None] * loss) @ law / np.sum(law)
        waves[first : first + len(u)] = one**count * np.exp(-1j * u * points[0])
        # Later terms are lost in float64, and still later ones show the discretization.
        if np.max(np.abs(one)) ** count < 1e-15:
            break
    return np.maximum(fft.irfft(waves.conj(), len(points)), 0.0)


def shifted(distance: float) -> Pair:
    """The pair N(distance, 1) and N(0, 1)."""
    x = np.arange(-11.0, 11.0 + distance, _STEP)
    laws = _normal(x, distance), _normal(x, 0.0)
    return Pair(distance * x - distance**2 / 2, *laws)


def _normal(x: np.ndarray, mean: Union[float, np.ndarray]) -> np.ndarray:
    """The masses of N(mean, 1) at points."""
    return np.exp(-np.square(x - mean) / 2) * _STEP / math.sqrt(2 * math.pi)


def _whole_steps(mechanism: Any) -> tuple[int, int]:
    """Steps of a coordinate that is not rounded, and the number of such coordinates.

    The coordinates are as short as the vector's length allows.
    """
    granularity = mechanism.grid(DIMENSION).granularity
    rotated = mechanism.rotated_dimension(DIMENSION)
    steps = math.ceil(1 / (granularity * math.sqrt(rotated)))
    return steps, math.floor(granularity**-2 / steps**2)


def _integers(mechanism: Any) -> tuple[Pair, int]:
    """A coordinate of a whole number of steps, and the number of such coordinates."""
    grid, (steps, length) = mechanism.grid(DIMENSION), _whole_steps(mechanism)
    reach = math.ceil(12 * grid.local_stddev / grid.granularity)
    share = np.exp(
        -np.square(np.arange(-reach, reach + 1) / grid.local_stddev * grid.granularity)
        / 2
    )
    shares = mechanism.noise_shares
    size = fft.next_fast_len(2 * reach * shares + 1, real=True)
    law = fft.irfft(fft.rfft(share / np.sum(share), size) ** shares, size)
    law = law[: 2 * reach * shares + 1]
    # The precision of float64.
    law = law[np.flatnonzero(law > 1e-15)[0] : np.flatnonzero(law > 1e-15)[-1] + 1]
    given, without = law[:-steps], law[steps:]
    pair = Pair(np.log(given / without), given, without)
    return pair, length


def coordinates(mechanism: Any) -> tuple[Pair, int]:
    """A coordinate of a vector of the clip's length, and the number of such ones."""
    z = mechanism.noise_multiplier
    if isinstance(mechanism, mechanisms.DistributedDiscreteGaussian):
        return _integers(mechanism)
    if not isinstance(mechanism, mechanisms.L2Csgm):
        return shifted(1 / z), 1
    ratio, keep = mechanism.resolved_linf_ratio(DIMENSION), mechanism.keep_fraction
    return shifted(ratio / (z * keep)).sampled(keep), math.floor(ratio**-2)


def _release(mechanism: Any, rounds: int = 1) -> Pair:
    """A vector of the clip's length, in each of these rounds."""
    one, length = coordinates(mechanism)
    return one.summed(length * rounds) if length * rounds > 1 else one


def _rate(plan: Any) -> float:
    """The probability that a client is in a round in which it can be."""
    if isinstance(plan, mechanisms.WithoutReplacement):
        return float(plan.cohort_size / plan.population)
    return float(plan.sampling_probability)


def of_rounds(run: Run, mechanism: Any) -> tuple[float, float]:
    """Delta of a client that is in all its possible rounds, and its error, 0.

    The others send zeros.
    """
    q, rounds = _rate(run.participation), run.participation.max_participations
    if q == 1:
        return _release(mechanism, rounds).delta(run.epsilon), 0.0
    return _release(mechanism).sampled(q).summed(rounds).delta(run.epsilon), 0.0


def _shifts(mechanism: Any) -> tuple[np.ndarray, np.ndarray]:
    """The places to which a vector moves the sum of its coordinates, and masses.

    They are relative to the deviation of noise.
    """
    if isinstance(mechanism, mechanisms.L2Csgm):
        ratio, keep = mechanism.resolved_linf_ratio(DIMENSION), mechanism.keep_fraction
        length = math.floor(ratio**-2)
        kept = np.arange(length + 1)
        masses = stats.binom.pmf(kept, length, keep)
        kept, masses = kept[masses > 1e-20], masses[masses > 1e-20]
        one = ratio / (mechanism.noise_multiplier * keep * math.sqrt(length))
        return one * kept, masses
    if isinstance(mechanism, mechanisms.DistributedDiscreteGaussian):
        grid, (steps, length) = mechanism.grid(DIMENSION), _whole_steps(mechanism)
        deviation = grid.local_stddev * math.sqrt(mechanism.noise_shares)
        distance = steps * grid.granularity * math.sqrt(length) / deviation
    else:
        distance = 1 / mechanism.noise_multiplier
    return np.array([distance]), np.ones(1)


def of_cohorts(run: Run, mechanism: Any) -> tuple[float, float]:
    """Delta in cohorts of a fixed size, and its error, 0.

    The others always send the opposite of the client's update, in cohorts of one where
    coordinates are masked.
    """
    q, (shifts, masses) = _rate(run.participation), _shifts(mechanism)
    far = math.ceil((11 + shifts[-1]) / _STEP)
    x = _STEP * np.arange(-far, far + 1)
    joins = _normal(x[:, None], shifts) @ masses
    others = (1 - q) * joins[::-1]
    given, zeros = others + q * joins, others + q * _normal(x, 0.0)
    one = Pair(np.log(given / zeros), given, zeros)
    return one.summed(run.participation.rounds).delta(run.epsilon), 0.0


def _drawn(
    draw: Callable[[np.random.Generator], np.ndarray], count: int, epsilon: float
) -> tuple[float, float]:
    """Delta of `count` losses of P, and its standard error, by sampling one of them."""
    generator, estimates = np.random.default_rng(1), []
    for _ in range(_BATCHES):
        losses = draw(generator)
        # The sum of as many, each in the middle of its bin.
        mass, edges = np.histogram(losses, bins=_SERIES)
        size = count * (_SERIES - 1) + 1
        fast = fft.next_fast_len(size, real=True)
        waves = fft.rfft(mass / mass.sum(), fast) ** count
        law = np.maximum(fft.irfft(waves, fast)[:size], 0.0)
        begin, step = (edges[0] + edges[1]) / 2, edges[1] - edges[0]
        losses = count * begin + step * np.arange(size)
        estimates.append(law @ -np.expm1(np.minimum(epsilon - losses, 0)))
    return float(np.mean(estimates)), float(np.std(estimates, ddof=1) / _BATCHES**0.5)


class Places(NamedTuple):
    """A secret choice: `chosen` of `places` of `turns` rounds, in each of `epochs`."""

    places: int
    chosen: int
    turns: int
    epochs: int


def _places(plan: Any) -> Places:
    """The secret choice of a plan that has one."""
    if isinstance(plan, mechanisms.BallsInBins):
        return Places(plan.groups, 1, plan.rounds // plan.groups, 1)
    if plan.rounds_per_epoch:
        return Places(plan.rounds_per_epoch, 1, 1, plan.max_participations)
    return Places(plan.rounds, plan.max_participations, 1, 1)


def of_places(run: Run, mechanism: Any) -> tuple[float, float]:
    """Delta, and its error, of a client in secret slots, rounds or a secret group."""
    places, chosen, turns, epochs = _places(run.participation)
    one, there = _release(mechanism, turns), np.arange(places) < chosen

    def draw(generator: np.random.Generator) -> np.ndarray:
        # Sums of the products of 0, 1, ..., k places' ratios.
        sums = np.zeros([_DRAWS, chosen + 1])
        sums[:, 0] = 1.0
        drawn = one.drawn(np.broadcast_to(there, [_DRAWS, places]), generator)
        for ratio in np.exp(drawn).T:
            sums[:, 1:] += ratio[:, None] * sums[:, :-1]
        return np.asarray(np.log(sums[:, chosen] / math.comb(places, chosen)))

    return _drawn(draw, epochs, run.epsilon)


def of_separated(run: Run, mechanism: Any) -> tuple[float, float]:
    """Delta, and its error, of a client that joins when it has been free b rounds."""
    plan, one = run.participation, _release(mechanism)
    b, p = plan.separation, plan.cohort_size
    p /= plan.population - (b - 1) * plan.cohort_size
    # The round in which it is first free is 0, or one of the next with p of that.
    begins = np.array([1.0, *[p] * (b - 1)]) / (1 + (b - 1) * p)

    def draw(generator: np.random.Generator) -> np.ndarray:
        free = generator.choice(b, _DRAWS, p=begins)
        there = generator.random([plan.rounds, _DRAWS]) < p
        for index, joins in enumerate(there):
            joins &= free <= index
            free[joins] = index + b
        ratios = np.exp(one.drawn(there, generator))
        # Means of the products of the ratios from a round on in which it is free.
        means = np.ones([plan.rounds + b, _DRAWS])
        for index in reversed(range(plan.rounds)):
            joins, stays = ratios[index] * means[index + b], means[index + 1]
            means[index] = p * joins + (1 - p) * stays
        return np.asarray(np.log(begins @ means[:b]))

    return _drawn(draw, 1, run.epsilon)


def of_bins(run: Run, mechanism: Any) -> tuple[float, float]:
    """Delta, and its error, of a client in all rounds of a secret group, drawn once."""
    encoder = mechanism.factorization.encoder() / mechanism.matrix_sensitivity
    b, z = run.participation.separation, mechanism.noise_multiplier
    means = np.stack([encoder[:, group::b].sum(axis=1) for group in range(b)])
    gram = means @ means.T / z**2
    root = np.linalg.cholesky(gram)

    def draw(generator: np.random.Generator) -> np.ndarray:
        along = generator.standard_normal((_DRAWS, b)) @ root.T
        along += gram[generator.integers(b, size=_DRAWS)]
        along -= np.diag(gram) / 2
        return np.asarray(special.logsumexp(along, axis=1) - math.log(b))

    return _drawn(draw, 1, run.epsilon)


@functools.lru_cache(maxsize=4)
def longest_sum(mechanism: Any, length: int) -> float:
    """The largest sum of columns, one of each epoch, that exchanges find.

    The sum is relative to the longest column.
    """
    encoder = np.abs(mechanism.factorization.encoder())
    gram, begins = encoder.T @ encoder, np.arange(0, encoder.shape[1], length)
    generator, best = np.random.default_rng(0), 0.0
    for _ in range(50):
        chosen, before = begins + generator.integers(length, size=len(begins)), None
        while not np.array_equal(chosen, before):
            before = chosen.copy()
            for epoch, begin in enumerate(begins):
                there = np.arange(begin, begin + length)
                others = np.sum(gram[there][:, np.delete(chosen, epoch)], axis=1)
                chosen[epoch] = begin + np.argmax(np.diag(gram)[there] + 2 * others)
        best = max(best, float(np.sum(gram[np.ix_(chosen, chosen)])))
    return math.sqrt(best) / mechanism.matrix_sensitivity


def of_stream(run: Run, mechanism: Any) -> tuple[float, float]:
    """Delta, and its error, of a client in one round of each epoch, all released."""
    still = dataclasses.replace(mechanism, noise_multiplier=1.0)
    most = longest_sum(still, run.participation.rounds_per_epoch)
    one = shifted(most / mechanism.noise_multiplier)
    return one.summed(1).delta(run.epsilon), 0.0


class Run(NamedTuple):
    """A run of the table.

    Attributes:
      mechanism: The mechanism, whose noise multiplier is ignored.
      participation: The participation of clients.
      epsilon: Epsilon of the budget.
      delta: Delta of the budget.
    """

    mechanism: Any
    participation: Any
    epsilon: float
    delta: float


def dpfl_noise(run: Run) -> float:
    """The noise multiplier by dpfl's default."""
    own = run.mechanism, run.participation, DIMENSION, run.epsilon, run.delta
    return float(planning.calibrate(*own).noise_multiplier)


def true_noise(run: Run, most: float, truth: str) -> float:
    """A noise multiplier below which the neighbours break the budget.

    Args:
      run: The run.
      most: A noise multiplier with which they keep it.
      truth: Name of the function to the delta of two neighbours, and its error.

    Raises:
      ValueError: If they break it even with `most`.
    """

    def excess(log_noise: float) -> float:
        noised = run.mechanism.with_noise_multiplier(math.exp(log_noise))
        delta, error = globals()[truth](run, noised)
        return math.log(max(delta - 3 * error, 1e-30) / run.delta)

    high = math.log(most) + 2 * _TOLERANCE
    low = high - 0.02
    while excess(low) < 0:
        low -= 2 * (high - low)
    root = optimize.brentq(excess, low, high, xtol=_TOLERANCE)
    return math.exp(root - 2 * _TOLERANCE)


def run_of(row: Row) -> Run:
    """The run of a row of `RUNS`."""
    mechanism = mechanisms.MECHANISMS[row["mechanism"]](
        cohort_size=int(row["cohort_size"]),
        clip_norm=1.0,
        noise_multiplier=1.0,
        **tables.options(row["options"]),
    )
    sizes = [int(row[name]) for name in ("population", "cohort_size", "rounds")]
    apart = {"min_separation": int(row["separation"])} if row["separation"] else {}
    plan = mechanisms.PARTICIPATIONS[row["participation"]](*sizes, **apart)
    return Run(mechanism, plan, float(row["epsilon"]), float(row["delta"]))


RUNS = tuple(files.read_csv(Path(__file__).with_suffix(".csv")))
"""Rows of the table's runs.

`truth` is a function here, and `why` is the reason where dpfl asks for more than the
other accountant, or 2% more than the truth.
"""


def row(given: Row, before: Row) -> dict[str, str]:
    """A row of the table, with the other accountant's noise as it was.

    Args:
      given: The row of `RUNS`.
      before: The row that was in the table.
    """
    run = run_of(given)
    ours = dpfl_noise(run)
    least = f"{true_noise(run, ours, given['truth']):.6g}"
    copied = "participation run rounds epsilon delta".split()
    return {
        "mechanism": given["mechanism"],
        "trust": "secure sum" if run.mechanism.sums_securely else "server",
        **{name: given[name] for name in copied},
        "dpfl": f"{ours:.8g}",
        "peer": before.get("peer", ""),
        "by": before.get("by", "none"),
        "least": least,
        "over": f"{100 * (ours / float(least) - 1):.3g}",
        "why": given["why"],
    }


def key(row: Row) -> str:
    """The key of a row, here and in the table."""
    return ", ".join(row[name] for name in ("mechanism", "participation", "run"))


def main(argv: Sequence[str]) -> None:
    """Computes rows of the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, help="the CSV file to write")
    parser.add_argument("--run", default="", help="words of the rows to compute")
    given = parser.parse_args(argv)
    rows = {key(old): old for old in files.read_csv(given.table)}
    for name, own in zip(map(key, RUNS), RUNS):
        if given.run in name:
            rows[name] = row(own, rows.get(name, {}))
            print(rows[name], flush=True)
    # In the order of `RUNS`, without those that are no longer in it.
    shown = [rows[name] for name in map(key, RUNS) if name in rows]
    columns = {column: [line[column] for line in shown] for column in shown[0]}
    tables.write_columns(given.table, columns)


if __name__ == "__main__":
    main(sys.argv[1:])
