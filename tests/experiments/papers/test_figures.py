# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figures: rows that a drawing chooses, work without training, and what is drawn."""

import functools
import itertools

import pytest

from dpfl import files, mechanisms, planning
from experiments import effects, plotting, tables
from experiments.panels import Plot
from experiments.papers import (
    chen2022,
    denisov2022,
    mean_estimation,
    result_tables,
    secure_sums,
    stream_errors,
)
from experiments.papers.index import FIGURES
from experiments.trainings import sweep
from tests.experiments.papers import invented


@functools.cache
def grid(name, scale="small"):
    return FIGURES[name].grid(scale)


class TestRows:
    """Rows that a drawing chooses."""

    def rows(self, accuracies):
        for work in grid("secagg_table1"):
            key = work.labels["compression_rate"], work.labels["bits"]
            if key in accuracies:
                labels = {k: str(v) for k, v in work.labels.items()}
                yield {**labels, "final_accuracy": str(accuracies[key])}

    def test_table1_has_the_fewest_bits_within_the_slack(self):
        accuracies = {
            **{(1, 16): 0.900, (1, 8): 0.8911, (1, 7): 0.8909},
            **{(10, 16): 0.92, (10, 7): 0.8911, (100, 16): 0.85},
        }
        found = chen2022.fewest_bits(list(self.rows(accuracies)))
        assert {(r["compression_rate"], r["bits"]) for r in found} == {
            ("1", "8"),
            ("10", "7"),
        }
        found = chen2022.fewest_bits(
            list(self.rows({(1, 16): 0.9, (1, 7): 0.5, (10, 7): 0.5}))
        )
        assert {row["bits"] for row in found} == {"16"}

    def test_slack_of_a_loss_is_above_it(self):
        row = {"task": "docs", "noise_multiplier": "0", "cohort_size": "1"}
        found = chen2022.fewest_bits(
            [
                {**row, "compression_rate": r, "bits": "16", "final_loss": loss}
                for r, loss in (("1", "5.0"), ("10", "5.19"), ("100", "5.21"))
            ]
        )
        assert [row["compression_rate"] for row in found] == ["1", "10"]

    @pytest.mark.parametrize(
        ("scale", "wanted"),
        [
            ("small", {("10", "1"), ("50", "10")}),
            ("paper", {("100", "1"), ("1000", "15")}),
        ],
    )
    def test_fig8_compression_follows_the_secure_aggregation_paper(self, scale, wanted):
        rows = [
            {k: str(v) for k, v in work.labels.items()}
            for work in grid("secagg_fig8", scale)
        ]
        found = chen2022.equal_times(rows)
        assert {(r["cohort_size"], r["compression_rate"]) for r in found} == wanted

    def test_streams_of_least_error(self):
        columns = ("rounds", "bands", "error")
        errors = [("8", "1", "10"), ("8", "2", "9"), ("4", "1", "8")]
        rows = [{"method": "stream", **dict(zip(columns, own))} for own in errors]
        assert stream_errors.least(rows) == [rows[1], rows[2]]


def make(name, folder):
    """Does a figure's work and draws it; returns the rows."""
    table = sweep.ResultsTable(folder / "results.csv")
    works = FIGURES[name].grid("small")
    for work in works:
        table.add(work, work.compute(folder / work.folder))
    rows = [{**table.row(work), "folder": str(folder / work.folder)} for work in works]
    assert invented.draw(FIGURES[name], rows, folder / "figure.png")
    return rows


class TestExact:
    """Work that trains nothing."""

    def test_fig1_steps_add_up_to_the_loss(self, tmp_path, monkeypatch):
        monkeypatch.setattr(denisov2022, "STEP_ROUNDS", {"small": 32})
        rows = make("mf_fig1", tmp_path)
        assert len(rows) == 7
        found = {(row["momentum"], row["method"]): row for row in rows}
        assert float(found["0.9", "optimal"]["total"]) == pytest.approx(2564.239220)
        assert float(found["0.0", "honaker-full"]["total"]) == pytest.approx(158.653149)
        for row in rows:
            found = files.read_csv(f"{row['folder']}/steps.csv")
            steps = tables.numbers(found, "squared_error")
            assert len(steps) == 32
            assert sum(steps) == pytest.approx(float(row["total"]), rel=1e-9)
        # From the table alone.
        figure, path = FIGURES["mf_fig1"], tmp_path / "kept.csv"
        works = figure.grid("small")
        result_tables.write(path, figure, "small", works, rows)
        before = (tmp_path / "figure.png").read_bytes()
        for steps in tmp_path.rglob("steps.csv"):
            steps.unlink()
        found = result_tables.read(path, figure, "small", works)
        invented.draw(figure, found, tmp_path / "figure.png")
        assert (tmp_path / "figure.png").read_bytes() == before

    def test_table2_has_the_known_losses(self, tmp_path, monkeypatch):
        monkeypatch.setattr(denisov2022, "TABLE_ROUNDS", {"small": (8, 16, 32)})
        rows = make("mf_table2", tmp_path)
        losses = {(int(r["rounds"]), r["method"]): float(r["loss"]) for r in rows}
        known = [(8, 17.866177), (16, 45.665357), (32, 114.559703)]
        for rounds, least in known:
            assert losses[rounds, "optimal"] == pytest.approx(least, rel=1e-6)
            for method in denisov2022.TABLE_METHODS:
                assert losses[rounds, method] >= losses[rounds, "optimal"] * (1 - 1e-9)
            # What the paper's Table 2 is about.
            assert losses[rounds, "band-low-rank"] < 1.005 * least

    def test_fig4_solvers_reach_the_same_loss(self, tmp_path, monkeypatch):
        problems = {"small": ([(8, 0.0), (32, 0.9)], 20.0)}
        monkeypatch.setattr(denisov2022, "SOLVED", problems)
        for row, optimum in zip(make("mf_fig4", tmp_path), (17.866177, 2564.239220)):
            assert float(row["dual_bound"]) == pytest.approx(optimum, rel=1e-7)
            for name in denisov2022.SOLVERS:
                assert -1e-9 < float(row[f"{name}_excess"]) <= 1e-6
                assert float(row[f"{name}_seconds"]) > 0

    @pytest.mark.parametrize("scale", ["small", "paper"])
    def test_every_series_of_means_can_be_calibrated(self, scale):
        delta = mean_estimation.DELTA
        n, dimension, *_ = secure_sums.MEAN_SIZES[scale]
        for bits in secure_sums._MEAN_BITS[scale]:
            config = mechanisms.DistributedDiscreteGaussian(n, 1.0, 1.0, bits)
            noised = planning.calibrate(config, None, dimension, 1.0, delta)
            noised.check_noise(dimension)
        n, dimension, _, sparsities = secure_sums.SPARSE_SIZES[scale]
        for sparsity in sparsities:
            recovery, sketched = (
                secure_sums.sparse_config(name, n, dimension, sparsity)
                for name in ("sparse_recovery", "sketched_ddg")
            )
            length = recovery.vector_dimension(dimension)
            assert 0 <= sketched.vector_dimension(dimension) - length < 16


class TestDrawing:
    def rows(self, **columns):
        """Two series with three seeds at two places."""
        return [
            {
                **{"task": "digits", "series": series, "x": x, "seed": str(seed)},
                **{"y": str(float(x) + seed + 10 * (series == "b"))},
                **columns,
            }
            for series, x, seed in itertools.product("ab", ("1", "10"), (1, 2, 6))
        ]

    def apart(self):
        """The same rows, where what a seed adds to one series is not that of b."""
        other = {"1": "2", "2": "6", "6": "1"}
        return [
            {**row, "seed": other[row["seed"]]} if row["series"] == "b" else row
            for row in self.rows()
        ]

    def lines(self, plot, rows):
        (axis,) = plotting.draw(plot, rows, "title").axes
        return {c.get_label(): c for c in axis.containers}, axis

    def test_points_are_means_with_ranges(self):
        found, axis = self.lines(Plot("x", "series", y="y"), self.rows())
        assert list(found) == ["a", "b"]
        for name, more in (("a", 0), ("b", 10)):
            line, _, (bars,) = found[name].lines
            assert line.get_xydata().tolist() == [[1, 4 + more], [10, 13 + more]]
            ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
            assert ends == [[2 + more, 7 + more], [11 + more, 16 + more]]
        assert axis.figure.get_suptitle() == "title; mean and range of 3 seeds"

    def test_baseline_is_a_line_and_others_are_effects(self):
        plot = Plot("x", "series", y="y", baseline="a")
        rows = [row for row in self.apart() if row["series"] == "b" or row["x"] == "1"]
        (axis,) = plotting.draw(plot, rows, "title").axes
        [line, _, (bars,)] = axis.containers[0].lines
        cells = {"a": {1: 2, 2: 3, 6: 7}, "b": {2: 12, 6: 13, 1: 17}}
        cells["b10"] = {2: 21, 6: 22, 1: 26}
        found = [effects.effect(cells, [(name, "a")]) for name in ("b", "b10")]
        assert line.get_ydata().tolist() == [one.size for one in found] == [10, 19]
        ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
        assert ends == [[one.low, one.high] for one in found]
        assert [line.get_ydata()[0] for line in axis.lines if line.get_ls() == ":"] == [
            0
        ]
        assert axis.figure.get_suptitle() == "title; 3 seeds, 95% intervals"

    def test_noiseless_series_is_a_horizontal_line(self):
        rows = self.rows() + [
            {**row, "series": "c", "x": "inf"} for row in self.rows()[:3]
        ]
        _, axis = self.lines(Plot("x", "series", y="y", log="x"), rows)
        (across,) = [line for line in axis.lines if line.get_linestyle() == ":"]
        assert across.get_ydata() == [4, 4]

    def test_error_bars_and_theory_line(self):
        rows = self.rows(error="0.5", theory="3")[::3]
        plot = Plot("x", "series", y="y", error="error", beside="theory")
        found, axis = self.lines(plot, rows)
        _, _, (bars,) = found["a"].lines
        assert bars.get_segments()[0][:, 1].tolist() == [1, 3]
        dashed = [line for line in axis.lines if line.get_linestyle() == "--"]
        assert [3, 3] in [list(line.get_ydata()) for line in dashed]

    def test_long_lines_have_bands(self):
        rows = [
            {"x": str(x), "y": str(y), "seed": str(y)}
            for x in range(40)
            for y in (1, 3)
        ]
        _, axis = self.lines(Plot("x", y="y"), rows)
        (band,) = axis.collections
        (extents,) = [path.get_extents() for path in band.get_paths()]
        assert (extents.ymin, extents.ymax) == (1, 3)

    def test_measured_x_is_the_mean_of_its_group(self):
        rows = [
            {"of": of, "x": str(x), "y": "1"}
            for of, x in (("p", 1), ("p", 3), ("q", 7), ("q", 9))
        ]
        found, _ = self.lines(Plot("x", y="y", by="of"), rows)
        ((line, *_),) = (container.lines for container in found.values())
        assert line.get_xdata().tolist() == [2, 8]
