# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figures: the runs of their grids, and what is drawn of their rows."""

import functools
import itertools
import math

import pytest

from dpfl import accounting, files, mechanisms, planning, tasks
from dpfl.mechanisms import build, participation
from experiments import effects, mechanism_flags, plotting, tables
from experiments.papers import (
    chen2022,
    denisov2022,
    mean_estimation,
    result_tables,
    secure_sums,
    stream_errors,
)
from experiments.papers.index import FIGURES
from experiments.trainings import sweep, tuning
from tests.experiments import programs
from tests.experiments.papers import invented

CASES = [(name, scale) for name, figure in FIGURES.items() for scale in figure.scales]
EQUAL_BITS = ("equal_bits", "equal_bits_long", "equal_bits_fashion")
# What all runs of a task in a figure share, whatever is compared.
SHARED = ("rounds", "delta", "client_lr", "client_epochs", "batch_size", "eval_every")
CLIENTS = {
    **{"digits": 100, "docs": 281, "mnist": 836, "fashion": 2000},
    **{"emnist": 3400, "stackoverflow": 342_477},
}


@functools.cache
def grid(name, scale="small"):
    return FIGURES[name].grid(scale)


def runs(name, scale):
    return [work for work in grid(name, scale) if isinstance(work, sweep.Training)]


def flags_of(work):
    """All flags of a run as text."""
    return {key: str(value) for key, value in work.all_flags.items()}


def config_of(flags):
    kind = mechanisms.MECHANISMS[flags["mechanism"]]
    types = mechanism_flags.field_types(kind)
    values = {
        name: flags[name].lower() == "true" if types[name] is bool else flags[name]
        for name in flags
        if name in types
    }
    typed = {k: v if isinstance(v, bool) else types[k](v) for k, v in values.items()}
    return build.build(flags["mechanism"], {"noise_multiplier": 1.0, **typed})


def results(name):
    return files.read_csv(programs.ROOT / f"docs/results/{name}.csv")


def first_seeds(name):
    return [work for work in grid(name, "medium") if work.labels["seed"] == 1]


def means_by_rate(tried, is_whole=False):
    """Mean accuracies by server rate; only of those with all seeds if `is_whole`."""
    values = {}
    for row in tried:
        found = values.setdefault(float(row["server_lr"]), [])
        found.append(float(row["validation_accuracy"]))
    least = max(map(len, values.values())) if is_whole else 1
    return {r: sum(v) / len(v) for r, v in values.items() if len(v) >= least}


class TestGrids:
    @pytest.mark.parametrize(("name", "scale"), CASES)
    def test_no_work_is_duplicated(self, name, scale):
        works = grid(name, scale)
        assert len({work.key for work in works}) == len(works) > 0
        assert len({work.folder for work in works}) == len(works)

    def test_figures_of_a_sweep_share_their_rows(self):
        for folder, group in itertools.groupby(FIGURES.values(), lambda f: f.folder):
            keys = {}
            for figure in group:
                for scale in figure.scales:
                    for work in grid(figure.name, scale):
                        place = folder, scale, work.folder
                        assert keys.setdefault(place, work.key) == work.key

    @pytest.mark.parametrize("name", ["csgm_fig2", "secagg_fig9", "dome_compare"])
    def test_chosen_seeds_take_the_place_of_the_figures_own(self, name):
        own = runs(name, "small")
        works = FIGURES[name].grid("small", {}, [1, 7])
        assert {work.labels["seed"] for work in works} == {1, 7}
        # Rows of a seed that the figure has too are the same.
        both = {work.key for work in works} & {work.key for work in own}
        assert both == {work.key for work in own if work.labels["seed"] == 1}
        assert len({work.folder for work in works}) == len(works) == 2 * len(both)

    @pytest.mark.parametrize(("name", "scale"), CASES)
    def test_runs_of_a_task_differ_only_in_compared_settings(self, name, scale):
        shared = {}
        for work in runs(name, scale):
            flags = flags_of(work)
            own = {key: flags.get(key) for key in SHARED}
            if "cohort_size" not in work.labels:
                own["cohort_size"] = flags["cohort_size"]
            problem = work.labels.get("problem", flags["task"])
            assert shared.setdefault(problem, own) == own, work.labels
            is_plain = work.labels.get("epsilon") == math.inf
            assert ("epsilon" in flags) != ("noise_multiplier" in flags)
            for label in ("epsilon", "cohort_size", "compression_rate", "seed"):
                if label in work.labels and not is_plain:
                    rate = flags.get(label, "1")
                    assert float(rate) == float(work.labels[label])

    @pytest.mark.parametrize(
        "name", [name for name, scale in CASES if scale == "medium"]
    )
    def test_seeds_of_a_setting_follow_each_other(self, name):
        """They trace once then, and a table that is not complete has whole settings."""
        groups = itertools.groupby(runs(name, "medium"), lambda work: work.all_but_seed)
        found = [
            (key, [work.labels["seed"] for work in group]) for key, group in groups
        ]
        assert all(
            len(seeds) >= 3 and seeds == list(range(1, len(seeds) + 1))
            for _, seeds in found
        )
        assert len({key for key, _ in found}) == len(found)

    def test_dpfl_train_accepts_every_flag(self, tmp_path):
        """The least and the greatest number, and each word, of every flag."""
        works = tuning.ends([work for case in CASES for work in runs(*case)])
        found, _ = programs.configs([work.arguments(tmp_path) for work in works])
        assert [one[0] for one in found] == [work.all_flags["task"] for work in works]
        assert all((epsilon is None) != (z is None) for _, epsilon, z, *_ in found)

    @pytest.mark.parametrize("name", ["mf_fig3", "mf_fig6"])
    def test_momentum_is_applied_once(self, name):
        for work in grid(name):
            flags = flags_of(work)
            both = [flags.get(k, 0) for k in ("matrix_momentum", "server_momentum")]
            assert sorted(map(float, both)) == [0, 0.9]

    def test_rates_of_factorizations_are_the_best_tried(self):
        by_hand, searched = results("medium_validation"), results("mf_search")
        for work in grid("mf_fig3", "medium"):
            labels, rate = work.labels, float(work.settings["server_lr"])
            is_noisy = labels["mechanism"] != "no-noise"
            if labels["problem"] == "mnist":
                tried = tables.where(
                    by_hand,
                    task="mnist",
                    mechanism="matrix_factorization" if is_noisy else "gaussian",
                    matrix_method=labels["mechanism"] if is_noisy else "",
                    stands_for_cohort=work.settings["cohort_size"],
                    stands_for_epsilon=f"{labels['epsilon']:g}",
                )
            else:
                own = {name: str(v) for name, v in labels.items() if name != "seed"}
                tried = tables.where(searched, **own)
                assert len(tried) >= 8
                # Larger ones were tried where this was the largest.
                assert any(float(row["server_lr"]) > rate for row in tried), labels
            means = means_by_rate(tried)
            assert len(means) >= 2 and means[rate] == max(means.values()), labels

    @pytest.mark.parametrize("name", EQUAL_BITS)
    def test_rates_at_equal_bits_are_the_best_tried(self, name):
        is_long = name == "equal_bits_long"
        tried = results("long_search" if is_long else "rates_search")
        # Those whose rates are tried for others of their kind.
        kinds = {"skellam": "ddg"}
        points = {"r10_b16": "r10_b7", "k64": "k256", "k1024": "k256"}
        points |= dict.fromkeys(("b16", "b7", "b6"), "b8")
        for work in first_seeds(name):
            mechanism, point, _ = work.labels.values()
            rate = float(work.settings["server_lr"])
            own = {"mechanism": kinds.get(mechanism, mechanism)}
            if not is_long:
                own |= {"figure": name, "point": points.get(point, point)}
            rows = tables.where(tried, **own)
            means, every = means_by_rate(rows, is_whole=True), means_by_rate(rows)
            assert means[rate] == max(means.values()), (mechanism, point)
            assert min(every) < rate < max(every)

    @pytest.mark.parametrize("name", ["secagg_fig9", "secagg_fig10"])
    def test_layer_sizes_match_the_model(self, name):
        # 2000 words and 4 special tokens of width 32; the rest is 93,044.
        assert tasks.task_entry("docs").dimension == 64_128 + 93_044
        sizes = {"small": 64_128, "medium": (784 + 1) * 200, "paper": 10_004 * 96}
        for scale, size in sizes.items():
            found = {work.settings.get("layers") for work in grid(name, scale)}
            assert found == {None, str(size)}
        for work in grid(name):
            rates = work.settings.get("layer_rates")
            assert (rates is None) == (work.labels["rest"] == "together")
            if rates:
                wanted = [work.labels["embedding"], work.labels["rest"]]
                assert [float(rate) for rate in rates.split(",")] == wanted

    @pytest.mark.parametrize(
        ("name", "scale"),
        [("dome_compare", s) for s in sweep.SCALES] + [("dome_cnn", "medium")],
    )
    def test_compressed_runs_use_equal_uplink_bits(self, name, scale):
        for work in grid(name, scale):
            task, flags = work.labels["task"], flags_of(work)
            is_large = flags.get("model") == "cnn"
            d = tasks.task_entry(task).dimension
            # The papers' network with the ten classes of MNIST.
            d = 1_011_466 if is_large else d
            bits = config_of(flags).uplink_bits(d)
            is_whole = work.labels["mechanism"].startswith("gaussian")
            assert bits == pytest.approx(32 * (d if is_whole else 256), rel=0.05)

    @pytest.mark.parametrize("name", EQUAL_BITS)
    def test_epsilon_is_eight_under_one_neighboring_relation(self, name):
        clients = CLIENTS["fashion" if name.endswith("fashion") else "mnist"]
        for work in first_seeds(name):
            flags = flags_of(work)
            epoch, groups = (
                int(flags[key]) if key in flags else None
                for key in ("rounds_per_epoch", "min_separation")
            )
            who = participation.build(
                *(flags["participation"], clients),
                *(int(flags["cohort_size"]), int(flags["rounds"])),
                rounds_per_epoch=epoch,
                min_separation=groups,
            )
            event = config_of(flags).dp_event(who, 15_994)
            assert accounting.Relation.REPLACE_SPECIAL in accounting.relations_of(event)


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
        known = {
            **{(8, "optimal"): 17.866177, (16, "optimal"): 45.665357},
            **{(32, "optimal"): 114.559703, (8, "honaker-full"): 21.942857},
            (32, "honaker-full"): 158.653149,
        }
        for key, loss in known.items():
            assert losses[key] == pytest.approx(loss, rel=1e-6)
        for rounds in (8, 16, 32):
            least = losses[rounds, "optimal"]
            for method in denisov2022.TABLE_METHODS:
                assert losses[rounds, method] >= least * (1 - 1e-9)
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
        found, axis = self.lines(plotting.Plot("x", "series", y="y"), self.rows())
        assert list(found) == ["a", "b"]
        for name, more in (("a", 0), ("b", 10)):
            line, _, (bars,) = found[name].lines
            assert line.get_xydata().tolist() == [[1, 4 + more], [10, 13 + more]]
            ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
            assert ends == [[2 + more, 7 + more], [11 + more, 16 + more]]
        assert axis.figure.get_suptitle() == "title; mean and range of 3 seeds"

    def test_baseline_is_a_line_and_others_are_effects(self):
        plot = plotting.Plot("x", "series", y="y", baseline="a")
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
        _, axis = self.lines(plotting.Plot("x", "series", y="y", log="x"), rows)
        (across,) = [line for line in axis.lines if line.get_linestyle() == ":"]
        assert across.get_ydata() == [4, 4]

    def test_error_bars_and_theory_line(self):
        rows = self.rows(error="0.5", theory="3")[::3]
        plot = plotting.Plot("x", "series", y="y", error="error", beside="theory")
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
        _, axis = self.lines(plotting.Plot("x", y="y"), rows)
        (band,) = axis.collections
        (extents,) = [path.get_extents() for path in band.get_paths()]
        assert (extents.ymin, extents.ymax) == (1, 3)

    def test_measured_x_is_the_mean_of_its_group(self):
        rows = [
            {"of": of, "x": str(x), "y": "1"}
            for of, x in (("p", 1), ("p", 3), ("q", 7), ("q", 9))
        ]
        found, _ = self.lines(plotting.Plot("x", y="y", by="of"), rows)
        ((line, *_),) = (container.lines for container in found.values())
        assert line.get_xdata().tolist() == [2, 8]
