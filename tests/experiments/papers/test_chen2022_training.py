# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from dpfl import accounting, mechanisms, tasks
from experiments.papers import sweep
from experiments.papers.chen2022 import figures, layers, tables, training
from tests.experiments.papers import invented

FIGURES = {
    figure.name: figure
    for figure in figures.FIGURES
    if figure.folder in (figures.SWEEP, "secagg_layers")
}
DIMENSION = 15_994


def pretended(work, accuracy=0.9, loss=5.0):
    """A row as a run would leave it, with bits as the mechanism counts them."""
    settings, rate = work.settings, float(work.settings.get("compression_rate", 1))
    bits = int(settings["bits"]) / rate
    row = {name: str(value) for name, value in work.labels.items()}
    return {
        **row,
        "final_accuracy": str(accuracy),
        "final_loss": str(loss),
        "noise_multiplier": str(settings.get("noise_multiplier", 1.9)),
        "epsilon": "inf" if settings.get("noise_multiplier") == "0.0" else "7.5",
        "uplink_bits_per_parameter": str(bits),
        "uplink_bits_per_client": str(bits * DIMENSION),
        "folder": work.folder,
    }


@pytest.mark.parametrize(
    ("name", "scale"),
    [(name, scale) for name, each in FIGURES.items() for scale in each.scales],
)
def test_grid_says_what_it_runs(name, scale):
    grid = FIGURES[name].grid(sweep.Setting(scale))
    for work in grid:
        labels, settings = work.labels, work.settings
        assert int(settings["seed"]) == labels["seed"]
        # With both, a run would end where the budget is spent.
        given, other = "noise_multiplier", "epsilon"
        if "budget" in labels:
            given, other = other, given
        wanted = labels.get("budget", labels.get("noise_multiplier"))
        assert float(settings[given]) == wanted
        assert other not in settings
        # Clients that bring their own noise cannot be sampled.
        assert settings["noise_source"] == "helpers"
        assert settings["participation"] == "poisson"
        if "bits" in labels:
            assert int(settings["bits"]) == labels["bits"]
            assert int(settings["cohort_size"]) == labels["cohort_size"]


@pytest.mark.parametrize("name", ["secagg_fig2", "secagg_fig3", "secagg_fig7"])
def test_rate_of_one_has_no_sketch(name):
    for work in FIGURES[name].grid(sweep.Setting("small")):
        rate, settings = work.labels["compression_rate"], work.settings
        if rate == 1:
            assert settings["mechanism"] == "distributed_discrete_gaussian"
            assert "compression_rate" not in settings
        else:
            assert settings["mechanism"] == "sketched_ddg"
            assert float(settings["compression_rate"]) == rate


def test_every_figure_of_the_sweep_has_the_uncompressed_run_to_compare_with():
    for name in ("secagg_fig2", "secagg_fig3", "secagg_fig4", "secagg_fig7"):
        grid = FIGURES[name].grid(sweep.Setting("small"))

        def noise(work):
            labels = work.labels
            return labels["task"], labels.get("noise_multiplier", labels.get("budget"))

        plain = {noise(w) for w in grid if w.labels["compression_rate"] == 1}
        assert plain == {noise(work) for work in grid}


CLIENTS = {
    **{"digits": 100, "docs": 333, "mnist": 836},
    **{"emnist": 3400, "stackoverflow": 342_477},
}
BUDGETS = {"small": 8.0, "medium": 8.0, "paper": 5.0}


def dimension_of(task):
    """Parameters of a run's network: at the medium scale it is not the task's own."""
    return 1_011_466 if task == "mnist" else tasks.task_entry(task).dimension


def mechanism_of(settings, noise_multiplier):
    sketch = {}
    if "compression_rate" in settings:
        sketch = {"compression_rate": float(settings["compression_rate"])}
    return mechanisms.MECHANISMS[settings["mechanism"]](
        cohort_size=int(settings["cohort_size"]),
        clip_norm=0.1,
        noise_multiplier=noise_multiplier,
        bits=int(settings["bits"]),
        noise_source="helpers",
        adaptive_clipping=settings.get("adaptive_clipping") == "true",
        **sketch,
    )


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_no_run_is_refused_for_its_bits(scale):
    for name in ("secagg_fig2", "secagg_fig7"):
        for work in FIGURES[name].grid(sweep.Setting(scale)):
            if work.settings["seed"] == "1":
                z = float(work.settings["noise_multiplier"])
                dimension = tasks.task_entry(work.labels["task"]).dimension
                mechanism_of(work.settings, z).check_noise(dimension)


@pytest.mark.parametrize("scale", BUDGETS)
def test_every_budget_is_within_reach_of_its_bits(scale):
    for work in FIGURES["secagg_table1"].grid(sweep.Setting(scale)):
        settings = work.settings
        if settings["seed"] != "1" or work.labels["budget"] != BUDGETS[scale]:
            continue
        population = CLIENTS[work.labels["task"]]
        dimension = dimension_of(work.labels["task"])
        plan = mechanisms.PoissonSampling(
            population, int(settings["cohort_size"]), rounds=int(settings["rounds"])
        )
        delta = float(settings["delta"])
        # The bits decide whether a budget can be met at all: some noise must do.
        found = min(
            accounting.epsilon(
                mechanism_of(settings, z).dp_event(plan, dimension), delta
            ).epsilon
            for z in (1.9, 3.0, 5.0)
        )
        assert found < work.labels["budget"]


@pytest.mark.parametrize("name", FIGURES)
def test_drawing(name, tmp_path):
    figure = FIGURES[name]
    rows = [pretended(work) for work in figure.grid(sweep.Setting("small"))]
    for shown in (rows, rows[:1]):
        invented.draw(figure, shown, tmp_path / "figure.png")
        assert (tmp_path / "figure.png").stat().st_size > 2000


def rows_of_table(accuracies):
    """Rows over (rate, bits) at one budget with one seed each."""
    grid = FIGURES["secagg_table1"].grid(sweep.Setting("small"))
    rows = []
    for work in grid:
        key = work.labels["compression_rate"], work.labels["bits"]
        if work.labels["budget"] == 8.0 and key in accuracies:
            rows.append(pretended(work, accuracies[key]))
    return rows


def test_table1_takes_the_fewest_bits_within_the_slack():
    rows = rows_of_table(
        {
            (1, 16): 0.900,
            (1, 8): 0.8911,  # 0.99% below
            (1, 7): 0.8909,  # 1.01% below
            (10, 16): 0.92,
            (10, 7): 0.8911,
            (100, 16): 0.85,
        }
    )
    found = {row["r"]: row for row in tables.fewest_bits(rows)}
    assert found["1"]["b"] == "8"
    assert found["10"]["b"] == "7"
    assert found["10"]["bits per parameter"] == "0.7"
    assert "100" not in found


def test_table1_is_measured_against_the_most_bits():
    rows = rows_of_table({(1, 16): 0.90, (1, 7): 0.5, (10, 7): 0.5})
    assert [row["b"] for row in tables.fewest_bits(rows)] == ["16"]


def test_slack_of_a_loss_is_above_it():
    rows = [{"task": "docs", "final_loss": "5.0", "final_accuracy": "0.05"}]
    bar = training.bar(rows, "docs")
    assert bar == pytest.approx(5.2)
    assert training.within([{**rows[0], "final_loss": "5.19"}], bar, "docs")
    assert not training.within([{**rows[0], "final_loss": "5.21"}], bar, "docs")


def test_cohorts_at_one_epsilon_have_a_rate_each():
    rates = {}
    for work in FIGURES["secagg_fig7"].grid(sweep.Setting("medium")):
        what = work.labels["cohort_size"], "budget" in work.labels
        rates.setdefault(what, set()).add(work.settings["server_lr"])
    assert rates == {
        **{(50, False): {"0.2"}, (200, False): {"0.2"}},
        **{(50, True): {"0.2"}, (200, True): {"0.5"}},
    }


def test_a_panel_of_cohorts_says_its_budget_once():
    works = FIGURES["secagg_fig7"].grid(sweep.Setting("medium"))
    rows = [{**pretended(work), "epsilon": "7.9"} for work in works]
    drawn = FIGURES["secagg_fig7"].draw(rows, "medium")
    titles = [axis.get_title().split(";")[0] for axis in drawn.axes]
    assert titles == ["mnist, noise multiplier 1", r"mnist, $\varepsilon$=8"]
    names = [axis.get_legend_handles_labels()[1] for axis in drawn.axes]
    assert r"50 clients ($\varepsilon$=7.9)" in names[0] and "50 clients" in names[1]


def test_fig8_compresses_as_much_as_secure_aggregation_asks_for():
    grid = FIGURES["secagg_fig8"].grid(sweep.Setting("small"))
    found = tables.equal_times([pretended(work) for work in grid])
    assert [(row["n"], row["r"]) for row in found] == [("10", "1"), ("50", "10")] * 2
    paper = FIGURES["secagg_fig8"].grid(sweep.Setting("paper"))
    found = tables.equal_times([pretended(work) for work in paper])
    assert [(row["n"], row["r"]) for row in found] == [("100", "1"), ("1000", "15")] * 3


@pytest.mark.parametrize("name", ["secagg_fig9", "secagg_fig10"])
def test_layers_are_those_of_the_model(name):
    # 2000 words and 4 special tokens of width 32; the rest is 93,044.
    rest = tasks.task_entry("docs").dimension - layers.LAYERS["small"].embedding
    assert (2004 * 32, rest) == (layers.LAYERS["small"].embedding, 93_044)
    assert layers.LAYERS["medium"].embedding == 1004 * 16
    assert layers.LAYERS["paper"].embedding == 10_004 * 96
    together = separate = 0
    for work in FIGURES[name].grid(sweep.Setting("small")):
        rates = work.settings.get("layer_rates")
        separate += rates is not None
        together += "compression_rate" in work.settings
        if rates:
            wanted = [work.labels["embedding"], work.labels["rest"]]
            assert [float(rate) for rate in rates.split(",")] == wanted
            assert "compression_rate" not in work.settings
    assert (together, separate) == (2, 4)
