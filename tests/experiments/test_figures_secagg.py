# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math

import matplotlib
import pytest

from dpfl import mechanisms
from experiments import figures, figures_secagg

matplotlib.use("Agg")
FIGURES = {figure.name: figure for figure in figures_secagg.FIGURES}
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
        "epsilon": "inf" if float(settings["noise_multiplier"]) == 0 else "7.5",
        "uplink_bits_per_parameter": str(bits),
        "uplink_bits_per_client": str(bits * DIMENSION),
        "folder": work.folder,
    }


@pytest.mark.parametrize("scale", figures.SCALES)
@pytest.mark.parametrize("name", FIGURES)
def test_grid_has_no_work_twice_and_says_what_it_runs(name, scale):
    grid = FIGURES[name].grid(figures.Setting(scale))
    assert len({work.key for work in grid}) == len(grid)
    assert len({work.folder for work in grid}) == len(grid)
    for work in grid:
        labels, settings = work.labels, work.settings
        assert float(settings["noise_multiplier"]) == labels["noise_multiplier"]
        assert int(settings["seed"]) == labels["seed"]
        # A budget would end runs before their last round.
        assert "target_epsilon" not in settings
        # Clients that bring their own noise cannot be sampled.
        assert settings["noise_source"] == "helpers"
        assert settings["participation"] == "poisson"
        if "bits" in labels:
            assert int(settings["bits"]) == labels["bits"]
            assert int(settings["cohort_size"]) == labels["cohort_size"]


@pytest.mark.parametrize("name", ["secagg_fig2", "secagg_fig3", "secagg_fig7"])
def test_rate_of_one_has_no_sketch(name):
    for work in FIGURES[name].grid(figures.Setting("small")):
        rate, settings = work.labels["compression_rate"], work.settings
        if rate == 1:
            assert settings["aggregator"] == "distributed_discrete_gaussian"
            assert "compression_rate" not in settings
        else:
            assert settings["aggregator"] == "sketched_ddg"
            assert float(settings["compression_rate"]) == rate


def test_every_figure_of_the_sweep_has_the_uncompressed_run_to_compare_with():
    for name in ("secagg_fig2", "secagg_fig3", "secagg_fig4", "secagg_fig7"):
        grid = FIGURES[name].grid(figures.Setting("small"))
        panels = {(w.labels["task"], w.labels["noise_multiplier"]) for w in grid}
        plain = {
            (w.labels["task"], w.labels["noise_multiplier"])
            for w in grid
            if w.labels["compression_rate"] == 1
        }
        assert panels == plain


def test_small_grid_fits_its_bits():
    """No run of the small sweep is refused at the start."""
    for name in ("secagg_fig2", "secagg_fig3", "secagg_fig7"):
        for work in FIGURES[name].grid(figures.Setting("small")):
            if work.labels["task"] != "digits":
                continue
            settings = work.settings
            sketch = {}
            if "compression_rate" in settings:
                sketch = {"compression_rate": float(settings["compression_rate"])}
            mechanism = mechanisms.MECHANISMS[settings["aggregator"]].config(
                cohort_size=int(settings["cohort_size"]),
                clip_norm=0.1,
                noise_multiplier=float(settings["noise_multiplier"]),
                bits=int(settings["bits"]),
                noise_source="helpers",
                **sketch,
            )
            mechanism.check_noise(DIMENSION)


@pytest.mark.parametrize("name", FIGURES)
def test_drawing(name, tmp_path):
    import matplotlib.pyplot as plt

    figure = FIGURES[name]
    rows = [pretended(work) for work in figure.grid(figures.Setting("small"))]
    for shown in (rows, rows[:1]):
        picture = figure.draw(shown, "small")
        picture.savefig(tmp_path / "figure.png")
        plt.close(picture)
        assert (tmp_path / "figure.png").stat().st_size > 2000


def rows_of_table(accuracies):
    """Rows over (rate, bits) at z=4 with one seed each."""
    grid = FIGURES["secagg_table1"].grid(figures.Setting("small"))
    rows = []
    for work in grid:
        key = work.labels["compression_rate"], work.labels["bits"]
        if work.labels["noise_multiplier"] == 4.0 and key in accuracies:
            rows.append(pretended(work, accuracies[key]))
    return rows


def test_table1_takes_the_fewest_bits_within_the_slack():
    rows = rows_of_table(
        {
            (1, 16): 0.900,
            (1, 10): 0.8911,  # 0.99% below
            (1, 8): 0.8909,  # 1.01% below
            (10, 16): 0.92,
            (10, 8): 0.8911,
            (100, 16): 0.85,
        }
    )
    found = {row["r"]: row for row in figures_secagg.table1(rows)}
    assert found["1"]["b"] == "10"
    assert found["10"]["b"] == "8"
    assert found["10"]["bits per parameter"] == "0.8"
    assert "100" not in found


def test_table1_is_measured_against_the_most_bits():
    rows = rows_of_table({(1, 16): 0.90, (1, 8): 0.5, (10, 8): 0.5})
    assert [row["b"] for row in figures_secagg.table1(rows)] == ["16"]


def test_slack_of_a_loss_is_above_it():
    rows = [{"task": "docs", "final_loss": "5.0", "final_accuracy": "0.05"}]
    bar = figures_secagg._bar(rows, "docs")
    assert bar == pytest.approx(5.2)
    assert figures_secagg._within([{**rows[0], "final_loss": "5.19"}], bar, "docs")
    assert not figures_secagg._within([{**rows[0], "final_loss": "5.21"}], bar, "docs")


def test_fig8_compresses_as_much_as_secure_aggregation_asks_for():
    assert figures_secagg.rate_of_equal_time(100, 1000) == pytest.approx(15)
    needed = 50 * math.log(50) / (10 * math.log(10))
    assert figures_secagg.rate_of_equal_time(10, 50) == pytest.approx(needed)
    grid = FIGURES["secagg_fig8"].grid(figures.Setting("small"))
    found = figures_secagg.fig8([pretended(work) for work in grid])
    assert [(row["n"], row["r"]) for row in found] == [("10", "1"), ("50", "10")] * 2


@pytest.mark.parametrize("name", ["secagg_fig9", "secagg_fig10"])
def test_layers_are_those_of_the_model(name):
    from dpfl import tasks

    # 2000 words and 4 special tokens of width 32; the rest is 93,044.
    task = tasks.load_task("docs")
    rest = task.dimension - figures_secagg.LAYERS["small"][1]
    assert (2004 * 32, rest) == (figures_secagg.LAYERS["small"][1], 93_044)
    assert figures_secagg.LAYERS["paper"][1] == 10_004 * 96
    together = separate = 0
    for work in FIGURES[name].grid(figures.Setting("small")):
        rates = work.settings.get("layer_rates")
        separate += rates is not None
        together += "compression_rate" in work.settings
        if rates:
            wanted = [work.labels["embedding"], work.labels["rest"]]
            assert [float(rate) for rate in rates.split(",")] == wanted
            assert "compression_rate" not in work.settings
    assert (together, separate) == (2, 4)
