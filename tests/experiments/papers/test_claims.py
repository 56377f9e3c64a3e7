# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Claims: which runs an effect is of, its sign, and the verdict."""

import dataclasses
from pathlib import Path

import pytest
from scipy import stats

from dpfl import files
from experiments import effects
from experiments.papers import claims, verdict_tables, verdicts
from tests.refusals import refuses

RESULTS = Path(__file__).resolve().parents[3] / "docs/results"
CLAIM = verdicts.Claim(
    *("paper", "claim", "Fig. 1", "here", verdicts.FREE, "t"),
    *({"rate": "10"}, {"rate": "1"}, ("epsilon",), {"task": "a|b"}),
)
# Accuracy of two seeds by task, epsilon and rate.
MEANS = {
    **{("a", "1", "1"): 0.9, ("a", "1", "10"): 0.8},
    **{("a", "2", "1"): 0.95, ("a", "2", "10"): 0.91},
    **{("b", "1", "1"): 0.7, ("b", "1", "10"): 0.69, ("c", "1", "10"): 0.1},
}


def away_from(key):
    """What each seed adds: not the same to both rates, since that has no variance."""
    return {1: 0.01, 2: -0.01} if key[2] == "1" else {1: -0.01, 2: 0.01}


@pytest.fixture
def folder(tmp_path):
    names = ("task", "epsilon", "rate", "seed", "final_accuracy", "final_loss")
    names += ("worst", "best")
    rows = [
        dict(
            zip(
                names,
                (*key, seed, mean + away, 2 * mean + away, mean - 0.1, mean + 0.1),
            )
        )
        for key, mean in MEANS.items()
        for seed, away in away_from(key).items()
    ]
    (tmp_path / "t.csv").write_text(files.csv_text(dict.fromkeys(names, ""), rows))
    return tmp_path


def test_effect_is_the_mean_over_pooled_cells(folder):
    found = CLAIM.effect(folder)
    assert found.size == pytest.approx(-(0.1 + 0.04 + 0.01) / 3)
    cells = {
        key: {seed: mean + away for seed, away in away_from(key).items()}
        for key, mean in MEANS.items()
        if key[0] != "c"
    }
    pairs = [(k, (k[0], k[1], "1")) for k in cells if k[2] == "10"]
    assert dataclasses.astuple(found) == pytest.approx(
        dataclasses.astuple(effects.effect(cells, pairs))
    )
    one = dataclasses.replace(CLAIM, chosen={"task": "b"}).effect(folder)
    assert one.size == pytest.approx(-0.01)


@pytest.mark.parametrize("times", [2, 3])
def test_one_effect_less_another(folder, times):
    only = dataclasses.replace(CLAIM, chosen={"task": "a"}, over=())
    first, second = ({"epsilon": e, "rate": "10"} for e in "12")
    both = dataclasses.replace(only, ours=first, less=(second, only.other), times=times)
    both = both.effect(folder)
    assert both.size == pytest.approx(-0.1 + times * 0.04)
    # In both seeds the same, away from each other: 0.02 and -0.02 by each difference.
    half = stats.t.ppf(0.975, 1) * 0.02 * (times - 1)
    assert both.high - both.size == pytest.approx(half)


def test_runs_without_a_counterpart_are_refused(folder):
    with refuses(ValueError, "t", "'c'"):
        dataclasses.replace(CLAIM, chosen={"task": "c"}).effect(folder)
    with refuses(ValueError, "t"):
        dataclasses.replace(CLAIM, ours={"rate": "5"}).effect(folder)
    less = ({"task": "b", "rate": "10"}, CLAIM.other)
    with refuses(ValueError, "t", "'b'"):
        dataclasses.replace(CLAIM, less=less).effect(folder)


@pytest.mark.parametrize(
    ("asks", "low", "high", "verdict"),
    [
        (verdicts.FREE, -0.009, 0.02, "no cost shown"),
        (verdicts.FREE, -0.009, -0.001, "costs, below the margin"),
        (verdicts.FREE, -0.011, -0.001, "not decided"),
        (verdicts.FREE, -0.011, 0.02, "not decided"),
        (verdicts.FREE, -0.02, -0.011, "costs more"),
        (verdicts.AHEAD, 0.001, 0.02, "holds"),
        (verdicts.AHEAD, -0.001, 0.02, "not decided"),
        (verdicts.AHEAD, -0.02, -0.001, "does not hold"),
    ],
)
def test_verdicts(asks, low, high, verdict):
    found = effects.Effect((low + high) / 2, low, high)
    assert dataclasses.replace(CLAIM, asks=asks).verdict(found) == verdict


EXACT = verdicts.Exact(
    *("paper", "claim", "Fig. 1", "here", "t"),
    *({"task": "a|b", "rate": "10"}, "final_accuracy"),
)


@pytest.mark.parametrize(
    ("limits", "cells"),
    [
        ({"most": 0.81}, ("holds", "0.800", "", "at most 0.81")),
        ({"most": 0.79}, ("does not hold", "0.800", "", "at most 0.79")),
        ({"least": 0.79}, ("holds", "0.800", "", "at least 0.79")),
        ({"least": 0.81}, ("does not hold", "0.800", "", "at least 0.81")),
        # 0.8 of all accuracies, 0.85, and of losses, 1.7.
        ({"other": {"rate": "1"}, "most": 1.0}, ("holds", "0.941", "", "at most 1")),
        (
            {"other": {"rate": "1"}, "by": "final_loss", "most": 0.4},
            ("does not hold", "0.471", "", "at most 0.4"),
        ),
        (
            {"ends": ("worst", "best"), "most": 0.91},
            ("holds", "0.800 (0.700 to 0.900)", "", "at most 0.91"),
        ),
        (
            {"ends": ("worst", "best"), "most": 0.89},
            ("not decided", "0.800 (0.700 to 0.900)", "", "at most 0.89"),
        ),
        (
            {"ends": ("worst", "best"), "most": 0.69},
            ("does not hold", "0.800 (0.700 to 0.900)", "", "at most 0.69"),
        ),
        # The worse ten-fold over the better plain one, and the other way round.
        (
            {"ends": ("worst", "best"), "other": {"rate": "1"}, "most": 1.21},
            ("holds", "0.941 (0.737 to 1.20)", "", "at most 1.21"),
        ),
    ],
)
def test_numbers_without_seeds(folder, limits, cells):
    assert dataclasses.replace(EXACT, **limits).cells(folder) == cells


def test_every_claim_has_a_line(folder):
    untested = verdicts.Untested("paper", "another", "Fig. 2", "why")
    text = verdict_tables.lines([CLAIM, untested], folder)
    assert (
        text.count("\n") == 4
        and "| -5.0 (" in text
        and "\n| here | " in text
        and "| in the paper |" in text
    )
    assert text.endswith("| why | another | **not tested** |  |  |  | Fig. 2 |\n")
    nowhere = dataclasses.replace(CLAIM, where="")
    assert "in the paper" not in verdict_tables.lines([nowhere], folder)
    bare = dataclasses.replace(EXACT, where="")
    assert "| measured | asked |\n" in verdict_tables.lines([bare], folder)
    for one in claims.CLAIMS:
        found = one.effect(RESULTS)
        assert found.low < found.size < found.high, one
    for exact in claims.EXACT:
        assert exact.value(RESULTS) > 0, exact


def test_no_cell_of_claims_is_long():
    for paper in sorted({one.paper for one in claims.CLAIMS}):
        for cell in verdict_tables.lines(claims.of_paper(paper), RESULTS).split("|"):
            assert len(cell.split()) <= 9, cell


# Arms of the preregistration with made-up accuracies.
ARMS = {
    ("none", "", ""): 0.82,
    ("gaussian", "", ""): 0.8,
    ("l2_csgm", "10.0", ""): 0.798,
    ("l2_csgm", "100.0", ""): 0.795,
    ("l2_csgm", "300.0", ""): 0.788,
    ("l2_csgm", "1000.0", ""): 0.77,
    ("distributed_discrete_gaussian", "", "16"): 0.79,
    ("sketched_ddg", "50.0", "16"): 0.77,
    ("sketched_ddg", "100.0", "10"): 0.789,
}
PLAIN = ("gaussian", "distributed_discrete_gaussian")


def asked(folder, changes, late, ends):
    """Writes tables of three seeds, in which arms gain their mean and a thousandth.

    The interval of a gain is 4.303 / sqrt(3) thousandths to both sides, 0.25 points.

    Args:
      folder: Folder of the tables.
      changes: Accuracies that are others, by arm.
      late: Gains of the last rounds by arm.
      ends: Mechanisms whose best rate is at an end.
    """
    rows = []
    for arm, mean in {**ARMS, **changes}.items():
        labels = dict(zip(("mechanism", "compression_rate", "bits"), arm))
        for seed, away in ((1, -0.001), (2, 0), (3, 0.001)):
            value = mean + (0 if arm[0] in PLAIN else away)
            run = f"{'-'.join(arm)}-{seed}"
            more = {"late_change": late.get(arm, 0.004) + away, "final_accuracy": value}
            rows.append({"run": run, **labels, "seed": seed, **more})
    (folder / "femnist_2nn.csv").write_text(files.csv_text(rows[0], rows))
    # Two clients that are alike.
    clients = [
        {
            **{"client": f"client_{size}", "examples": size},
            **{row["run"]: size * row["final_accuracy"] for row in rows},
        }
        for size in (1000, 3000)
    ]
    text = files.csv_text(clients[0], clients)
    (folder / "femnist_2nn_clients.csv").write_text(text)
    lines = [
        {"mechanism": name, "best_at_end": "server_lr" if name in ends else ""}
        for name in dict.fromkeys(arm[0] for arm in ARMS)
    ]
    (folder / "femnist_2nn_rates.csv").write_text(files.csv_text(lines[0], lines))


P1, P2 = claims.FAMILIES
NO_COST, COSTS, MORE = "no cost shown", "costs, below the margin", "costs more"
UNDECIDED, NEITHER = "not decided", "not assayable"
OF_P1, OF_P2 = [NO_COST, COSTS, UNDECIDED], [MORE, NO_COST]


@pytest.mark.parametrize(
    ("changes", "late", "ends", "of_p1", "of_p2"),
    [
        ({}, {}, (), OF_P1, OF_P2),
        # 300-fold costs more, which is decided only if 100-fold is.
        ({("l2_csgm", "300.0", ""): 0.78}, {}, (), [NO_COST, COSTS, MORE], OF_P2),
        (
            {("l2_csgm", "300.0", ""): 0.78, ("l2_csgm", "100.0", ""): 0.791},
            *({}, (), [NO_COST, UNDECIDED, UNDECIDED], OF_P2),
        ),
        ({("l2_csgm", "1000.0", ""): 0.7875}, {}, (), OF_P1, OF_P2),
        ({("l2_csgm", "1000.0", ""): 0.788}, {}, (), 3 * [NEITHER], 2 * [NEITHER]),
        ({("none", "", ""): 0.8151}, {}, (), OF_P1, OF_P2),
        ({("none", "", ""): 0.8149}, {}, (), 3 * [NEITHER], 2 * [NEITHER]),
        # Others gain 0.4 points in the last rounds.
        ({}, {("l2_csgm", "10.0", ""): 0.0089}, (), OF_P1, OF_P2),
        ({}, {("l2_csgm", "10.0", ""): 0.0091}, (), 3 * [NEITHER], OF_P2),
        ({}, {("sketched_ddg", "50.0", "16"): -0.0011}, (), OF_P1, 2 * [NEITHER]),
        ({}, {}, ("sketched_ddg",), OF_P1, 2 * [NEITHER]),
        ({}, {}, ("none",), 3 * [NEITHER], 2 * [NEITHER]),
    ],
)
def test_families_asked_beforehand(tmp_path, changes, late, ends, of_p1, of_p2):
    asked(tmp_path, changes, late, ends)
    assert (P1.verdicts(tmp_path), P2.verdicts(tmp_path)) == (of_p1, of_p2)


def test_page_of_families(tmp_path):
    asked(tmp_path, {}, {}, ())
    # Student's p-values of two degrees of freedom, 1 - t / sqrt(t^2 + 2).
    wanted = [1 - (t2 / (t2 + 2)) ** 0.5 for t2 in (192, 75, 12)]
    assert P1.p_values(tmp_path) == pytest.approx(wanted)
    lines = verdict_tables.asked(claims.FAMILIES, tmp_path).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    interval = ["-0.2 (-0.4 to 0.0)", "-0.5 (-0.7 to -0.3)", "-1.20 (-1.45 to -0.95)"]
    assert [line[3] for line in cells[2:5]] == interval
    # Clients that are alike add nothing.
    assert [line[4] for line in cells[2:4]] == interval[:2]
    assert [line[6] for line in cells[2:]] == ["stays", "stays", "", "stays", "stays"]
    assert len(cells[0]) == 7
    gates = verdict_tables.gates(claims.FAMILIES, tmp_path).splitlines()[2:]
    found = [[cell.strip() for cell in line.split("|")[1:-1]] for line in gates]
    assert [line[0] for line in found] == ["P1"] * 4 + ["P2"] * 4
    assert found[3][2:] == ["0", "below 1"] and found[1][3] == "at least 0.015"
    asked(tmp_path, {}, {}, ("sketched_ddg",))
    assert verdict_tables.gates(claims.FAMILIES, tmp_path).count(" 1 | below 1 |") == 1
    *_, last = verdict_tables.asked(claims.FAMILIES, tmp_path).splitlines()
    assert last.count("|") == 9 and "not assayable" in last and "stays" not in last
    path = tmp_path / "femnist_2nn_clients.csv"
    path.write_text(path.read_text().replace(",800.0", ",810.0", 1))
    with refuses(ValueError, path, "gaussian---1"):
        verdict_tables.asked(claims.FAMILIES, tmp_path)
