# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The numbers of the pages are those of the tables in docs/results."""

import re
from pathlib import Path

import pytest

from dpfl import planning
from dpfl.mechanisms import build, participation
from dpfl.tasks import mnist
from experiments import flag_files
from experiments.papers import result_rows

DOCS = Path(__file__).resolve().parents[3] / "docs"
# Of the training figures, tables of the medium scale, and their measure by task.
PANELS = {
    "csgm_fig2": ("task", "cohort_size", "epsilon", "compression_rate"),
    "csgm_fig4": ("task", "cohort_size", "epsilon", "compression_rate"),
    "csgm_fig5": ("task", "cohort_size", "epsilon", "compression_rate"),
    "csgm_fig6": ("task", "cohort_size", "epsilon", "compression_rate"),
    "csgm_tight": ("task", "cohort_size", "epsilon", "compression_rate"),
    "mf_fig3": ("problem", "mechanism", "schedule", "epsilon"),
    "mf_fig6": ("problem", "mechanism", "schedule", "epsilon"),
    "secagg_fig2": ("task", "noise_multiplier", "compression_rate"),
    "secagg_fig3": ("task", "compression_rate", "bits"),
    "secagg_table1": ("task", "compression_rate", "bits"),
    "secagg_fig4": ("task", "model", "compression_rate"),
    "secagg_fig7": ("task", "cohort_size", "noise_multiplier", "compression_rate"),
    "secagg_fig8": ("task", "cohort_size", "noise_multiplier", "compression_rate"),
    "secagg_fig9": ("task", "noise_multiplier", "embedding", "rest"),
    "secagg_fig10": ("task", "noise_multiplier", "embedding", "rest"),
    "sgmf_fig3": ("problem", "epsilon", "compression_rate"),
    "sgmf_fig7": ("problem", "epsilon", "compression_rate"),
    "sgmf_fig8": ("problem", "epsilon", "compression_rate"),
    "sgmf_sensitivity": ("mechanism", "epsilon", "clip_norm", "server_lr"),
}
TABLES = {
    "equal_bits": ("mechanism", "point"),
    "equal_bits_docs": ("mechanism", "point"),
    "stream_training": ("mechanism", "way"),
    "dome_compare": ("mechanism", "epsilon"),
    "dome_ablations": ("mechanism", "epsilon"),
    "dome_cnn": ("mechanism", "epsilon"),
    "dome_energy": ("mechanism", "epsilon"),
    "mf_one_rate": ("mechanism", "schedule", "epsilon"),
    **PANELS,
}
FINAL = ("final_loss", "final_accuracy")
MEASURES = {"mnist": "final_accuracy", "docs": "final_loss"}
DOME = ("dome_compare", "dome_ablations", "dome_cnn")
# Those of which the text has losses and accuracies.
BOTH = ("equal_bits_docs", "stream_training", "secagg_fig9", "secagg_fig10", "mf_fig3")
# Noise is given, and no budget.
WITHOUT_BUDGET = ("secagg_fig9", "secagg_fig10")
NUMBER = re.compile(r"\d\.\d{3} \(\d\.\d{3} to \d\.\d{3}\)")


def text_of(page):
    """A page of docs as one line."""
    return " ".join((DOCS / f"{page}.md").read_text(encoding="utf-8").split())


def groups(name):
    """The runs of each row of a page, which differ in the seed alone."""
    table = result_rows.read_csv(DOCS / f"results/{name}.csv")
    keys = dict.fromkeys(tuple(row[c] for c in TABLES[name]) for row in table)
    return [result_rows.where(table, **dict(zip(TABLES[name], key))) for key in keys]


def panels():
    """The runs of each row of those, and what they are compared by."""
    for name in PANELS:
        for runs in groups(name):
            yield runs, MEASURES[runs[0].get("problem", runs[0].get("task"))]


def said(runs, column):
    found = result_rows.numbers(runs, column)
    return f"{sum(found) / 3:.3f} ({min(found):.3f} to {max(found):.3f})"


@pytest.mark.parametrize("name", TABLES)
def test_each_row_is_three_seeds_at_the_budget(name):
    for runs in groups(name):
        assert [run["seed"] for run in runs] == ["1", "2", "3"]
        # Where it is a label, the epsilon of the event has another name.
        is_label = "measured_epsilon" in runs[0]
        spent = "measured_epsilon" if is_label else "epsilon"
        budget = float(runs[0]["epsilon"]) if is_label else 8
        is_given = name in WITHOUT_BUDGET or runs[0].get("budget") == ""
        if runs[0]["epsilon"] != "inf" and not is_given:
            found = result_rows.numbers(runs, spent)
            assert all(0.98 * budget < epsilon <= budget for epsilon in found)
        assert len({run["noise_multiplier"] for run in runs}) == 1


def test_the_figures_page_has_each_row():
    page = (DOCS / "figures.md").read_text(encoding="utf-8")
    for name, measure in (
        ("equal_bits", "final_accuracy"),
        ("equal_bits_docs", "final_loss"),
    ):
        for runs in groups(name):
            columns = [f"{way}link_bits_per_parameter" for way in ("up", "down")]
            bits = [result_rows.mean_and_range(runs, column)[0] for column in columns]
            cells = [*(f"{value:.3g}" for value in bits), said(runs, measure)]
            assert f"| {' | '.join(cells)} |" in page
    for runs in groups("stream_training"):
        for column in FINAL:
            assert f"| {said(runs, column)} |" in page


def test_the_figures_page_has_each_row_of_dome():
    page = (DOCS / "figures.md").read_text(encoding="utf-8")
    for runs in (runs for name in DOME for runs in groups(name)):
        cell = said(runs, "final_accuracy")
        if runs[0]["epsilon"] == "inf":
            assert f"| {cell} |" in page
            continue
        columns = [f"{way}link_bits_per_parameter" for way in ("up", "down")]
        bits = [result_rows.mean_and_range(runs, column)[0] for column in columns]
        assert f"| {bits[0]:.3g}, {result_rows.short(bits[1])} | {cell} |" in page


def test_the_figures_page_has_each_row_of_the_medium_scale():
    page = (DOCS / "figures.md").read_text(encoding="utf-8")
    for runs, measure in panels():
        bits = result_rows.mean_and_range(runs, "uplink_bits_per_parameter")[0]
        noise = result_rows.numbers(runs, "noise_multiplier")[0]
        assert f"| {noise:.3g} | {bits:.3g} | {said(runs, measure)} |" in page


def known():
    """Means and ranges of all tables, as the pages say them."""
    return {
        *(said(runs, "final_accuracy") for runs in groups("equal_bits")),
        *(
            said(runs, "final_accuracy")
            for name in (*DOME, "dome_energy", "mf_one_rate")
            for runs in groups(name)
        ),
        *(said(runs, measure) for runs, measure in panels()),
        *(
            said(runs, column)
            for name in BOTH
            for runs in groups(name)
            for column in FINAL
        ),
    }


@pytest.mark.parametrize(
    ("page", "least"),
    [
        *(("README.md", 14), ("docs/claims.md", 30)),
        *(("docs/figures.md", 90), ("docs/dome.md", 3)),
    ],
)
def test_a_page_says_what_the_tables_have(page, least):
    text = (DOCS.parent / page).read_text(encoding="utf-8")
    found = NUMBER.findall(" ".join(text.split()))
    assert len(found) >= least and not set(found) - known()


def test_when_momentum_in_the_matrix_overtakes():
    found = result_rows.read_csv(DOCS / "results/mf_fig6_curves.csv")
    constant = result_rows.where(found, problem="mnist", schedule="constant")
    page, claims = text_of("figures"), text_of("claims")
    means = {}
    for number in (7, 28, 42):
        means[number] = [
            f"{result_rows.mean_and_range(runs, 'eval_accuracy')[0]:.3f}"
            for name in ("optimal", "optimal-prefix-sum")
            for runs in [result_rows.where(constant, mechanism=name, round=number)]
        ]
        assert " to ".join(means[number]) in page
    for number, said_so in ((7, "seven rounds"), (28, "28")):
        optimal, prefix = means[number]
        assert f"{prefix} and {optimal} after {said_so}" in claims
        assert optimal < prefix
    behind = set()
    for number in result_rows.distinct(constant, "round"):
        reached = [
            result_rows.numbers(
                result_rows.where(constant, mechanism=name, round=number),
                "eval_accuracy",
            )
            for name in ("optimal", "optimal-prefix-sum")
        ]
        if max(reached[0]) < min(reached[1]):
            behind.add(int(number))
    assert behind == {7, 14, 28, 35}
    assert "behind after 7, 14, 28 and 35 of 49 rounds" in claims
    first, second = (
        f"{result_rows.mean_and_range(runs, 'eval_loss')[0]:.3f}"
        for name in ("optimal-prefix-sum", "optimal")
        for runs in [result_rows.where(found, problem="docs", mechanism=name, round=7)]
        for runs in [result_rows.where(runs, schedule="constant")]
    )
    assert f"docstrings, loss: {first} and {second} after seven rounds" in claims
    assert first > second


def test_how_much_of_the_gap_to_no_noise_is_closed():
    found = result_rows.where(
        result_rows.read_csv(DOCS / "results/mf_fig3.csv"), problem="mnist"
    )
    constant = result_rows.where(found, schedule="constant")

    def mean(name, epsilon):
        runs = result_rows.where(constant, mechanism=name, epsilon=epsilon)
        assert len(runs) == 3
        return result_rows.mean_and_range(runs, "final_accuracy")[0]

    best = mean("no-noise", "inf")
    closed = [
        100 * (mean("optimal", each) - online) / (best - online)
        for each in ("4.0", "8.0", "16.0")
        for online in [mean("honaker-online", each)]
    ]
    words = "{:.0f}, {:.0f} and {:.0f}% of the gap".format(*closed)
    assert all(words in text_of(page) for page in ("claims", "figures"))


ENERGY = "aggregator_explained_energy"


def test_what_the_sketch_of_dome_sees():
    found = result_rows.read_csv(DOCS / "results/dome_energy_curves.csv")
    pages = [text_of("figures"), text_of("gallery")]

    def mean(column, mechanism, epsilon, begin):
        runs = result_rows.where(found, mechanism=mechanism, epsilon=epsilon)
        chosen = [run for run in runs if int(run["round"]) >= begin]
        assert result_rows.distinct(chosen, "seed") == ["1", "2", "3"]
        assert len(chosen) == 3 * (49 - begin)
        return result_rows.mean_and_range(chosen, f"aggregator_{column}")[0]

    def energies(mechanism, epsilon, begin):
        runs = result_rows.where(found, mechanism=mechanism, epsilon=epsilon)
        runs = [run for run in runs if int(run["round"]) >= begin]
        seeds = [
            result_rows.mean_and_range(result_rows.where(runs, seed=seed), ENERGY)[0]
            for seed in result_rows.distinct(runs, "seed")
        ]
        mean, low, high = sum(seeds) / 3, min(seeds), max(seeds)
        return f"{mean:.1%} ({100 * low:.1f} to {100 * high:.1f})"

    own, whole, no_probes = (
        [f"{mean('explained_energy', name, each, 33):.1%}" for each in ("8.0", "inf")]
        for name in ("dome", "dome_whole", "dome_no_probes")
    )
    held = [
        [energies(name, each, 33) for each in ("8.0", "inf")]
        for name in ("dome_whole", "dome")
    ]
    claims = text_of("claims")
    (whole_noise, whole_none), (own_noise, own_none) = held
    assert (
        f"holds {whole_noise} of the energy at ε=8 and {whole_none} without" in claims
    )
    assert f"with mean removal {own_noise} and {own_none}, where" in claims
    assert f"holds {energies('dome_no_probes', '8.0', 33)} of the energy" in claims
    assert f"sees {own[0]} of it at ε=8 and {own[1]} without noise" in pages[0]
    assert f"without mean removal {whole[0]} and {whole[1]} (" in pages[0]
    assert set(no_probes) == {"1.1%"} and "sees 1.1%, less" in pages[0]
    assert f"sketch sees {own[0]} at ε=8, without mean removal {whole[0]}" in pages[1]
    kept = [
        round(mean("retained_rank", name, each, 48))
        for name in ("dome", "dome_whole")
        for each in ("8.0", "inf")
    ]
    assert (
        "keeps {} directions at ε=8 and {} without noise, without mean removal {} and "
        "{}: noise"
    ).format(*kept) in pages[0]
    later = [row for row in found if int(row["round"]) > 1]
    least = min(result_rows.numbers(later, "aggregator_subspace_overlap"))
    assert f"is {least:.2f} or more" in pages[0]


def test_what_guessing_by_frequency_comes_to():
    [found] = result_rows.read_csv(DOCS / "results/docs_frequencies.csv")
    loss = f"loss of {float(found['loss']):.2f}"
    figures, tasks = text_of("figures"), text_of("tasks")
    accuracy = f"accuracy of {float(found['accuracy']):.1%}"
    assert f"{loss} and an {accuracy}" in figures and loss in tasks
    assert f"{found['clients']} modules" in figures


def test_no_claim_has_an_empty_cell():
    for line in (DOCS / "claims.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            assert all(cell.strip() for cell in line.strip("|").split("|"))


def test_the_settings_of_mnist_are_the_best_that_were_found():
    found = result_rows.read_csv(DOCS / "results/mnist_search.csv")
    best, *others = sorted(found, key=lambda row: -float(row["validation_accuracy"]))
    flags = flag_files.values("tasks/mnist.flags")
    assert float(flags["server_lr"]) == float(best["server_lr"])
    assert float(best["clip_norm"]) == mnist.DEFAULTS.clip_norm
    page = (DOCS / "tasks.md").read_text(encoding="utf-8")
    last, first = (float(others[i]["validation_accuracy"]) for i in (-1, 0))
    assert f"accuracy was {float(best['validation_accuracy']):.3f}" in page
    assert f"from {last:.3f} to {first:.3f}" in page


TASKS_OF_ACCOUNTANTS = {
    "mnist": (836, 48, 1e-4, 1_011_466),
    "docs": (2459, 128, 2459**-1.1, 39_932),
}


def test_noise_is_what_either_accountant_asks_for():
    """Those that take seconds, of dropped coordinates, are left out."""
    found = result_rows.read_csv(DOCS / "results/accountants.csv")
    sparse = ("l2_csgm", "sgmf")
    chosen = [
        row
        for row in found
        if row["accountant"] == "rdp" or row["mechanism"] not in sparse
    ]
    assert len(found) == 19 and len(chosen) == 13
    for row in chosen:
        population, rounds, delta, dimension = TASKS_OF_ACCOUNTANTS[row["task"]]
        epoch = population // 100
        values = {"cohort_size": 100, "noise_multiplier": 1.0, "clip_norm": 1.0}
        if row["mechanism"] in sparse:
            values["compression_rate"] = float(row["compression_rate"])
        if row["mechanism"] in ("matrix_factorization", "sgmf"):
            values["rounds_per_epoch"] = epoch
        calibrated = planning.calibrate(
            build.build(row["mechanism"], values),
            participation.build(
                row["participation"], population, 100, rounds, rounds_per_epoch=epoch
            ),
            dimension,
            8.0,
            delta,
            row["accountant"],
        )
        expected = float(row["noise_multiplier"])
        assert calibrated.noise_multiplier == pytest.approx(expected, rel=1e-4), row


def test_what_the_pages_say_of_accountants():
    found = {
        (row["task"], row["mechanism"], row["compression_rate"], row["accountant"]): (
            float(row["noise_multiplier"])
        )
        for row in result_rows.read_csv(DOCS / "results/accountants.csv")
        if row["participation"] != "random_slot"
    }
    page = text_of("figures")
    plain = found["mnist", "gaussian", "1", "tight"]
    said = [plain, *(found["mnist", "gaussian", "1", "rdp"],)]
    said += [found["mnist", "l2_csgm", "10", kind] for kind in ("rdp", "tight")]
    assert (
        "noise multiplier of {:.3f} by the one and {:.3f} by the other, and L2-CSGM at "
        "10-fold compression {:.3f} by RDP, and {:.3f} with".format(*said)
    ) in page
    extra = {
        (task, rate): [
            found[task, "l2_csgm", rate, kind] / found[task, "gaussian", "1", kind] - 1
            for kind in ("rdp", "tight")
        ]
        for task in ("mnist", "docs")
        for rate in ("10", "100")
    }
    assert 0.015 < max(extra["mnist", "10"]) <= 0.02
    assert [f"{100 * some:.0f}" for some in extra["mnist", "100"]] == ["13", "15"]
    assert all(0.075 < some < 0.09 for some in extra["docs", "10"])
    assert [f"{1 + some:.1f}" for some in extra["docs", "100"]] == ["2.6", "3.2"]
    charged = [
        found[task, name, rate, "rdp"] / found[task, name, rate, "tight"] - 1
        for task, name, rate, kind in found
        if kind == "rdp" and rate == "10"
    ]
    assert all(0.065 < some < 0.095 for some in charged)
