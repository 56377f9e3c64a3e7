# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import matplotlib
import pytest
from matplotlib import colors

from experiments.papers import plotting, result_rows
from experiments.papers.dome2025 import comparison

matplotlib.use("Agg")
# The width of a page, in pixels, and the least height of a small letter's line there.
PAGE, LEAST = 800, 9


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_text_is_readable_at_a_page_s_width(count):
    import matplotlib.pyplot as plt

    with plotting.style():
        picture, axes = plotting.panels(count, 4.8, 3.5)
        assert len(axes) == count and len(picture.axes) == count
        axes[0].plot([1, 2], label="a")
        plotting.finish(axes[0], xlabel="round")
        texts = [axes[0].xaxis.label, *axes[0].get_legend().get_texts()]
        texts += axes[0].get_xticklabels()
        inch = min(PAGE / picture.get_figwidth(), 150)
        assert all(text.get_fontsize() / 72 * inch >= LEAST for text in texts)
        assert picture.get_figwidth() / axes[0].get_gridspec().ncols >= 3.2
        plt.close(picture)


def test_the_style_is_gone_after_the_figure():
    before = matplotlib.rcParams["font.size"], matplotlib.rcParams["axes.grid"]
    with plotting.style():
        assert matplotlib.rcParams["axes.grid"] is True
    assert (
        matplotlib.rcParams["font.size"],
        matplotlib.rcParams["axes.grid"],
    ) == before


def test_lines_of_one_mechanism_have_its_color_and_their_own_dashes():
    found = [plotting.look("l2_csgm", step) for step in range(4)]
    assert {line["color"] for line in found} == {plotting.STYLES["CSGM"][0]}
    assert len({str(line["ls"]) for line in found}) == 4
    assert "marker" not in plotting.look("GM", marked=False)


def test_shades_go_from_dark_to_light_around_the_color():
    found = [colors.to_rgb(plotting.shade("dome", i, 3)) for i in range(3)]
    assert [sum(one) for one in found] == sorted(sum(one) for one in found)
    own = sum(colors.to_rgb(plotting.STYLES["dome"][0]))
    assert sum(found[0]) < own < sum(found[-1])


def test_every_mechanism_of_the_comparison_has_a_color():
    kinds = {comparison.kind(name) for name in comparison.TITLES}
    assert kinds == {"dome", "sketched_ddg", "l2_csgm", "gaussian"}
    assert kinds <= set(plotting.STYLES)


def test_mechanisms_that_are_not_akin_have_colors_of_their_own():
    akin = [{"optimal", "mf", "MF"}, {"dome", "dome_whole", "dome_few_bits"}]
    akin += [{"gaussian", "GM"}, {"l2_csgm", "CSGM"}, {"sgmf", "SGMF"}]
    akin += [{"ddg", "distributed_discrete_gaussian"}]
    akin += [{"sketched_ddg", "sketched_ddg_once"}]
    found = {}
    for name, (color, _) in plotting.STYLES.items():
        found.setdefault(color, set()).add(name)
    assert sorted(map(sorted, akin)) == sorted(
        sorted(names) for names in found.values() if len(names) > 1
    )


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_lines_stand_aside_evenly_around_their_place(count):
    found = [plotting.aside(number, count) for number in range(count)]
    assert sum(found) == pytest.approx(0) and found == sorted(set(found))
    # Of one place, and not of the next.
    assert found[-1] - found[0] < 0.5


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_pairs_are_all_rounds_and_the_last_at_a_page_s_width(count):
    import matplotlib.pyplot as plt

    picture, found = plotting.pairs(count, 4.4, 3.0)
    assert len(found) == count and len(picture.axes) == 2 * count
    assert len({axis for pair in found for axis in pair}) == 2 * count
    assert picture.get_figwidth() <= 10
    for whole, last in found:
        places = [axis.get_position() for axis in (whole, last)]
        # One beside the other, or one above the other.
        assert places[0].x1 < places[1].x0 or places[0].y0 > places[1].y1
    plt.close(picture)


def test_ranges_of_equal_values_are_zero():
    """Their mean may be rounded to beyond them, and matplotlib refuses a range below 0."""
    same = [{"x": "0.1"}] * 3
    assert sum([0.1] * 3) / 3 > 0.1
    assert result_rows.mean_and_range(same, "x")[1:] == (pytest.approx(0, abs=1e-15), 0)
    mean, down, up = result_rows.mean_and_range(
        [{"x": "1"}, {"x": "2"}, {"x": "6"}], "x"
    )
    assert (mean, down, up) == (3, 2, 3)
