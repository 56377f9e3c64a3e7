# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Independent noise, noise by epochs and noise in one stream: training at one epsilon.

The clients are the modules of the packages that dpfl pins, 2459 with Python 3.11. All
runs have the same rounds, rates, clip and expected cohort. Those with independent noise
and those with cyclic sampling choose clients at random in secret, the others do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfl import mechanisms, tasks

from .. import plotting
from ..result_rows import Rows, mean_and_range, numbers, seeds, where
from ..sweep import Setting, Work
from ..trainings import training_work

EPSILON = 8.0
SEEDS = (1, 2, 3)
COMPRESSION_RATE = 10
# Of an epoch: the clients suffice for so many cohorts.
ROUNDS_PER_EPOCH = 24
# Groups that take turns, and diagonals of C: the best at this epsilon, by
# `dpfl-privacy bands`.
GROUPS = 16
SHARED: Mapping[str, Any] = {
    "flagfile": "tasks/docs_packages.flags",
    "cohort_size": 100,
    "rounds": 128,
    "epsilon": EPSILON,
    "eval_every": 32,
    "checkpoint_every": 32,
    "max_test_examples": 4000,
}


def _one_stream(separation: int) -> dict[str, Any]:
    return {
        "noise_stream": "run",
        "min_separation": separation,
        "matrix_method": "toeplitz",
        "matrix_bands": separation,
    }


_EPOCHS = {
    "participation": mechanisms.OncePerEpoch.name,
    "rounds_per_epoch": ROUNDS_PER_EPOCH,
}
# How clients are chosen and noise is drawn.
WAYS: Mapping[str, Mapping[str, Any]] = {
    "Poisson sampling": {"participation": "poisson"},
    "random slots": {
        "participation": "random_slot",
        "rounds_per_epoch": ROUNDS_PER_EPOCH,
    },
    "by epochs": _EPOCHS,
    "one stream": {**_EPOCHS, **_one_stream(ROUNDS_PER_EPOCH)},
    "one stream, cyclic sampling": {
        "participation": "cyclic_poisson",
        **_one_stream(GROUPS),
    },
}
# By compression rate: the name of each mechanism in the drawing, and its ways.
PANELS: Mapping[
    int, Mapping[str, tuple[type[mechanisms.Mechanism], tuple[str, ...]]]
] = {
    1: {
        "GM": (mechanisms.Gaussian, tuple(WAYS)[:2]),
        "MF": (mechanisms.MatrixFactorization, tuple(WAYS)[2:]),
    },
    COMPRESSION_RATE: {
        "CSGM": (mechanisms.L2Csgm, tuple(WAYS)[:1]),
        "SGMF": (mechanisms.Sgmf, tuple(WAYS)[2:]),
    },
}


def _work(name: str, way: str, rate: int, seed: int, setting: Setting) -> Work:
    config, _ = PANELS[rate][name]
    flags: dict[str, Any] = {"mechanism": config.name, **WAYS[way]}
    if rate != 1:
        flags["compression_rate"] = rate
    labels = {"mechanism": name, "way": way, "rate": rate, "seed": seed}
    return training_work(labels, {**SHARED, **flags, "seed": seed}, setting)


def grid(setting: Setting) -> list[Work]:
    """Returns the runs of all mechanisms and ways."""
    return [
        _work(name, way, rate, seed, setting)
        for rate, panel in PANELS.items()
        for name, (_, ways) in panel.items()
        for way in ways
        for seed in SEEDS
    ]


# Of a line beside a panel.
_LONGEST = 28


def _seeds(rows: Rows) -> str:
    """Returns that each seed is shown too, in words."""
    return seeds(rows).replace(" and range of", ", range and each of")


def _title(name: str, way: str) -> str:
    """Returns mechanism and way; a long one has the way in a line of its own."""
    words = f"{plotting.TITLES[name]}, {way}"
    return words if len(words) <= _LONGEST else words.replace(", ", ",\n", 1)


def draw(rows: Rows, scale: str) -> Any:
    """Draws a panel without and one with compression: each seed, and their mean."""
    from matplotlib import ticker

    del scale
    picture, axes = plotting.panels(len(PANELS), 4.9, 3.4, sharex=True)
    # More would touch at the width of a page.
    axes[0].xaxis.set_major_locator(ticker.MaxNLocator(4))
    measure = tasks.task_entry("docs").measure
    for axis, (rate, panel) in zip(axes, PANELS.items()):
        lines = [(name, way) for name, (_, ways) in panel.items() for way in ways]
        for line, (name, way) in enumerate(lines):
            runs = where(rows, mechanism=name, way=way, rate=rate)
            if runs:
                _line(axis, line, runs, plotting.STYLES[name], measure.final_column)
        names = [_title(name, way) for name, way in lines]
        axis.set_yticks(range(len(lines)), names)
        axis.set_ylim(len(lines) - 0.5, -0.5)
        axis.margins(x=0.1)
        axis.set_xlabel(f"final {measure.label}")
        title = "all coordinates" if rate == 1 else f"{rate}-fold compression"
        axis.set_title(title)
    picture.suptitle(
        rf"docstrings of packages, {SHARED['cohort_size']} clients a round, "
        rf"$\varepsilon$={EPSILON:g}, $\delta=N^{{-1.1}}$; {_seeds(rows)}",
    )
    picture.tight_layout()
    return picture


def _line(
    axis: Any, line: int, runs: Rows, style: tuple[str, str], column: str
) -> None:
    color, marker = style
    mean, down, up = mean_and_range(runs, column)
    axis.errorbar([mean], [line], xerr=[[down], [up]], fmt=marker, color=color, ms=7)
    axis.plot(numbers(runs, column), [line] * len(runs), "|", color=color, ms=9)
    axis.annotate(
        f"{mean:.3f}",
        (mean, line),
        (0, 8),
        textcoords="offset points",
        ha="center",
        fontsize=9,
    )
