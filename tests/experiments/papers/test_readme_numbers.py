# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What the README says of costs are differences between rows of tables."""

import pytest

from experiments.papers import result_rows
from tests.experiments.papers.test_results import DOCS, said, text_of


def runs(name, **labels):
    """The runs of a row of a figure, which differ in the seed alone."""
    found = result_rows.where(
        result_rows.read_csv(DOCS / f"results/{name}.csv"), **labels
    )
    assert [row["seed"] for row in found] == ["1", "2", "3"]
    return found


def mean(found, column):
    return result_rows.mean_and_range(found, column)[0]


def points(better, worse):
    """Of accuracy, in the mean."""
    return 100 * (mean(better, "final_accuracy") - mean(worse, "final_accuracy"))


def share_of_what_is_learned(better, worse):
    """How much of what a model learns beyond the words' frequencies is lost."""
    [guessed] = result_rows.read_csv(DOCS / "results/docs_frequencies.csv")
    best = mean(better, "final_loss")
    return (mean(worse, "final_loss") - best) / (float(guessed["loss"]) - best)


def reach(found, column="final_accuracy"):
    """The least and the largest of seeds."""
    return min(result_rows.numbers(found, column)), max(
        result_rows.numbers(found, column)
    )


def overlap(some, others):
    """Whether the seeds of two rows have values between each other's."""
    return reach(some)[0] <= reach(others)[1] and reach(others)[0] <= reach(some)[1]


def test_what_compression_costs():
    page = text_of("../README")
    assert (
        "With a million parameters 100-fold compression costs about half a point of "
        "accuracy, which three seeds do not tell from none"
    ) in page
    for epsilon in (2.0, 8.0):
        whole, kept = (
            runs("csgm_fig2", task="mnist", epsilon=epsilon, compression_rate=rate)
            for rate in (1, 100)
        )
        assert 0.35 < points(whole, kept) < 0.65 and overlap(whole, kept)
    tight = [
        runs("csgm_tight", task="mnist", compression_rate=rate) for rate in (1, 100)
    ]
    assert f"none, and {points(*tight):.1f} points [with one accountant" in page


def test_what_compression_costs_on_docstrings():
    page = text_of("../README")
    whole, tenth, hundredth = (
        runs("csgm_fig2", task="docs", compression_rate=rate) for rate in (1, 10, 100)
    )
    more = mean(tenth, "final_loss") - mean(whole, "final_loss")
    assert (
        f"of the docstrings has 39,932. There 10-fold costs {more:.2f} of the test "
        "loss, which the seeds of this table tell from none and those of [another run]"
    ) in page
    assert (
        "of the same setting do not. A 100-fold compression costs three quarters of "
        "what is learned beyond the words' frequencies at the one rate that all three "
        "share, and half of it at a smaller one"
    ) in page
    again = (
        runs("stream_training", mechanism=name, way="Poisson sampling")
        for name in ("GM", "CSGM")
    )
    assert reach(whole, "final_loss")[1] < reach(tenth, "final_loss")[0]
    before, after = (reach(found, "final_loss") for found in again)
    assert after[0] < before[1]
    assert 0.7 < share_of_what_is_learned(whole, hundredth) < 0.8
    own = runs("equal_bits_docs", mechanism="l2_csgm", point="r100")
    assert 0.45 < share_of_what_is_learned(whole, own) < 0.55


def test_what_sgmf_costs():
    whole, kept = (
        runs("sgmf_fig3", problem="mnist", epsilon=8.0, compression_rate=rate)
        for rate in (1, 100)
    )
    assert (
        f"it has {points(whole, kept):.1f} points less than uncompressed matrix "
        "factorization at equal ε=8, about what seeds differ by, with a hundredth of "
        "the bits up, and as much as the Gaussian mechanism above has with all 32 bits"
    ) in text_of("../README")
    low, high = reach(kept)
    assert points(whole, kept) < 100 * (high - low) < 2 * points(whole, kept)
    gaussian = runs("csgm_fig2", task="mnist", epsilon=8.0, compression_rate=1)
    assert low < mean(gaussian, "final_accuracy") < high
    bits = mean(kept, "uplink_bits_per_parameter")
    assert bits * 100 == pytest.approx(32, rel=0.05)


def test_what_a_sketch_costs():
    page = text_of("../README")
    [noise] = {
        row["noise_multiplier"]
        for row in result_rows.read_csv(DOCS / "results/secagg_fig2.csv")
        if row["task"] == "mnist" and row["noise_multiplier"] != "0.0"
    }
    whole, tenth, hundredth = (
        runs("secagg_fig2", task="mnist", noise_multiplier=noise, compression_rate=rate)
        for rate in (1, 10, 100)
    )
    plain, sketched = (
        runs("equal_bits_docs", mechanism=name, point=point)
        for name, point in (("ddg", "b8"), ("sketched_ddg", "r10_b7"))
    )
    assert (
        "sending a tenth of the numbers costs nothing that three seeds show, and "
        "sending a hundredth costs half a point; on docstrings, with a rate for each, "
        "a tenth ends at "
        f"{said(sketched, 'final_loss')} where no sketch has "
        f"{said(plain, 'final_loss')}, in `equal_bits_docs` above: a quarter of what "
        "is learned"
    ) in page
    assert 0.2 < share_of_what_is_learned(plain, sketched) < 0.3
    assert overlap(whole, tenth) and not overlap(whole, hundredth)
    assert 0.35 < points(whole, hundredth) < 0.65
