# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Audit of the neighbouring relation that a run names, by its choice of cohorts.

    for chosen in cohorts.participations():
        for others in cohorts.others(chosen):
            results += cohorts.findings_of(chosen, others, trials=10_000, seed=1)

One client sends the opposite of all others, and the cohort of a round is chosen with it
and without. If it leaves, another client may take its place: then the sum moves by
twice the clip. If its contributions become zeros, no other client moves.

If clients join independently of each other, the randomness of the others hides the
client, which the claim does not use: so the others send nothing in a second setting.
"""

from __future__ import annotations

import collections
import dataclasses

import numpy as np
from scipy import stats

from dpfl import codecs, mechanisms
from dpfl.accounting import events
from dpfl.codecs.base import Fields, Received
from dpfl.mechanisms import participation as participation_lib
from dpfl.training import selection
from dpfl.vectors import randomness

from . import adversary, findings, library, score_distributions
from .library import NX

_COHORT = 10
# The update of each of the others, in clips.
_SENT = {"others opposite": -1, "others silent": 0}
_INDEPENDENT = (
    *(mechanisms.PoissonSampling, mechanisms.RandomAllocation),
    mechanisms.CyclicPoisson,
)


def participations() -> list[mechanisms.Participation]:
    """One round of each way of choosing cohorts, of all clients but one.

    Hidden turns are excluded: they are a secret of more than one round.
    """
    kinds = mechanisms.PARTICIPATIONS.values()
    secret = (*participation_lib.SECRET_PARTICIPATIONS, mechanisms.KOfT)
    alone = [kind for kind in kinds if kind not in secret]
    return [kind(_COHORT + 1, _COHORT, 1) for kind in alone]


def others(participation: mechanisms.Participation) -> tuple[str, ...]:
    """The behaviours of all others: "others opposite", and "others silent"."""
    return tuple(_SENT if isinstance(participation, _INDEPENDENT) else list(_SENT)[:1])


def findings_of(
    participation: mechanisms.Participation,
    others_do: str,
    trials: int,
    seed: int,
    delta: float = 1e-2,
) -> list[findings.Finding]:
    """The bound from a Gaussian release to an adversary that ignores the cohort.

    Each trial is a release of one number: a coordinate of a wide release. There are as
    many trials without the client.

    Args:
      participation: The choice of cohorts.
      others_do: One of `others`.
      trials: Number of trials with the client.
      seed: Seed of cohorts and noise.
      delta: The delta at which epsilon is claimed and bounded.
    """
    mechanism = mechanisms.Gaussian(_COHORT, clip_norm=1.0, noise_multiplier=1.0)
    claim = findings.tightest(mechanism, participation, 1, delta)
    leaves = claim.relation == events.NAMES[events.Relation.ADD_OR_REMOVE_ONE]
    codec = codecs.make_codec(mechanism, 1, arrays=library.NAME)
    wide = codecs.make_codec(mechanism, trials, arrays=library.NAME)
    nothing: Fields = collections.OrderedDict()
    twice = NX.asarray(np.array([2.0]), np.float32)
    [sent] = np.asarray(codec.encode(twice, nothing, None).message["update"])
    expected = _expected(participation, others_do, leaves)
    scores = []
    for is_there in (True, False):
        own_sums, rest = _sums(participation, trials, seed, is_there, leaves)
        sums = (own_sums + _SENT[others_do] * rest) * int(sent)
        total = NX.asarray(sums, wide.zero()["update"].dtype)
        own = randomness.fold_in(library.seed(seed, 5), is_there)
        sums_of = collections.OrderedDict(update=total)
        received = Received(nothing, sums_of, nothing, nothing, own)
        released = wide.release(received)["update"]
        in_clips = np.asarray(released) / adversary.steps_to_clip(mechanism, 1)
        scores.append(expected.log_ratio(in_clips))
    setting = f"cohort {participation.name}, {others_do}, z=1"
    own = {"mechanism": mechanism.name, "setting": setting}
    by_chance = expected.distribution()
    return [findings.epsilon_finding(claim, delta, by_chance, scores, **own)]


def _expected(
    participation: mechanisms.Participation, others_do: str, leaves: bool
) -> score_distributions.NoisedSums:
    """The distribution of a release, by the definition of the choice of cohorts.

    Without the canary the client is gone if it `leaves`; else it sends zeros.
    """
    cohort, population = participation.cohort_size, participation.population
    share, sent = cohort / population, _SENT[others_do]
    counts = np.arange(population)
    if isinstance(participation, _INDEPENDENT):
        with_it = without = stats.binom.pmf(counts, population - 1, share)
    else:
        # A client in the round takes the place of another.
        with_it, without = counts == cohort - 1, counts == cohort
    numbers = np.arange(-population, 2)
    both = {True: np.zeros(numbers.size), False: np.zeros(numbers.size)}
    for is_there, chances in both.items():
        joined = share if is_there or not leaves else 0.0
        for own, chance, rest in ((1, joined, with_it), (0, 1 - joined, without)):
            sums = own * is_there + sent * counts
            np.add.at(chances, sums + population, chance * rest)
    return score_distributions.NoisedSums(numbers, both[True], both[False])


def _sums(
    participation: mechanisms.Participation,
    trials: int,
    seed: int,
    is_there: bool,
    leaves: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """The clips that the client sends, and the number of others: int64[trials]."""
    client = participation.population - 1
    is_gone = leaves and not is_there
    # If clients join independently of each other, those that stay join with unchanged
    # probabilities; otherwise another client takes the place.
    if is_gone and not isinstance(participation, _INDEPENDENT):
        participation = dataclasses.replace(participation, population=client)
    mine, rest = np.zeros([2, trials], np.int64)
    for trial in range(trials):
        number = 2 * (seed * trials + trial) + is_there
        cohort = selection.select_cohort(participation, number, 0)
        is_in = int(client in cohort)
        mine[trial] = is_in * is_there
        rest[trial] = len(cohort) - is_in
    return mine, rest
