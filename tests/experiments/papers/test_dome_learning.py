# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import functools

from experiments.papers import dome_learning as learning
from experiments.papers.dome_learning import Learner, config


@functools.cache
def learner(**changes):
    """One for all tests that have its configuration: it is traced once."""
    return Learner(config(**changes), 64)


def test_finds_a_fixed_subspace():
    errors, overlaps = learner().learn(80)
    assert overlaps[0] < 0.3
    assert overlaps[-1] > 0.95
    assert errors[-10:].mean() < 0.1 * errors[:10].mean()


def test_probes_are_needed_to_track_a_drifting_subspace():
    followed, fixed = (
        learner(**changes).learn(150, drift=0.03, rank=3).overlaps
        for changes in ({}, {"probes": False})
    )
    assert followed[-50:].mean() > 0.85
    # Half of the 64 dimensions hold half of what is chosen at random.
    assert fixed[-50:].mean() < 0.65


def test_the_table(monkeypatch):
    for name, value in {
        **{"SEEDS": (0,), "DRIFTS": (0.03,), "CHOICES": {"default": {}}},
        # Without tracing, of which there would be more than of rounds.
        "Learner": Eager,
    }.items():
        monkeypatch.setattr(learning, name, value)
    drifting = list(learning.drifting(rounds=6, dimension=40))
    assert [row["column"] for row in drifting] == ["probes", "no probes"]
    choices = list(learning.choices(rounds=4, dimension=40))
    assert len(choices) == 3 and set(choices[0]) == set(drifting[0])


class Eager(Learner):
    def __init__(self, *args):
        super().__init__(*args)
        self._round = self._run_round
