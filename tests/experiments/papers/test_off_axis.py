# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import contextlib

import matplotlib
import pytest

from experiments.papers import off_axis

matplotlib.use("Agg")
SIGNS = pytest.mark.parametrize("is_less", [True, False])


@contextlib.contextmanager
def panel(**options):
    """An empty panel."""
    import matplotlib.pyplot as plt

    picture, axis = plt.subplots()
    axis.set(**options)
    yield axis
    plt.close(picture)


def points(means, worse, *, is_less):
    """Points at 1 whose means are mirrored where more is better, and their ranges."""
    sign = 1 if is_less else -1
    return [
        (1.0, sign * mean, *((0.0, far) if is_less else (far, 0.0)))
        for mean, far in zip(means, worse)
    ]


@SIGNS
def test_an_axis_leaves_out_what_is_far_from_the_best(is_less):
    found = points((1.0, 1.1, 1.2, 1.3, 1.4, 9.0), [0.05] * 6, is_less=is_less)
    drawn = [(point, "k") for point in found]
    means = [mean for _, mean, _, _ in found]
    with panel() as axis:
        assert off_axis.leave_out_far(axis, drawn, lower_is_better=is_less)
        low, high = axis.get_ylim()
        assert [low < mean < high for mean in means] == [True] * 5 + [False]
        arrow = "\u2191" if is_less else "\u2193"
        assert [t.get_text() for t in axis.texts] == [f"{arrow} {means[-1]:.3f}"]
    with panel() as axis:
        before = axis.get_ylim()
        assert not off_axis.leave_out_far(axis, drawn[:5], lower_is_better=is_less)
        assert not off_axis.leave_out_far(axis, [], lower_is_better=is_less)
        assert axis.get_ylim() == before


@SIGNS
def test_one_run_does_not_set_the_axis(is_less):
    """Its point's mean is as near as that of others, and is drawn."""
    found = points((1.0, 1.1, 1.2, 1.3, 1.2), (0.1, 0.1, 0.1, 0.1, 5), is_less=is_less)
    assert off_axis.near(found, lower_is_better=is_less) == found[:4]
    with panel() as axis:
        drawn = [(point, "k") for point in found]
        assert off_axis.leave_out_far(axis, drawn, lower_is_better=is_less)
        low, high = axis.get_ylim()
        assert high - low < 1 and all(low < mean < high for _, mean, _, _ in found)
        (text,) = axis.texts
        assert text.get_text()[2:] == f"to {6.2 if is_less else -6.2:.3f}"


@SIGNS
def test_what_is_written_hides_lines_and_stays_in_the_panel(is_less):
    ends = {"xscale": "log", "xlim": (1, 16), "ylim": (-1, 1)}
    far = 9.0 if is_less else -9.0
    with panel(**ends) as axis:
        lines = axis.plot([1, 16], [0, 0])
        drawn = [((place, far, 0.0, 0.0), "k") for place in (1.1, 1.1, 15.0)]
        off_axis.name_beyond(axis, drawn, is_above=is_less)
        axis.figure.canvas.draw()
        frame = axis.get_window_extent()
        found = [text.get_window_extent() for text in axis.texts]
        assert all(frame.x0 < box.x0 and box.x1 < frame.x1 for box in found)
        assert all(frame.y0 < box.y0 and box.y1 < frame.y1 for box in found)
        assert not found[0].overlaps(found[1])
        for text in axis.texts:
            patch = text.get_bbox_patch()
            assert patch.get_facecolor() == (1, 1, 1, 1)
            assert lines[0].zorder < text.zorder < axis.spines["left"].zorder
