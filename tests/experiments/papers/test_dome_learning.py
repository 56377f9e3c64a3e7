# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0


import pytest

from experiments.papers import dome_learning as learning
from experiments.papers.dome_learning import Learner, config

D = 64


@pytest.mark.parametrize("rule", ["eigen", "qr"])
def test_it_finds_a_fixed_subspace(rule):
    errors, overlaps = Learner(config(sketch_rule=rule), D).learn(80)
    assert overlaps[0] < 0.3
    assert overlaps[-1] > 0.95
    assert errors[-10:].mean() < 0.1 * errors[:10].mean()


def test_its_error_comes_down_to_that_of_the_noise():
    numbers = config(0.05)
    errors, _ = Learner(numbers, D).learn(200)
    floor = numbers.mean_squared_error(D)
    assert floor == pytest.approx(0.05**2 * 32)
    assert errors[:10].mean() > 6 * floor
    assert 0.8 * floor < errors[-50:].mean() < 1.5 * floor


def test_it_follows_a_drifting_subspace_and_without_probes_does_not():
    drifting = {"drift": 0.03, "rank": 3}
    followed = Learner(config(), D).learn(150, **drifting).overlaps
    fixed = Learner(config(probes=False), D).learn(150, **drifting).overlaps
    assert followed[-50:].mean() > 0.85
    # Half of the 64 dimensions hold half of what is chosen at random.
    assert fixed[-50:].mean() < 0.65


def test_a_mean_hides_the_rest_from_the_papers_target():
    last = {}
    for target in ("residual", "gradient"):
        errors, _ = Learner(config(sketch_target=target), D).learn(100, mean=4.0)
        last[target] = errors[-30:].mean()
    assert last["residual"] < 0.5 * last["gradient"]


def test_the_table(monkeypatch):
    monkeypatch.setattr(learning, "SEEDS", (0,))
    monkeypatch.setattr(learning, "DRIFTS", (0.03,))
    monkeypatch.setattr(learning, "CHOICES", {"default": {}})
    # Tracing takes longer than a few rounds do.
    monkeypatch.setattr(learning.tf, "function", lambda function: function)
    drifting = list(learning.drifting(rounds=6, dimension=40))
    assert [row["column"] for row in drifting] == ["probes", "no probes"]
    choices = list(learning.choices(rounds=4, dimension=40))
    assert len(choices) == 3 and set(choices[0]) == set(drifting[0])
