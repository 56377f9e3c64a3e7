# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figures of Chen et al. 2022, 'The Fundamental Price of Secure Aggregation'.

    dpfl-reproduce --figure=secagg_fig2 --scale=small

Figs. 2 to 8 and Table 1 are views of one sweep over noise, compression rates r, bits b,
cohort sizes n and models.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dpfl import tasks

from .. import flag_files
from ..tables import Row, Rows, distinct, mean_and_range, where
from . import medium, secure_sums
from .plotting import UNCOMPRESSED, Plot
from .sweep import SCALES, Cell, Figure, axis, cross, without_budget

_PAPER = "Chen et al. 2022"
_SEEDS = {"small": (1, 2), "paper": (1, 2, 3, 4, 5)}


class Swept(NamedTuple):
    """A part of the sweep on one task.

    `noises` are noise multipliers of the sum, or budgets in their place; `rates` are
    compression rates, 1 without a sketch. The model "default" is the flag file's;
    `others` are flags that replace the task's; `seeds` are by default the scale's.
    """

    task: str
    noises: list[Cell]
    rates: tuple[float, ...]
    bits: tuple[int, ...]
    cohorts: Sequence[int]
    model: str = "default"
    others: Mapping[str, Any] = {}
    seeds: Sequence[int] = ()


def _z(*noise_multipliers: float) -> list[Cell]:
    return axis("noise_multiplier", noise_multipliers)


def _budget(*epsilons: float) -> list[Cell]:
    return [({"budget": epsilon}, {"epsilon": epsilon}) for epsilon in epsilons]


_MNIST_RATES = (1, 10, 100, 300, 1000)
_EMNIST_RATES = (1, 4, 5, 10, 20, 30, 40, 50, 60)
_LARGE_RATES = (1, 10, 15, 20, 30, 40, 50)
_WORDS_RATES = (1, 2, 4, 5, 10, 15, 20)
_WORDS_COHORTS = (50, 100, 200, 1000)
_PAPER_Z, _FOUR_Z = (0.1, 0.3, 0.5), (0.0, 0.5, 1.0, 2.0)
_EPS = _budget(8.0)
_TWO, _TEN = _budget(5.0, 10.0), _budget(10.0)
# Seeds of the recurrent network, whose rounds take thirty times as long: so that a
# figure is a day of one card.
_FEW, _ONE = (1, 2, 3), (1,)
# The small model of Fig. 4 has the server's rates of equal_bits. The paper fixes z in
# Fig. 3, at which few bits have a larger epsilon than many.
SWEEPS: Mapping[str, Mapping[str, tuple[Swept, ...]]] = {
    "secagg_fig2": {
        "small": (
            Swept("digits", _z(0.0, 2.0, 4.0), (1, 5, 10, 100), (16,), (50,)),
            Swept("docs", _z(0.0, 2.0), (1, 20, 200), (18,), (50,)),
        ),
        "medium": (Swept("mnist", _z(0.0) + _EPS, _MNIST_RATES, (16,), (100,)),),
        "paper": (
            Swept("emnist", _z(0.0, *_PAPER_Z), _EMNIST_RATES, (16,), (100,)),
            Swept(
                *("stackoverflow", _z(0.0, 0.3, 0.5, 0.6), _WORDS_RATES, (18,), (100,)),
                seeds=_FEW,
            ),
        ),
    },
    "secagg_fig3": {
        "small": (
            Swept("digits", _EPS, (1,), (6, 7, 8, 16), (50,)),
            Swept("digits", _EPS, (10,), (7, 8, 16), (50,)),
            Swept("digits", _EPS, (100,), (8, 16), (50,)),
        ),
        "medium": (
            Swept("mnist", _EPS, (1,), (6, 8, 16), (100,)),
            Swept("mnist", _EPS, (10,), (7, 16), (100,)),
            Swept("mnist", _EPS, (100,), (10, 16), (100,)),
        ),
        "paper": (
            Swept("emnist", _TWO, (1, 10), (7, 8, 10, 16), (100,)),
            Swept("emnist", _TWO, (50,), (8, 10, 12, 16), (100,)),
            Swept("stackoverflow", _TEN, (1, 5), (9, 10, 12, 18), (1000,), seeds=_ONE),
            Swept("stackoverflow", _TEN, (20,), (10, 12, 18), (1000,), seeds=_ONE),
        ),
    },
    "secagg_fig4": {
        "small": (
            Swept("digits", _z(1.0, 4.0), (1, 5, 10, 30, 100), (16,), (50,)),
            Swept("digits", _z(1.0, 4.0), (1, 10), (16,), (50,), "tiny_cnn"),
        ),
        "medium": (
            Swept("mnist", _EPS, (1, 10, 100, 1000), (16,), (100,)),
            Swept("mnist", _EPS, (1,), (16,), (100,), "small_cnn", {"server_lr": 2.0}),
            Swept("mnist", _EPS, (10,), (16,), (100,), "small_cnn", {"server_lr": 1.0}),
        ),
        "paper": (
            Swept("emnist", _z(*_PAPER_Z), (1, 5, 10, 20, 50), (16,), (100,)),
            Swept("emnist", _z(*_PAPER_Z), (1, 2, 4, 10), (16,), (100,), "2nn"),
        ),
    },
    "secagg_fig4b": {
        "medium": (
            Swept("mnist", _EPS, (1, 10, 100), (16,), (100,), "2nn"),
            Swept("mnist", _EPS, (1, 10, 100), (16,), (100,), "small_cnn"),
        ),
    },
    # The paper's main claim for tasks whose runs are short enough for ten seeds of each
    # point.
    "secagg_noise": {
        "medium": (
            Swept(
                *("mnist", _z(*_FOUR_Z), (1, 10, 100), (16,), (100,), "small_cnn"),
                others={"server_lr": 1.0},
            ),
        ),
    },
    "secagg_fig7": {
        "small": (Swept("digits", _z(1.0, 4.0), (1, 10, 100), (16,), (10, 50)),),
        "medium": (
            Swept(
                *("mnist", _z(1.0), (1, 10, 100), (16,), (50, 200)),
                others=medium.CAREFUL,
            ),
        ),
        "paper": (
            Swept("emnist", _z(*_PAPER_Z), _LARGE_RATES, (16,), (100, 1000)),
            Swept(
                *("stackoverflow", _z(0.5), _WORDS_RATES, (18,), _WORDS_COHORTS),
                seeds=_ONE,
            ),
        ),
    },
}
# Cohorts of Fig. 8: the one without compression, and the one that must be no slower.
TIMED_COHORTS = {"digits": (10, 50), "mnist": (50, 200), "emnist": (100, 1000)}
# Figures that are views of a part of the sweep.
_VIEWS = {"secagg_table1": "secagg_fig3", "secagg_fig8": "secagg_fig7"}


def _problem(task: str, scale: str) -> Mapping[str, Any]:
    if scale == "medium":
        return {**without_budget(medium.FLAGS[task]), "noise_source": "helpers"}
    own = ("mechanism", "compression_rate", "noise_multiplier")
    return flag_files.values(f"chen2022/{task}.flags", *own)


def _rate(rate: float) -> Cell:
    own = {"compression_rate": rate}
    if rate == 1:
        return own, {"mechanism": "distributed_discrete_gaussian"}
    return own, {"mechanism": "sketched_ddg", **own}


def _sweep(name: str, scale: str) -> Iterator[Cell]:
    """The runs of a part of `SWEEPS`; for Fig. 8 those of two cohorts of a task."""
    for swept in SWEEPS[_VIEWS.get(name, name)][scale]:
        cohorts = swept.cohorts
        if name == "secagg_fig8":
            cohorts = [n for n in cohorts if n in TIMED_COHORTS.get(swept.task, ())]
        model = {} if swept.model == "default" else {"model": swept.model}
        cells = cross(
            [({"task": swept.task}, {**_problem(swept.task, scale), **swept.others})],
            [({"model": swept.model}, model)],
            axis("cohort_size", cohorts),
            swept.noises,
            [_rate(rate) for rate in swept.rates],
            axis("bits", swept.bits),
        )
        yield from medium.seeded(name, cells, swept.seeds or _SEEDS.get(scale))


def _thresholds(scale: str) -> Iterator[Cell]:
    """Runs of a tenfold sketch, with and without error feedback of small values."""
    shared = {**_problem(medium.MNIST, scale), "model": "small_cnn", "cohort_size": 100}
    shared |= {"noise_multiplier": 1.0, "bits": 16, **_rate(10)[1]}
    thresholds = [("none", {}), *((t, {"threshold": t}) for t in (1, 3))]
    cells = cross(
        [({"task": medium.MNIST}, shared)],
        [({"threshold": name}, flags) for name, flags in thresholds],
    )
    yield from medium.seeded("secagg_threshold", cells)


# Slack as a share of the task's own metric.
SLACK = dict.fromkeys(("digits", "emnist", "mnist"), 0.01)
SLACK |= dict.fromkeys(("docs", "stackoverflow"), 0.04)


def _with_noise(rows: Rows) -> list[Row]:
    """Rows with their noise, which is the budget or z, and their setting in words."""
    results: list[Row] = []
    for row in rows:
        is_budget = bool(row.get("budget"))
        amount = float(row["budget" if is_budget else "noise_multiplier"])
        noise = f"{'ε' if is_budget else 'z'}={amount:g}"
        rate = f"r={float(row['compression_rate']):g}"
        setting = f"n={row['cohort_size']}, {rate}, {row['bits']} bits, {noise}"
        results.append({**row, "noise": noise, "setting": setting})
    return results


def _final(rows: Rows) -> float:
    """The mean final metric of runs, with a sign so that larger is better."""
    metric = tasks.task_entry(rows[0]["task"]).metric
    mean, _, _ = mean_and_range(rows, metric.final_column)
    return -mean if metric.lower_is_better else mean


def fewest_bits(rows: Rows) -> list[Row]:
    """The runs of Table 1 for each task, noise and rate.

    These have the fewest bits whose metric is within the slack of the most bits
    without a sketch. Rates without such a number of bits have no run.
    """
    runs: list[Row] = []
    rows = _with_noise(rows)
    for task in distinct(rows, "task"):
        for noise in distinct(where(rows, task=task), "noise"):
            own = where(rows, task=task, noise=noise)
            plain = where(own, compression_rate=1)
            if not plain:
                continue
            widest = max(int(row["bits"]) for row in plain)
            best = _final(where(plain, bits=widest))
            worst = best - SLACK[task] * abs(best)
            for rate in distinct(own, "compression_rate"):
                groups = where(own, compression_rate=rate)
                widths = sorted(distinct(groups, "bits"), key=int)
                tried = [where(groups, bits=bits) for bits in widths]
                runs += next((g for g in tried if _final(g) >= worst), [])
    return runs


def rate_of_equal_time(small: int, large: int) -> float:
    """The compression at which a larger cohort's secure sum takes no longer.

    The time of secure aggregation is of order n log(n) d (Chen et al. 2022, A.1).
    """
    return large * math.log(large) / (small * math.log(small))


def equal_times(rows: Rows) -> list[Row]:
    """The smaller cohort without compression, and the larger with enough of it.

    Enough is the lowest rate of the sweep at which secure aggregation takes no longer
    for the larger cohort than for the smaller (Fig. 8).
    """
    runs: list[Row] = []
    rows = _with_noise(rows)
    for task in distinct(rows, "task"):
        least, most = TIMED_COHORTS[task]
        needed = rate_of_equal_time(least, most)
        own = where(rows, task=task)
        large = where(own, cohort_size=most)
        rates = sorted(distinct(large, "compression_rate"), key=float)
        runs += where(own, cohort_size=least, compression_rate=1)
        for rate in [r for r in rates if float(r) >= needed - 1e-6][:1]:
            runs += where(large, compression_rate=rate)
    return runs


class Layers(NamedTuple):
    """A training of Figs. 9 and 10, with separate sketches of embedding and rest.

    The embedding's parameters come first; each part has a compression rate, and Fig. 9
    has noise. For pictures it is the first dense layer.
    """

    task: str
    embedding: int
    rates: tuple[float, ...]
    noise_multiplier: float


LAYERS: Mapping[str, Layers] = {
    "small": Layers("docs", 64_128, (10, 300), 0.5),
    "medium": Layers("fashion", 157_000, (10, 100), 0.6),
    "paper": Layers("stackoverflow", 960_384, (2, 5, 10, 20), 0.05),
}


def _layers(name: str, scale: str) -> list[Cell]:
    """The runs of Fig. 9 or of Fig. 10."""
    of = LAYERS[scale]
    noise = of.noise_multiplier if name == "secagg_fig9" else 0.0
    flags: Mapping[str, Any]
    if scale == "medium":
        flags = {**_problem(of.task, scale), "model": "2nn", "bits": 16}
    else:
        flags = flag_files.values(f"chen2022/{of.task}.flags", "compression_rate")
    parts: list[Cell] = []
    for embedding in of.rates:
        for rest in of.rates:
            given = {"layers": of.embedding, "layer_rates": f"{embedding:g},{rest:g}"}
            parts.append(({"embedding": embedding, "rest": rest}, given))
        whole = {"embedding": embedding, "rest": "together"}
        parts.append((whole, {"compression_rate": embedding}))
    cells = cross(
        [({"task": of.task}, {**flags, "mechanism": "sketched_ddg"})],
        axis("noise_multiplier", [noise]),
        parts,
    )
    return medium.seeded(name, cells, None if scale == "medium" else (1,))


def _figure(
    name: str, words: str, plot: Plot, cells: Any = _sweep, sweep: str = "secagg_sweep"
) -> Figure:
    cells = functools.partial(cells, name)
    return Figure(name, f"{_PAPER}, {words}", cells, plot, sweep, SCALES)


_NOISY: Mapping[str, Any] = {"rows": _with_noise, "log": "x"}
_LAYERS = (Plot("rest", "embedding", "task noise_multiplier"), _layers, "secagg_layers")

FIGURES = [
    _figure(
        "secagg_fig2",
        "Fig. 2: compression rates at several noise multipliers",
        Plot("compression_rate", "noise", "task", **_NOISY),
    ),
    _figure(
        "secagg_fig3",
        "Figs. 3, 5 and 6: bits and compression rate, at equal epsilon",
        Plot(
            *("uplink_bits_per_parameter", "compression_rate", "task budget"),
            by="bits",
            log="x",
        ),
    ),
    _figure(
        "secagg_table1",
        "Table 1: fewest bits within a slack, at equal epsilon",
        Plot("setting", "noise", "task", rows=fewest_bits),
    ),
    _figure(
        "secagg_fig4",
        "Fig. 4: a large model compressed against a small one",
        Plot(
            *("uplink_bits_per_client", "model", "task noise"),
            by="compression_rate",
            titles={"default": "large model"},
            **_NOISY,
        ),
    ),
    Figure(
        "secagg_fig4b",
        f"{_PAPER}, Fig. 4b: compression of two sizes of small models",
        functools.partial(_sweep, "secagg_fig4b"),
        Plot("compression_rate", "model", "task", log="x"),
        scales=("medium",),
    ),
    _figure(
        "secagg_fig7",
        "Fig. 7: compression over cohort sizes",
        Plot("compression_rate", "cohort_size", "task noise", **_NOISY),
    ),
    _figure(
        "secagg_fig8",
        "Fig. 8: larger cohorts at the time of secure aggregation of smaller",
        Plot("setting", "noise", "task", rows=equal_times),
    ),
    _figure(
        "secagg_fig9",
        "Fig. 9: embedding and rest sketched separately, with noise",
        *_LAYERS,
    ),
    _figure(
        "secagg_fig10",
        "Fig. 10: embedding and rest sketched separately, without noise",
        *_LAYERS,
    ),
    Figure(
        "secagg_noise",
        "More noise makes a ten-fold sketch no cheaper for a small network (one rate)",
        functools.partial(_sweep, "secagg_noise"),
        Plot(
            *("noise_multiplier", "compression_rate"),
            titles=UNCOMPRESSED,
            baseline="1",
        ),
        scales=("medium",),
    ),
    Figure(
        "secagg_threshold",
        "A sketch with and without thresholding, on the small network",
        _thresholds,
        Plot("threshold", "", "task"),
        scales=("medium",),
    ),
    *secure_sums.FIGURES,
]
