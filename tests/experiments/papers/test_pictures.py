# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What the pictures of docs/images say, drawn again from the tables in docs/results."""

import colorsys
import contextlib

import matplotlib
import numpy as np
import pytest

from experiments.papers import index, plotting, result_rows, result_tables, sweep
from experiments.papers.dome2025 import ablation, comparison
from tests.experiments.papers import test_result_tables

matplotlib.use("Agg")


@contextlib.contextmanager
def picture(name):
    """A figure that is drawn from its table in docs."""
    import matplotlib.pyplot as plt

    path = test_result_tables.RESULTS / f"{name}.csv"
    figure = index.FIGURES[path.stem]
    scale = result_rows.read_csv(path)[0]["scale"]
    found = result_tables.read(path, figure, scale, figure.grid(sweep.Setting(scale)))
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
    assert comparison.bits(runs) == "0.5 up, 178 down"
    assert comparison.bits(runs[2:]) == "0.5 up, 4 down"


def test_the_comparison_has_the_bits_of_the_page():
    with picture("dome_compare") as drawn:
        found = [name.split()[-2] for name in names(drawn.axes[0])]
    # Of the rows of DOME.
    assert found[:6] == ["178", "1,640", "284", "407", "47.7", "207"]


def test_ablations_change_one_choice_in_words():
    with picture("dome_ablations") as drawn:
        (axis,) = drawn.axes
        shown = names(axis)
        # A budget alone is said once.
        assert legend(axis) == ["nothing changed"]
        assert axis.get_title().startswith(
            "mnist, 100 clients a round, $\\varepsilon$=8\n15,994 parameters; mean"
        )
    assert shown == [each.title for each in ablation.ablations("medium").values()]
    assert len(shown) == len(set(shown)) == 16
    assert not [name for name in shown if "rule" in name or "_" in name.split("$")[0]]


def test_comparisons_say_network_and_clients():
    with picture("dome_cnn") as drawn:
        (axis,) = drawn.axes
        assert axis.get_title() == (
            "mnist, 50 clients a round, $\\varepsilon$=8\n1,011,466 parameters"
        )
        assert axis.get_legend() is None
        own = "DOME, no mean removal, 8-bit numbers, one kept direction"
        assert names(axis)[1].startswith(own)
    with picture("dome_compare") as drawn:
        (axis,) = drawn.axes
        assert axis.get_title() == "mnist, 100 clients a round\n15,994 parameters"
        assert legend(axis) == [r"$\varepsilon$=8", "no noise"]
        # The compression rate is called r.
        assert not [name for name in names(axis) if " r " in name]
        assert [name for name in names(axis) if name.startswith(own)]
    with picture("equal_bits") as drawn:
        assert f"{own}, once an epoch" in legend(drawn)


def test_streams_say_that_each_seed_is_shown():
    with picture("stream_training") as drawn:
        assert drawn.get_suptitle().endswith("mean, range and each of 3 seeds")
        assert names(drawn.axes[1])[0] == "L2-CSGM, Poisson sampling"
        low, high = drawn.axes[0].get_xlim()
        ticks = [tick for tick in drawn.axes[0].get_xticks() if low <= tick <= high]
    assert 3 <= len(ticks) <= 5


def test_the_slack_is_below_the_uncompressed_runs():
    with picture("secagg_fig2") as drawn:
        axis = drawn.axes[0]
        assert axis.get_title().endswith("dotted: 1% below r=1")
        rates = ["server rate 0.5 for all; " in one.get_title() for one in drawn.axes]
        assert rates == [True, True]
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
        ("csgm_tight", "both accounted by privacy loss distributions; "),
    ],
)
def test_figures_of_one_kind_say_what_tells_them_apart(name, setting):
    with picture(name) as drawn:
        assert drawn.get_suptitle().startswith(setting)


CURVES = [
    *("csgm_fig2", "csgm_fig4", "csgm_fig5", "csgm_fig6", "csgm_tight"),
    *("sgmf_fig3", "sgmf_fig7", "sgmf_fig8"),
]


def points(axis):
    """Places and means of the lines with ranges of a panel."""
    return [found.lines[0].get_xydata() for found in axis.containers]


@pytest.mark.parametrize("name", CURVES)
def test_the_last_rounds_can_be_told_apart(name):
    with picture(name) as drawn:
        whole = [axis for axis in drawn.axes if axis.get_legend()]
        last = [axis for axis in drawn.axes if not axis.get_legend()]
        assert len(whole) == len(last) > 0
        for before, after in zip(whole, last):
            assert after.get_title() == "last third of the rounds"
            assert " clients a round" in before.get_title()
            heights = [np.ptp(axis.get_ylim()) for axis in (before, after)]
            assert heights[1] < 0.7 * heights[0]
            rounds = before.lines[0].get_xdata()
            assert list(after.get_xticks()) == list(rounds[-3:][::-1])
            for line, ends in zip(before.lines, points(after)):
                # In the legend alone.
                assert line.get_markevery() == []
                assert ends[:, 1] == pytest.approx(line.get_ydata()[-3:])
                assert ends[:, 0] == pytest.approx(rounds[-3:], abs=1.5)


@pytest.mark.parametrize("name", [*CURVES, "mf_fig6"])
def test_points_of_a_round_stand_side_by_side_within_the_axis(name):
    with picture(name) as drawn:
        for axis in drawn.axes:
            low, high = axis.get_xlim()
            for line in points(axis):
                assert low < line[0, 0] and line[-1, 0] < high
            for before, after in zip(points(axis), points(axis)[1:]):
                assert (before[:, 0] < after[:, 0]).all()
            gaps = [line[0, 0] for line in points(axis)]
            if gaps:
                assert gaps[-1] - gaps[0] < 0.3 * (points(axis)[0][1, 0] - gaps[0])


def test_panels_of_a_problem_share_an_axis_that_has_all_points():
    with picture("mf_fig3") as drawn:
        constant, schedules = drawn.axes[:2]
        low, high = constant.get_ylim()
        shown = [y for line in points(constant) for y in line[:, 1]]
        assert len(shown) == 12 and low < min(shown) and max(shown) < high
        assert schedules.get_ylim() == (low, high)
        assert not constant.texts and not schedules.texts
        assert "arrows" not in drawn.get_suptitle()


def test_one_seed_does_not_set_the_axis_of_the_last_rounds():
    with picture("mf_fig6") as drawn:
        mnist, docs = drawn.axes
        assert [text.get_text() for text in docs.texts] == ["\u2191 5.185"]
        assert not mnist.texts and np.ptp(docs.get_ylim()) < 0.7
        assert drawn.get_suptitle().endswith("arrows: beyond the axis")


def test_ranges_at_a_budget_do_not_overlap():
    with picture("mf_fig3") as drawn:
        for axis in drawn.axes:
            budgets = axis.get_xticks()
            lines = [line[:, 0] for line in points(axis)]
            for places in zip(*lines):
                # Two pixels and more of a page between the caps of ranges.
                gaps = np.diff(
                    axis.transData.transform([(x, 0.9) for x in places])[:, 0]
                )
                assert (gaps > 8).all()
            assert np.exp(np.log(lines).mean(0)) == pytest.approx(budgets)
            assert np.max(np.abs(np.log2(lines / budgets))) < 0.2


@pytest.mark.parametrize("name", ["secagg_fig2", "secagg_fig4", "secagg_fig7"])
def test_a_rate_of_one_is_drawn_as_no_sketch(name):
    with picture(name) as drawn:
        axis = drawn.axes[0]
        assert legend(axis)[-1] == "r=1: no sketch (DDG)"
        lines = [found.lines[0] for found in axis.containers]
        plain = [line for line in lines if line.get_marker() == "o"]
        assert len(plain) == 2
        looks = {(line.get_color(), line.get_markerfacecolor()) for line in plain}
        # Each is told to be of its line.
        assert len(looks) == 2
        own = hue(plotting.STYLES["ddg"][0])[0]
        for line in plain:
            assert hue(line.get_color())[0] == pytest.approx(own, abs=0.03)
        assert plotting.STYLES["ddg"][0] in [line.get_color() for line in plain]
        for line in lines:
            if line.get_marker() == "s":
                ends = [p.get_xydata()[0].tolist() for p in plain]
                marked = set(line.get_markevery() or range(len(line.get_xdata())))
                kept = [line.get_xydata()[i].tolist() for i in marked]
                assert kept and not [place for place in kept if place in ends]


# How legends begin that name a mechanism, longest first.
WORDS = {
    "optimal prefix sum": "optimal-prefix-sum",
    "Honaker online": "honaker-online",
    "Honaker full": "honaker-full",
    "matrix factorization": "mf",
    "optimal, momentum": "mf",
    "optimal": "mf",
    "MF": "mf",
    "SGMF": "sgmf",
    "Gaussian": "gaussian",
    "GM": "gaussian",
    "L2-CSGM": "l2_csgm",
    "L\u221e-CSGM": "linf_csgm",
    "DDG": "ddg",
    "no sketch": "ddg",
    "r=1: no sketch": "ddg",
    "sketched DDG": "sketched_ddg",
    "sketch": "sketched_ddg",
    "count-mean sketch": "sketched_ddg",
    "sparse recovery": "sparse_recovery",
    "project and perturb": "project_and_perturb",
    "DOME": "dome",
}
NAMED = [
    *CURVES,
    *("csgm_fig1", "mean_estimation", "mf_fig1", "mf_fig3", "mf_fig6"),
    *("sgmf_streams", "secagg_mean", "secagg_sparse", "secagg_fig2", "secagg_fig3"),
    *("dome_energy", "equal_bits", "equal_bits_docs"),
]


def hue(color):
    return colorsys.rgb_to_hsv(*matplotlib.colors.to_rgb(color))[:2]


def drawn_color(handle):
    lines = getattr(handle, "lines", None)
    return (lines[0] if lines else handle).get_color()


@pytest.mark.parametrize("name", NAMED)
def test_a_mechanism_has_one_color_in_all_figures(name):
    seen = 0
    with picture(name) as drawn:
        for axis in drawn.axes:
            for handle, label in zip(*axis.get_legend_handles_labels()):
                kinds = [WORDS[word] for word in WORDS if label.startswith(word)]
                if not kinds:
                    continue
                seen += 1
                (own, full), (shown, some) = (
                    hue(plotting.STYLES[kinds[0]][0]),
                    hue(drawn_color(handle)),
                )
                # Shades have the hue; black and grey have none.
                assert (full < 0.05) == (some < 0.05), label
                assert full < 0.05 or shown == pytest.approx(own, abs=0.03), label
    assert seen


def test_bars_of_the_table_have_the_colors_of_their_names():
    with picture("mf_table2") as drawn:
        (axis,) = drawn.axes
        (table,) = axis.tables
        bars = [bar.patches[0].get_facecolor() for bar in axis.containers]
        cells = [table[i, -1].get_facecolor() for i in range(1, 1 + len(bars))]
        assert bars == cells and len(set(bars)) == 7
        others = set(plotting.STYLES) - {"mf", "MF", "optimal", "honaker-online"}
        others -= {"honaker-full", "optimal-prefix-sum"}
        taken = {matplotlib.colors.to_rgba(plotting.STYLES[o][0]) for o in others}
        assert not taken & set(bars)


def test_numbers_of_the_table_are_of_one_kind():
    with picture("mf_table2") as drawn:
        (table,) = drawn.axes[0].tables
        cells = [
            table[i, j].get_text().get_text() for i in range(1, 8) for j in range(6)
        ]
    assert cells[0] == "17.9" and cells[-1] == "4784.4"
    assert all(len(cell.partition(".")[2]) == 1 for cell in cells)


@pytest.mark.parametrize("name", ["mean_estimation", "secagg_mean", "secagg_sparse"])
def test_bars_are_explained(name):
    with picture(name) as drawn:
        title = drawn.get_suptitle() or drawn.axes[0].get_title()
        assert "bars: two standard errors each way" in title
        # No text is broken where it is drawn as it is typed.
        assert "\\n" not in title
        edges = [
            text.get_window_extent()
            for text in drawn.findobj(matplotlib.text.Text)
            if text.get_text() == title
        ]
        assert edges and all(edge.width < drawn.bbox.width for edge in edges)


def test_each_panel_of_streams_has_its_labels():
    with picture("sgmf_streams") as drawn:
        labels = {axis.get_ylabel() for axis in drawn.axes}
        assert labels == {"noise std, over Poisson sampling's"}
        assert [text.get_text() for text in drawn.axes[-1].get_xticklabels()] == [
            *("1", "2", "4", "8", "16", "32"),
        ]


def test_the_legend_says_whose_point_is_beyond_the_axis():
    with picture("equal_bits_docs") as drawn:
        marked = [text for text in legend(drawn) if text.endswith("\u2191")]
        assert marked == ["DOME, once an epoch \u2191"]
        assert drawn.axes[0].get_title().endswith("\u2191: beyond the axis")
        assert [text.get_text() for text in drawn.axes[0].texts] == ["\u2191 5.707"]
    with picture("equal_bits") as drawn:
        assert "\u2191" not in drawn.axes[0].get_title() + "".join(legend(drawn))


def test_mechanisms_have_the_names_of_the_pages():
    with picture("mean_estimation") as drawn:
        assert "L∞-CSGM" in legend(drawn.axes[0])
    with picture("equal_bits") as drawn:
        found = legend(drawn)
        assert drawn.axes[0].get_title().startswith("MNIST, 836 writers")
    ways = ("Poisson", "cyclic", "once an epoch")
    assert len(found) == 12 and all(text.endswith(ways) for text in found)


@pytest.mark.parametrize("name", ["equal_bits", "equal_bits_docs"])
def test_points_of_equal_bits_stand_side_by_side(name):
    with picture(name) as drawn:
        (axis,) = drawn.axes
        # A line, its caps and the points beyond the axis.
        lines = [found.lines[0] for found in axis.containers]
        found = [point for line in lines for point in line.get_xydata()]
        pixels = axis.transData.transform(found)
        low, high = axis.get_xlim()
        assert low < 0.1 < 10 < high
    for i, point in enumerate(pixels):
        for other in pixels[:i]:
            assert np.hypot(*(point - other)) > 5
    whole = sorted(place for place, _ in found if 25 < place < 40)
    assert np.exp(np.mean(np.log(whole))) == pytest.approx(32)
    assert np.divide(whole[1:], whole[:-1]) == pytest.approx(1.05)


def test_a_ring_is_around_each_setting_that_was_chosen():
    with picture("small/dome_tuning") as drawn:
        for axis, task in zip(drawn.axes, ("digits", "docs")):
            rings = [line for line in axis.lines if line.get_markersize() == 11]
            chosen = comparison.COMPARISONS["small"][task].chosen
            assert len(rings) == len(chosen)
            places = {float(ring.get_xdata()[0]) for ring in rings}
            assert places == {rate for _, rate in chosen.values()}
            # Each has the color of a line that goes through it.
            for ring in rings:
                place = ring.get_xydata()[0].tolist()
                lines = [line for line in axis.lines if line not in rings]
                assert ring.get_color() in {
                    line.get_color()
                    for line in lines
                    if place in line.get_xydata().tolist()
                }
        assert drawn.axes[0].get_title() == "digits"
        assert drawn.axes[1].get_title() == "docs; losses up to 27.4 are beyond"


def test_one_line_has_the_same_dashes_in_both_panels():
    with picture("secagg_sparse") as drawn:
        (errors,) = [
            container.lines[0]
            for container in drawn.axes[0].containers
            if container.get_label() == "sparse recovery (LASSO)"
        ]
        bits = drawn.axes[1].lines[-1]
    assert errors.get_linestyle() == bits.get_linestyle() == "--"
    assert errors.get_color() == bits.get_color()
