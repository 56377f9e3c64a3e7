# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Grids of figures: runs that are comparable, and the settings that were chosen."""

import functools
import itertools
import math

import pytest

from dpfl import accounting, files, mechanisms, tasks
from dpfl.mechanisms import build
from experiments import mechanism_flags, tables
from experiments.papers.index import FIGURES
from experiments.trainings import sweep, tuning
from tests.experiments import programs

CASES = [(name, scale) for name, figure in FIGURES.items() for scale in figure.scales]
EQUAL_BITS = ("equal_bits", "equal_bits_long", "equal_bits_fashion")
# What all runs of a task in a figure share, whatever is compared.
SHARED = ("rounds", "delta", "client_lr", "client_epochs", "batch_size", "eval_every")
CLIENTS = {"mnist": 836, "fashion": 2000}


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
            who = build.participation(
                *(flags["participation"], clients),
                *(int(flags["cohort_size"]), int(flags["rounds"])),
                rounds_per_epoch=epoch,
                min_separation=groups,
            )
            event = config_of(flags).dp_event(who, 15_994)
            assert accounting.Relation.REPLACE_SPECIAL in accounting.relations_of(event)
