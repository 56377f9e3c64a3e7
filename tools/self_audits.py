# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Audits many honest runs of canaries alone, and runs with a hole in their noise.

  OMP_NUM_THREADS=1 python -m tools.self_audits docs/results/self_audits.csv \
      --picture=docs/images/self_audits.png

Rounds are those of the codec of `gaussian` in numpy. The holes are made in the noise
that the server adds, and the plan claims all of it. The table has a row for each run
and view, as a run's summary has it. The picture has the scores of one run of each kind.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import dpfl
from dpfl import planning
from dpfl.arrays import philox
from dpfl.codecs.round_functions import RoundFunctions
from dpfl.planning import ledger
from dpfl.training import canaries, selection
from dpfl.vectors import canaries as vectors
from experiments import plotting, tables

# The factor of the noise, and whether that of the first round is repeated.
KINDS = {
    "honest": (1.0, False),
    "noise left out": (0.0, False),
    "noise halved": (0.5, False),
    "noise repeated": (1.0, True),
}
DIMENSION, CANARIES, COHORT, ROUNDS = 2000, 1000, 200, 10
EPSILON, DELTA = 8.0, 1e-5


def planned() -> Any:
    """The parts of a plan that an audit looks at."""
    chosen = dpfl.OncePerEpoch(CANARIES, COHORT, ROUNDS)
    mechanism = planning.calibrate(
        dpfl.Gaussian(COHORT, 1.0, 0.0), chosen, DIMENSION, EPSILON, DELTA, "auto"
    )
    return SimpleNamespace(
        config=SimpleNamespace(canaries=CANARIES),
        task=SimpleNamespace(population=0),
        dimension=DIMENSION,
        participation=chosen,
        mechanism=mechanism,
        cost=ledger.RunCost(mechanism, chosen, DIMENSION, DELTA),
    )


def run(plan: Any, kind: str, key: int) -> tuple[np.ndarray, np.ndarray]:
    """The scores of a run, float32[rounds + 1, K], and its final weights."""
    factor, is_repeated = KINDS[kind]
    mechanism = dataclasses.replace(
        plan.mechanism, noise_multiplier=factor * plan.mechanism.noise_multiplier
    )
    codec = dpfl.make_codec(mechanism, DIMENSION, arrays="numpy")
    released = mechanism.released_measurements
    steps = RoundFunctions(codec, None, released_measurements=released)
    audited = canaries.Canaries(plan, key)
    first = state = steps.first_state(np.array(philox.seed_from_int(key)))
    weights, is_in = np.zeros(DIMENSION, np.float32), audited.is_in()
    scores = [audited.scores([weights])]
    for index in range(ROUNDS):
        shared, total, sums = steps.prepare(state), codec.zero(), None
        for client in selection.select_cohort(plan.participation, key, index):
            # The integers of a client of zeros are zeros.
            if not is_in[client]:
                continue
            own = np.array(selection.client_key(key, int(client)))
            update = np.zeros(codec.input_length, np.float32)
            update[:DIMENSION] = vectors.update(own, DIMENSION, 8.0)
            message, more = steps.encode_vector(update, shared, own)
            total = codec.accumulate(total, message)
            sums = {n: more[n] + (sums[n] if sums else 0) for n in more}
        made = steps.finish(state, shared, total, sums)
        mean = np.asarray(made["result"])
        state = first if is_repeated else made["state"]
        weights = weights - mean
        scores.append(audited.scores([mean]))
    return np.stack(scores), weights


def rows_of(plan: Any, kind: str, key: int) -> list[dict[str, Any]]:
    """The rows of a run, one a view."""
    scores, weights = run(plan, kind, key)
    found = canaries.Canaries(plan, key).audit(scores, [weights])
    return [
        {
            "kind": kind,
            "seed": key,
            "view": view,
            "claim": plan.cost.planned.epsilon,
            "lower_bound": each["lower_bounds"]["epsilon"],
            "gaussian_lower_bound": each["lower_bounds"]["gaussian_epsilon"],
            **{name: each["estimate"][name] for name in ("epsilon", "low", "high")},
        }
        for view, each in found["views"].items()
    ]


def draw(plan: Any, path: Path) -> None:
    """Draws histograms of the scores of all rounds, a panel for each kind."""
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(9, 5.4), layout="constrained")
    panels = np.ravel(figure.subplots(2, 2))
    for panel, kind in zip(panels, KINDS):
        scores, weights = run(plan, kind, 1)
        audited = canaries.Canaries(plan, 1)
        view = audited.audit(scores, [weights])["views"]["all_rounds"]["estimate"]
        ratios, is_in = audited.all_rounds(scores), audited.is_in()
        bins = np.linspace(ratios.min(), ratios.max(), 60)
        for coin, label in ((False, "canaries out"), (True, "canaries in")):
            panel.hist(ratios[is_in == coin], bins, alpha=0.6, label=label)
        panel.set_title(
            f"{kind}: epsilon {view['epsilon']:.3g} "
            f"({view['low']:.3g} to {view['high']:.3g})"
        )
        panel.set_xlabel("score from all rounds")
    panels[0].legend()
    panels[0].set_ylabel("canaries")
    panels[2].set_ylabel("canaries")
    figure.suptitle(f"Claimed epsilon {plan.cost.planned.epsilon:.3g}")
    plotting.write_picture(figure, path)


def main(argv: Sequence[str]) -> None:
    """Writes the table, and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, help="the CSV file to write")
    parser.add_argument("--picture", type=Path, help="the PNG file to write")
    parser.add_argument("--runs", type=int, default=200, help="honest runs")
    given = parser.parse_args(argv)
    plan = planned()
    if given.picture:
        draw(plan, given.picture)
    works = [(kind, 1) for kind in KINDS if kind != "honest"]
    works += [("honest", seed) for seed in range(1, given.runs + 1)]
    rows = [each for kind, seed in works for each in rows_of(plan, kind, seed)]
    tables.write_columns(
        given.table, {name: [each[name] for each in rows] for name in rows[0]}
    )


if __name__ == "__main__":
    main(sys.argv[1:])
