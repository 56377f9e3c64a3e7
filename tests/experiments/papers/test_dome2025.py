# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math

import pytest

from dpfl import accounting, mechanisms, tasks
from dpfl.tasks import models
from experiments import mechanism_flags
from experiments.papers import sweep
from experiments.papers.dome2025 import ablation, cnn_grid, figures
from experiments.papers.dome2025 import comparison as comparison_lib
from experiments.papers.dome2025 import comparison as dome_flags
from tests.experiments.papers import invented

FIGURES = {figure.name: figure for figure in figures.FIGURES}
CLIENTS = {
    **{"digits": 100, "docs": 333, "mnist": 836},
    **{"emnist": 3400, "stackoverflow": 342_477},
}
# What makes a mechanism; everything else is the same for all of a panel.
OWN = {
    "mechanism",
    "clip_norm",
    "server_lr",
    "server_momentum",
    "server_optimizer",
    "measures_energy",
    "measure",
    "sketch_size",
    "keep_fraction",
    "bits",
    "sketch_length",
    "compression_rate",
    *(name for flags in dome_flags.VARIANTS.values() for name in flags),
}


# What is compared, at every scale that it has.
COMPARED = [
    *(("dome_compare", scale) for scale in sweep.SCALES),
    ("dome_cnn", "medium"),
]


def grid(name, scale="small"):
    return FIGURES[name].grid(sweep.Setting(scale))


def typed(kind, value):
    return value.lower() == "true" if kind is bool else kind(value)


def mechanism(work):
    """The configuration that a run's flags describe, without noise."""
    flags = work.settings
    types = mechanism_flags.field_types(mechanisms.MECHANISMS[flags["mechanism"]])
    values = {name: typed(types[name], flags[name]) for name in flags if name in types}
    return mechanism_flags.build(
        flags["mechanism"], {"noise_multiplier": 0.0, **values}
    )


def dimension(work):
    """d of a run's model."""
    if work.settings.get("model") == "cnn":
        return cnn_grid.DIMENSION
    return tasks.task_entry(work.labels["task"]).dimension


def participation(work):
    flags = work.settings
    assert flags["participation"] == "once_per_epoch"
    return mechanisms.OncePerEpoch(
        CLIENTS[work.labels["task"]], int(flags["cohort_size"]), int(flags["rounds"])
    )


@pytest.mark.parametrize("scale", ["small", "medium", "paper"])
def test_figures_of_the_sweep_share_runs_and_no_folder_otherwise(scale):
    keys = {}
    for name in ("dome_compare", "dome_ablations", "dome_energy"):
        assert FIGURES[name].folder == figures.SWEEP
        for work in grid(name, scale):
            assert keys.setdefault(work.folder, work.key) == work.key
    named = [name for name, figure in FIGURES.items() if scale in figure.scales]
    works = [work for name in named for work in grid(name, scale)]
    plain = [work for work in works if work.labels["mechanism"] == "dome"]
    assert len({work.key for work in plain}) < len(plain)


@pytest.mark.parametrize(("name", "scale"), COMPARED)
def test_compared_runs_differ_in_the_mechanism_alone(name, scale):
    shared = {}
    for work in grid(name, scale):
        flags, labels = work.settings, work.labels
        if labels["epsilon"] == math.inf:
            assert float(flags["noise_multiplier"]) == 0
            assert "epsilon" not in flags
        else:
            assert float(flags["epsilon"]) == labels["epsilon"]
            assert "noise_multiplier" not in flags
        panel = labels["task"], labels["epsilon"], labels["seed"]
        rest = {k: v for k, v in flags.items() if k not in OWN}
        assert shared.setdefault(panel, rest) == rest
        mechanism(work).check(participation(work), dimension(work))


@pytest.mark.parametrize(("name", "scale"), COMPARED)
def test_bits_up_are_equal_where_there_is_compression(name, scale):
    for work in grid(name, scale):
        task = work.labels["task"]
        d = dimension(work)
        bits = mechanism(work).uplink_bits(d)
        if work.labels["mechanism"] in comparison_lib.COMPRESSED:
            size = int(dome_flags.dome_flags(task)["sketch_size"])
            assert bits == pytest.approx(32 * size, rel=0.05)
        else:
            assert bits == 32 * d


def spent(work):
    """Epsilon of a run at the noise that it is given for its budget."""
    config, who = mechanism(work), participation(work)
    d = dimension(work)

    def event(noise_multiplier):
        return config.with_noise_multiplier(noise_multiplier).dp_event(who, d)

    delta = float(work.settings["delta"])
    found = accounting.calibrate_noise_multiplier(event, work.labels["epsilon"], delta)
    return accounting.epsilon(event(found), delta).epsilon


@pytest.mark.parametrize(("name", "scale"), COMPARED)
def test_epsilon_is_equal(name, scale):
    works = [
        work
        for work in grid(name, scale)
        if work.labels["seed"] == 1 and work.labels["epsilon"] in (8.0, 10.0)
    ]
    assert len(works) >= len(cnn_grid.CHOSEN)
    for work in works:
        assert 0.95 * work.labels["epsilon"] <= spent(work) <= work.labels["epsilon"]


@pytest.mark.parametrize("scale", ["small", "medium", "paper"])
def test_every_mechanism_has_a_title(scale):
    names = {"dome_compare", "dome_cnn", "dome_tuning"}
    for name in [name for name in names if scale in FIGURES[name].scales]:
        used = {work.labels["mechanism"] for work in grid(name, scale)}
        assert used <= set(comparison_lib.TITLES)


def test_the_network_has_as_many_parameters():
    network = models.cnn(num_classes=10, seed=1)
    assert network.count_params() == cnn_grid.DIMENSION


def test_chosen_rates_were_tried():
    for task, compared in comparison_lib.COMPARISONS["small"].items():
        tried = comparison_lib.TRIED[task]
        assert tried.keys() == compared.chosen.keys()
        for name, (clip, rate) in compared.chosen.items():
            assert clip in tried[name][0], (task, name)
            assert rate in tried[name][1], (task, name)


@pytest.mark.parametrize("scale", ["small", "medium", "paper"])
def test_flag_files_are_the_runs_of_dome(scale):
    """A flag file has the clip and the rate that the comparison chose."""
    for task, compared in comparison_lib.COMPARISONS[scale].items():
        flags = dome_flags.dome_flags(task)
        found = float(flags["clip_norm"]), float(flags["server_lr"])
        assert found == compared.chosen["dome"]


@pytest.mark.parametrize("scale", ["small", "medium", "paper"])
def test_ablations_change_what_they_say(scale):
    works = {work.labels["mechanism"]: work for work in grid("dome_ablations", scale)}
    base = ablation.ABLATED[scale].base
    plain = mechanism(works[base])
    for name, work in works.items():
        assert (mechanism(work) == plain) == (name == base)
        mechanism(work).check(
            participation(work), tasks.task_entry(work.labels["task"]).dimension
        )
    references = ablation.references(scale)
    assert list(works) == [*ablation.ablations(scale), *references]
    assert set(references) <= set(comparison_lib.TITLES)


@pytest.mark.parametrize("done", ["all", "first"])
@pytest.mark.parametrize(
    ("name", "scale"),
    [
        *((name, "small") for name in FIGURES),
        *((name, "medium") for name in FIGURES if "medium" in FIGURES[name].scales),
    ],
)
def test_drawing_of_complete_and_of_unfinished_tables(name, scale, done, tmp_path):
    bits = {
        "uplink_bits_per_client": "8192",
        "uplink_bits_per_parameter": "0.5",
        "downlink_bits_per_parameter": "40",
    }
    metrics = {"round": [1, 2], "eval_accuracy": ["", 0.5], "eval_loss": ["", 2]}
    for column in ablation.SEEN_COLUMNS:
        metrics[column] = [0.1, 0.9]
    rows = list(invented.rows(grid(name, scale), tmp_path, bits, metrics))
    shown = rows if done == "all" else rows[:1]
    drawn = invented.draw(FIGURES[name], shown, tmp_path / "figure.png", scale)
    assert drawn >= (3 if done == "all" else 1)
