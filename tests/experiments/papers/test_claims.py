# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Claims: which runs an effect is of, its sign, and the verdict."""

import dataclasses
from pathlib import Path

import pytest
from scipy import stats

from dpfl import files
from experiments import effects
from experiments.papers import claims

RESULTS = Path(__file__).resolve().parents[3] / "docs/results"
CLAIM = claims.Claim(
    *("paper", "claim", "Fig. 1", "here", claims.FREE, "t"),
    *({"rate": "10"}, {"rate": "1"}, ("epsilon",), {"task": "a|b"}),
)
# Accuracy of two seeds by task, epsilon and rate.
MEANS = {
    **{("a", "1", "1"): 0.9, ("a", "1", "10"): 0.8},
    **{("a", "2", "1"): 0.95, ("a", "2", "10"): 0.91},
    **{("b", "1", "1"): 0.7, ("b", "1", "10"): 0.69, ("c", "1", "10"): 0.1},
}


@pytest.fixture
def folder(tmp_path):
    names = ("task", "epsilon", "rate", "seed", "final_accuracy", "final_loss")
    rows = [
        dict(zip(names, (*key, seed, mean + away, 2 * mean + away)))
        for key, mean in MEANS.items()
        for seed, away in ((1, 0.01), (2, -0.01))
    ]
    (tmp_path / "t.csv").write_text(files.csv_text(dict.fromkeys(names, ""), rows))
    return tmp_path


def test_an_effect_is_the_mean_over_what_is_pooled(folder):
    found = CLAIM.effect(folder)
    assert found.size == pytest.approx(-(0.1 + 0.04 + 0.01) / 3)
    cells = {key: [m + 0.01, m - 0.01] for key, m in MEANS.items() if key[0] != "c"}
    pairs = [(k, (k[0], k[1], "1")) for k in cells if k[2] == "10"]
    assert dataclasses.astuple(found) == pytest.approx(
        dataclasses.astuple(effects.effect(cells, pairs))
    )
    one = dataclasses.replace(CLAIM, chosen={"task": "b"}).effect(folder)
    assert one.size == pytest.approx(-0.01)


def test_a_loss_that_rises_is_no_gain(folder):
    accuracy = CLAIM.effect(folder)
    loss = dataclasses.replace(CLAIM, measure="final_loss").effect(folder)
    assert loss.size == pytest.approx(-2 * accuracy.size) and loss.size > 0
    assert loss.low < loss.size < loss.high


def test_one_effect_less_another(folder):
    only = dataclasses.replace(CLAIM, chosen={"task": "a"}, over=())
    first = dataclasses.replace(only, chosen={"task": "a", "epsilon": "1"})
    both = dataclasses.replace(first, less={"epsilon": "2"}).effect(folder)
    assert both.size == pytest.approx(-0.1 + 0.04)
    # Four cells of two seeds, each of the variance 2e-4.
    half = stats.t.ppf(0.975, 4) * (4 * 2e-4 / 2) ** 0.5
    assert both.high - both.size == pytest.approx(half)


def test_runs_without_another_to_compare_are_an_error(folder):
    with pytest.raises(ValueError, match="^t must have .*'c'"):
        dataclasses.replace(CLAIM, chosen={"task": "c"}).effect(folder)
    with pytest.raises(ValueError, match="^t must have"):
        dataclasses.replace(CLAIM, ours={"rate": "5"}).effect(folder)


@pytest.mark.parametrize(
    ("asks", "low", "high", "verdict"),
    [
        (claims.FREE, -0.009, 0.02, "holds"),
        (claims.FREE, -0.011, 0.02, "not decided"),
        (claims.FREE, -0.02, -0.011, "does not hold"),
        (claims.AHEAD, 0.001, 0.02, "holds"),
        (claims.AHEAD, -0.001, 0.02, "not decided"),
        (claims.AHEAD, -0.02, -0.001, "does not hold"),
    ],
)
def test_verdicts(asks, low, high, verdict):
    found = effects.Effect((low + high) / 2, low, high)
    assert dataclasses.replace(CLAIM, asks=asks).verdict(found) == verdict


def test_every_claim_has_its_line(folder):
    text = claims.lines([CLAIM], folder)
    assert text.count("\n") == 3 and "| -5.0 (" in text and "| in the paper |" in text
    nowhere = dataclasses.replace(CLAIM, where="")
    assert "in the paper" not in claims.lines([nowhere], folder)
    for one in claims.CLAIMS:
        found = one.effect(RESULTS)
        assert found.low < found.size < found.high, one
