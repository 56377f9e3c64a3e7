# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What the pictures of docs/images say, drawn again from the tables in docs/results."""

import contextlib

import matplotlib
import pytest

from experiments.papers import index, kept, plotting, rows, sweep
from experiments.papers.dome2025 import ablation_grid, comparison_drawing
from tests.experiments.papers import test_kept

matplotlib.use("Agg")


@contextlib.contextmanager
def picture(name):
    """A figure that is drawn from its table in docs."""
    import matplotlib.pyplot as plt

    path = test_kept.RESULTS / f"{name}.csv"
    figure, scale = index.FIGURES[name], rows.read_csv(path)[0]["scale"]
    found = kept.read(path, figure, scale, figure.grid(sweep.Setting(scale)))
    with plotting.style():
        drawn = figure.draw(found, scale)
        drawn.canvas.draw()
    yield drawn
    plt.close(drawn)


def legend(owner):
    (found,) = owner.legends if hasattr(owner, "legends") else [owner.get_legend()]
    return [text.get_text() for text in found.get_texts()]


def names(axis):
    return [label.get_text() for label in axis.get_yticklabels()]


def test_bits_are_those_at_a_finite_epsilon():
    runs = [
        {
            "epsilon": epsilon,
            "uplink_bits_per_parameter": "0.5",
            "downlink_bits_per_parameter": down,
        }
        for epsilon, down in (("8.0", "180"), ("8.0", "176"), ("inf", "4"))
    ]
    assert comparison_drawing.bits(runs) == "0.5 up, 178 down"
    assert comparison_drawing.bits(runs[2:]) == "0.5 up, 4 down"


def test_the_comparison_has_the_bits_of_the_page():
    with picture("dome_compare") as drawn:
        found = [name.split()[-2] for name in names(drawn.axes[0])]
    # Of the rows of DOME.
    assert found[:6] == ["178", "487", "284", "407", "47.7", "207"]


def test_ablations_change_one_choice_in_words():
    with picture("dome_ablations") as drawn:
        (axis,) = drawn.axes
        shown = names(axis)
        assert legend(axis) == ["nothing changed", r"$\varepsilon$=8"]
        assert r"$\varepsilon$=8" in axis.get_title()
    assert shown == [each.title for each in ablation_grid.ablations("medium").values()]
    assert len(shown) == len(set(shown)) == 16
    assert not [name for name in shown if "rule" in name or "_" in name.split("$")[0]]


def test_streams_say_that_each_seed_is_shown():
    with picture("stream_training") as drawn:
        assert drawn.get_suptitle().endswith("mean, range and each of 3 seeds")
        assert names(drawn.axes[1])[0] == "L2-CSGM, Poisson sampling"
        low, high = drawn.axes[0].get_xlim()
        ticks = [tick for tick in drawn.axes[0].get_xticks() if low <= tick <= high]
    assert 3 <= len(ticks) <= 5


def test_the_slack_is_below_the_uncompressed_runs():
    with picture("secagg_fig2") as drawn:
        (axis,) = drawn.axes
        assert axis.get_title().endswith("dotted: 1% below r=1")
        dotted = [line for line in axis.lines if line.get_linestyle() == ":"]
        sums = [sum(matplotlib.colors.to_rgb(line.get_color())) for line in dotted]
    assert len(dotted) == 2 and all(line.get_linewidth() > 1.4 for line in dotted)
    assert sums[1] - sums[0] > 1.2


def test_noise_multipliers_of_many_sizes_have_a_logarithmic_axis():
    with picture("csgm_fig1") as drawn:
        assert [axis.get_yscale() for axis in drawn.axes] == ["log", "linear"]


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("sgmf_fig3", "clip 0.3, server rate 0.5; "),
        ("sgmf_fig7", "clip 1, server rate 0.1; "),
    ],
)
def test_figures_of_one_kind_say_what_tells_them_apart(name, setting):
    with picture(name) as drawn:
        assert drawn.get_suptitle().startswith(setting)


@pytest.mark.parametrize("name", ["csgm_fig2", "csgm_fig5", "sgmf_fig3", "sgmf_fig7"])
def test_ends_of_lines_stand_side_by_side(name):
    with picture(name) as drawn:
        for axis in drawn.axes:
            curves = [line for line in axis.lines if line.get_linestyle() != "None"]
            last = curves[0].get_xdata()[-1]
            ends = [found.lines[0] for found in axis.containers]
            places = [end.get_xdata()[0] for end in ends]
            assert len(ends) == len(curves) == 3
            assert last < places[0] < places[1] < places[2] < 1.15 * last
            for curve, end in zip(curves, ends):
                assert end.get_ydata()[0] == pytest.approx(curve.get_ydata()[-1])
            looks = {(e.get_marker(), e.get_markerfacecolor()) for e in ends}
            assert len(looks) == 3
            assert " clients a round" in axis.get_title()
            low, high = axis.get_xlim()
            assert low < last and places[-1] < high


def test_mechanisms_have_the_names_of_the_pages():
    with picture("mean_estimation") as drawn:
        assert "L∞-CSGM" in legend(drawn.axes[0])
    with picture("equal_bits") as drawn:
        found = legend(drawn)
        assert drawn.axes[0].get_title().startswith("MNIST, 836 writers")
    ways = ("Poisson", "cyclic", "once an epoch")
    assert len(found) == 10 and all(text.endswith(ways) for text in found)


def test_one_line_has_the_same_dashes_in_both_panels():
    with picture("secagg_sparse") as drawn:
        (errors,) = [
            container.lines[0]
            for container in drawn.axes[0].containers
            if container.get_label() == "sparse recovery"
        ]
        bits = drawn.axes[1].lines[-1]
    assert errors.get_linestyle() == bits.get_linestyle() == "--"
    assert errors.get_color() == bits.get_color()
