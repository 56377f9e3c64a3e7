# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""All checks of an audit, one after the other.

    settings = suite.Settings(mechanisms=("gaussian", "dome"), trials=20_000)
    for name, job in suite.jobs(settings):
        results += job()

A job returns its findings, each of which is a row of the audit's table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dpfl import files, mechanisms

from .. import tables
from . import canaries, cases, cohorts, noise, streams, sums
from .findings import Finding

Job = Callable[[], Iterable[Finding]]

# Mechanisms whose noise is cheapest to draw; others have fewer draws.
_MOST_DRAWN = "gaussian"
# Divisor of the trials for slow cases: rounds of few canaries, and streams, which all
# go through TFF.
_FEWER_TRIALS, _FEW_CANARIES = 2, 8
# Factor of the trials for cohorts, which are cheap; those in which others hide the
# client show least.
_COHORT_TRIALS, _COHORT_MORE = 10_000, 2
# Divisor of the draws for noise other than a server's.
_FEWER, _FEWER_SHARES = 20, 100
# Mechanisms whose noise the quick audit compares over runs.
_COMPARED = ("gaussian", "distributed_discrete_gaussian")
_RUN_TWICE = ("l2_csgm", "matrix_factorization", "dome")
# The noise of sketches under secure aggregation is that of the codec within.
_DRAWN = (
    *("gaussian", "l2_csgm", "linf_csgm", "project_and_perturb"),
    *("matrix_factorization", "sgmf", "dome"),
    *("distributed_discrete_gaussian", "distributed_skellam"),
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The extent of an audit.

    Attributes:
      mechanisms: Names of the mechanisms.
      trials: Releases of each case with a canary, and as many without; half of them if
        a round has few canaries, and for a stream; up to eight times as many if their
        bound is expected to be far below the claim, unless the audit is quick.
      rounds_in_tff: Number of rounds of a case that go through TFF; all for a stream.
      draws: Number of draws of the Gaussian mechanism's noise; others have fewer.
      seed: The seed of all randomness.
      is_quick: Whether each mechanism has one case, with few other checks.
    """

    mechanisms: Sequence[str] = tuple(cases.CASES)
    trials: int = 20_000
    rounds_in_tff: int = 20
    draws: int = 1_000_000_000
    seed: int = 1
    is_quick: bool = False


def jobs(settings: Settings) -> Iterator[tuple[str, Job]]:
    """The jobs of an audit, by name; TFF's default context must sum securely."""
    seed, is_quick = settings.seed, settings.is_quick
    for name in settings.mechanisms:
        own_cases = cases.of(name)
        for case in own_cases[:1] if is_quick else own_cases:
            yield f"{name}: {case.setting}", partial(_bounded, case, settings)
        for stream in () if is_quick else cases.STREAMS.get(name, ()):
            yield f"{name}: {stream.setting}", partial(_streamed, stream, settings)
        mechanism = own_cases[0].mechanism
        if name in _DRAWN:
            yield f"{name}: tails", partial(_counted, name, settings)
        yield f"{name}: measured", partial(sums.measured, _wide(name))
        if mechanism.sums_securely:
            counts = mechanism
            if not isinstance(mechanism, mechanisms.Dome):
                counts = dataclasses.replace(mechanism, adaptive_clipping=True)
            yield f"{name}: wraps", partial(sums.wraps, counts)
        if name in _COMPARED or (name in _RUN_TWICE and not is_quick):
            more = name == _MOST_DRAWN and not is_quick
            compared = partial(noise.runs, _wide(name), seed, more)
            yield f"{name}: repeated noise", compared
        if name == "gaussian":
            yield f"{name}: seeds", partial(noise.contrived_seeds, _wide(name))
            trials = max(_COHORT_TRIALS, settings.trials * _COHORT_MORE)
            for chosen in cohorts.participations():
                for others in cohorts.others(chosen):
                    job = partial(cohorts.findings_of, chosen, others, trials, seed)
                    yield f"{name}: cohort {chosen.name}, {others}", job
        if name == "l2_csgm":
            # Nearly without noise.
            masked = mechanisms.L2Csgm(
                *(32, 1.0, 1e-4), keep_fraction=0.5, linf_ratio=0.1
            )
            yield f"{name}: masks", partial(noise.masks, masked, seed)


def _bounded(case: canaries.Case, settings: Settings) -> list[Finding]:
    is_slow = case.canaries <= _FEW_CANARIES or case.stream_rounds > 1
    least = max(4, settings.trials // (_FEWER_TRIALS if is_slow else 1))
    made = canaries.Canaries(case, settings.seed)
    trials = least if settings.is_quick else made.enough(least)
    return made.findings(trials, settings.rounds_in_tff)


def _streamed(case: streams.StreamCase, settings: Settings) -> list[Finding]:
    made = streams.StreamCanaries(case, settings.seed)
    return made.findings(made.enough(max(4, settings.trials // _FEWER_TRIALS)))


def _counted(name: str, settings: Settings) -> Iterable[Finding]:
    mechanism = _wide(name)
    brings = mechanism.sums_securely
    source = (noise.shares_source if brings else noise.trusted_source)(mechanism)
    fewer = _FEWER_SHARES if brings else _FEWER
    draws = settings.draws // (1 if name == _MOST_DRAWN else fewer)
    return noise.counts(source, draws, settings.seed)


def _wide(name: str) -> Any:
    """A mechanism for noise alone, in any number of dimensions; see `wide.csv`.

    It has bits enough that noise does not wrap, at ten thousand standard deviations,
    where its noise is counted.
    """
    rows = files.read_csv(Path(__file__).with_name("wide.csv"))
    values: dict[str, Any] = {"clip_norm": 1.0, "noise_multiplier": 1.0}
    values["cohort_size"] = 4
    for row in tables.where(rows, mechanism=name):
        values |= tables.options(row["options"])
    if name not in cases.CASES:
        return dataclasses.replace(mechanisms.TEST_CONFIGS[name], **values)
    return mechanisms.MECHANISMS[name](**values)
