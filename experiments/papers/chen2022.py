# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Chen et al. 2022, 'The Fundamental Price of Secure Aggregation', and ours on it.

Figs. 2 to 8 and Table 1 are views of one sweep over noise, compression rates r, bits b,
cohort sizes n and models.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dpfl import mechanisms, tasks
from dpfl.accounting.integer import noise_events

from .. import flag_files
from . import mean_estimation, medium, secure_sums
from .plotting import Plot
from .result_rows import Row, Rows, distinct, mean_and_range, where
from .sweep import SCALES, Figure, Grid, Setting, Work
from .trainings import Cell, axis, cross, runs, without_budget

_PAPER = "Chen et al. 2022"
_SEEDS = {"small": (1, 2), "medium": medium.SEEDS, "paper": (1, 2, 3, 4, 5)}
Amounts = tuple[tuple[str, float], ...]


class Swept(NamedTuple):
    """A part of the sweep on one task.

    Attributes:
      task: Name of the task.
      noises: Noise multipliers, or budgets in their place, as ("budget", epsilon).
      rates: Compression rates r; 1 is the discrete Gaussian alone, without sketch.
      bits: b.
      cohorts: n.
      model: The task's model; that of the flag file if "default".
      others: Flags in place of the task's.
    """

    task: str
    noises: Amounts
    rates: tuple[float, ...]
    bits: tuple[int, ...]
    cohorts: tuple[int, ...]
    model: str = "default"
    others: Mapping[str, Any] = {}


def _z(*noise_multipliers: float) -> Amounts:
    return tuple(("noise_multiplier", z) for z in noise_multipliers)


def _budget(*epsilons: float) -> Amounts:
    return tuple(("budget", epsilon) for epsilon in epsilons)


_MNIST_RATES = (1, 10, 100, 300, 1000)
_EMNIST_RATES = (1, 4, 5, 10, 20, 30, 40, 50, 60)
_WORDS_RATES = (1, 2, 4, 5, 10, 15, 20)
_PAPER_Z = (0.1, 0.3, 0.5)
_EPS = _budget(8.0)
_TWO = _budget(5.0, 10.0)
# At epsilon 8 each cohort of Fig. 7 has its own server rate: 0.2 with 50 clients, as in
# csgm_fig5, and the task's with 200, as 100 clients have in csgm_fig2. The small model
# of Fig. 4 has the server's rates of equal_bits. The paper fixes z in Fig. 3, at which
# few bits have a larger epsilon than many.
SWEEPS: Mapping[str, Mapping[str, tuple[Swept, ...]]] = {
    "secagg_fig2": {
        "small": (
            Swept("digits", _z(0.0, 2.0, 4.0), (1, 5, 10, 100), (16,), (50,)),
            Swept("docs", _z(0.0, 2.0), (1, 20, 200), (18,), (50,)),
        ),
        "medium": (
            Swept("mnist", _z(0.0) + _EPS, _MNIST_RATES, (16,), (100,)),
            Swept(
                *("docs", _z(0.0, 0.6), (1, 4, 10, 100), (16,), (100,)),
                others=medium.CAREFUL_DOCS,
            ),
        ),
        "paper": (
            Swept("emnist", _z(0.0, *_PAPER_Z), _EMNIST_RATES, (16,), (100,)),
            Swept("stackoverflow", _z(0.0, 0.3, 0.5, 0.6), _WORDS_RATES, (18,), (100,)),
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
            Swept("stackoverflow", _TWO, (1, 5), (9, 10, 12, 18), (1000,)),
            Swept("stackoverflow", _TWO, (20,), (10, 12, 18), (1000,)),
        ),
    },
    "secagg_fig4": {
        "small": (
            Swept("digits", _z(1.0, 4.0), (1, 5, 10, 30, 100), (16,), (50,)),
            Swept("digits", _z(1.0, 4.0), (1, 10), (16,), (50,), "tiny_cnn"),
        ),
        "medium": (
            Swept("mnist", _EPS, (1, 10, 100, 1000), (16,), (100,)),
            Swept(
                *("mnist", _EPS, (1,), (16,), (100,), "small_cnn"), {"server_lr": 1.0}
            ),
            Swept("mnist", _EPS, (10,), (16,), (100,), "small_cnn"),
        ),
        "paper": (
            Swept("emnist", _z(*_PAPER_Z), (1, 5, 10, 20, 50), (16,), (100,)),
            Swept("emnist", _z(*_PAPER_Z), (1, 2, 4, 10), (16,), (100,), "2nn"),
        ),
    },
    "secagg_fig7": {
        "small": (Swept("digits", _z(1.0, 4.0), (1, 10, 100), (16,), (10, 50)),),
        "medium": (
            Swept(
                *("mnist", _z(1.0), (1, 10, 100), (16,), (50, 200)),
                others=medium.CAREFUL,
            ),
            Swept(*("mnist", _EPS, (1, 10, 100), (16,), (50,)), others=medium.CAREFUL),
            Swept("mnist", _EPS, (1, 10, 100), (16,), (200,)),
        ),
        "paper": (
            Swept(
                *("emnist", _z(*_PAPER_Z), (1, 10, 15, 20, 30, 40, 50), (16,)),
                (100, 1000),
            ),
            Swept(
                *("stackoverflow", _z(0.3, 0.5), _WORDS_RATES, (18,)),
                (50, 100, 200, 1000),
            ),
        ),
    },
}
# Of Fig. 8: the cohort without compression, and the one that must be no slower.
TIMED_COHORTS = {"digits": (10, 50), "mnist": (50, 200), "emnist": (100, 1000)}


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


def _amount(name: str, value: float) -> Cell:
    return {name: value}, {"epsilon" if name == "budget" else name: value}


def _cells(swept: Swept, scale: str) -> list[Cell]:
    model = {} if swept.model == "default" else {"model": swept.model}
    return cross(
        [({"task": swept.task}, {**_problem(swept.task, scale), **swept.others})],
        [({"model": swept.model}, model)],
        axis("cohort_size", swept.cohorts),
        [_amount(*noise) for noise in swept.noises],
        [_rate(rate) for rate in swept.rates],
        axis("bits", swept.bits),
        axis("seed", _SEEDS[scale]),
    )


def _sweep(name: str, timed: bool = False) -> Grid:
    """Returns the grid of a figure of `SWEEPS`, or that of two of its cohorts."""

    def grid(setting: Setting) -> list[Any]:
        return runs(
            (
                (labels, flags)
                for swept in SWEEPS[name][setting.scale]
                for labels, flags in _cells(swept, setting.scale)
                if not timed
                or labels["cohort_size"] in TIMED_COHORTS.get(swept.task, ())
            ),
            setting,
        )

    return grid


# A share of the task's own measure.
SLACK = {"digits": 0.01, "docs": 0.04, "emnist": 0.01, "mnist": 0.01}
SLACK["stackoverflow"] = 0.04


def _with_noise(rows: Rows) -> list[Row]:
    """Returns rows with their amount of noise in words: the budget, or z."""
    found: list[Row] = []
    for row in rows:
        name = "budget" if row.get("budget") else "noise_multiplier"
        words = {"budget": "ε", "noise_multiplier": "z"}[name]
        found.append({**row, "noise": f"{words}={float(row[name]):g}"})
    return found


def _final(rows: Rows) -> float:
    """Returns the mean final measure of runs, the larger the better."""
    measure = tasks.task_entry(rows[0]["task"]).measure
    mean, _, _ = mean_and_range(rows, measure.final_column)
    return -mean if measure.lower_is_better else mean


def _named(rows: Rows) -> list[Row]:
    """Returns rows with a name of their setting."""
    return [
        {
            **row,
            "setting": f"n={row['cohort_size']}, r={float(row['compression_rate']):g}, "
            f"{row['bits']} bits, {row['noise']}",
        }
        for row in rows
    ]


def fewest_bits(rows: Rows) -> list[Row]:
    """Returns, of each task, noise and rate, the runs of Table 1.

    Those have the fewest bits at which the measure is within the slack of the most bits
    without a sketch. Rates that no number of bits keeps within it have none.
    """
    found: list[Row] = []
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
                found += next((g for g in tried if _final(g) >= worst), [])
    return _named(found)


def equal_times(rows: Rows) -> list[Row]:
    """Returns the smaller cohort without compression, and the larger with enough.

    Enough is the lowest rate of the sweep at which secure aggregation takes the larger
    cohort no longer than the smaller (Fig. 8).
    """
    found: list[Row] = []
    rows = _with_noise(rows)
    for task in distinct(rows, "task"):
        least, most = TIMED_COHORTS[task]
        needed = secure_sums.rate_of_equal_time(least, most)
        own = where(rows, task=task)
        large = where(own, cohort_size=most)
        rates = sorted(distinct(large, "compression_rate"), key=float)
        found += where(own, cohort_size=least, compression_rate=1)
        for rate in [r for r in rates if float(r) >= needed - 1e-6][:1]:
            found += where(large, compression_rate=rate)
    return _named(found)


class Layers(NamedTuple):
    """What Figs. 9 and 10 train: embedding and rest sketched separately.

    Attributes:
      task: Name of the task.
      embedding: Parameters of the embedding, which come first.
      rates: Compression rates of either part.
      noises: Noise multipliers of Figs. 9 and 10.
      flags: What all runs share.
      seeds: Those of the runs.
    """

    task: str
    embedding: int
    rates: tuple[float, ...]
    noises: tuple[float, float]
    flags: Mapping[str, Any]
    seeds: tuple[int, ...] = (1,)


def _published(task: str) -> Mapping[str, Any]:
    return flag_files.values(f"chen2022/{task}.flags", "compression_rate")


# Noise is given, and not a budget.
_MEDIUM_LAYERS: Mapping[str, Any] = {
    **without_budget(medium.FLAGS[medium.DOCS]),
    **medium.CAREFUL_DOCS,
    **{"mechanism": "sketched_ddg", "noise_source": "helpers", "bits": 16},
}
LAYERS: Mapping[str, Layers] = {
    "small": Layers("docs", 64_128, (10, 300), (0.5, 0.0), _published("docs")),
    "medium": Layers(
        *("docs", 16_064, (10, 100), (0.6, 0.0), _MEDIUM_LAYERS, medium.SEEDS)
    ),
    "paper": Layers(
        *("stackoverflow", 960_384, (2, 5, 10, 20), (0.05, 0.0)),
        _published("stackoverflow"),
    ),
}


def _layers(panel: int) -> Grid:
    """Returns the grid of Fig. 9 (panel 0) or Fig. 10 (panel 1)."""

    def grid(setting: Setting) -> list[Any]:
        of = LAYERS[setting.scale]
        parts: list[Cell] = []
        for embedding in of.rates:
            for rest in of.rates:
                rates = f"{embedding:g},{rest:g}"
                given = {"layers": of.embedding, "layer_rates": rates}
                parts.append(({"embedding": embedding, "rest": rest}, given))
            whole = {"embedding": embedding, "rest": "together"}
            parts.append((whole, {"compression_rate": embedding}))
        cells = cross(
            [({"task": of.task}, of.flags)],
            axis("noise_multiplier", [of.noises[panel]]),
            parts,
            axis("seed", of.seeds),
        )
        return runs(cells, setting)

    return grid


# Clients, dimension and repeats; enough bits, and few: a coordinate of the sum needs
# more with more clients; and the expected product of two vectors of a distribution.
MEAN_SIZES = {"small": (100, 2**14, 50), "paper": (1000, 2**20, 10)}
_MEAN_BITS = {"small": (16, 12), "paper": (18, 15)}
PRODUCTS = {"similar": 0.5, "independent": 0.0}
_MEAN_RATES = (1, 3, 10, 30, 100)
# Where hashes, which are slow, and other vectors are tried.
_FEW_RATES = (10, 100)


def _vectors(name: str, *of: Any) -> Any:
    from . import measured_means

    found = getattr(measured_means, f"{name}_vectors")
    return found(*of) if of else found


def _theory(dimension: int, product: float, noised: Any) -> float:
    return secure_sums.expected_error(noised, dimension, product)


def _means(setting: Setting) -> list[Work]:
    """Returns sketches of both kinds, and no sketch, over rates and bits."""
    n, dimension, repeats = MEAN_SIZES[setting.scale]
    many, few = _MEAN_BITS[setting.scale]
    ddg = functools.partial(mechanisms.DistributedDiscreteGaussian, n, 1.0, 1.0)
    sketched = functools.partial(mechanisms.SketchedDdg, n, 1.0, 1.0)
    perturb = functools.partial(mechanisms.ProjectAndPerturb, n, 1.0, 1.0)
    shifts = f"shifts, {many} bits"
    curves: list[tuple[str, str, tuple[int, ...], Callable[[float], Any]]] = [
        ("Gaussian", "similar", (1,), lambda r: mechanisms.Gaussian(n, 1.0, 1.0)),
        (f"DDG, {many} bits", "similar", (1,), lambda r: ddg(many)),
        (f"DDG, {few} bits", "similar", (1,), lambda r: ddg(few)),
        (shifts, "similar", _MEAN_RATES, lambda r: sketched(many, compression_rate=r)),
        (
            *(f"shifts, {few} bits", "similar", _MEAN_RATES),
            lambda r: sketched(few, compression_rate=r),
        ),
        ("project and perturb", "similar", _MEAN_RATES, perturb),
        (
            *(f"hashes, {many} bits", "similar", _FEW_RATES),
            lambda r: sketched(many, compression_rate=r, sketch="hashes"),
        ),
        (
            *(shifts, "independent", _FEW_RATES),
            lambda r: sketched(many, compression_rate=r),
        ),
    ]
    found = []
    for series, vectors, rates, make in curves:
        for rate in rates:
            config = make(float(rate))
            work = mean_estimation.work(
                {"series": series, "compression_rate": rate, "vectors": vectors},
                config,
                dimension=dimension,
                repeats=repeats,
                epsilon=1.0,
                make_vectors=functools.partial(_vectors, vectors),
                theory=functools.partial(_theory, dimension, PRODUCTS[vectors]),
                bits=config.bits or 0,
            )
            found.append(work)
    return found


# Clients, dimension, repeats and numbers of coordinates that are not zero.
SPARSE_SIZES: dict[str, tuple[int, int, int, tuple[int, ...]]] = {
    "small": (200, 2**12, 20, (1, 2, 5, 10, 20)),
    "paper": (1000, 2**14, 20, (1, 3, 10, 30, 100)),
}
_SPARSE_BITS = 16
SPARSE_NAMES = {
    "distributed_discrete_gaussian": "DDG without sketch",
    "sketched_ddg": "count-mean sketch, same bits",
    "sparse_recovery": "sparse recovery (LASSO)",
}


def sparse_config(
    name: str, n: int, dimension: int, sparsity: int
) -> mechanisms.Mechanism:
    """Returns a mechanism for a mean of that sparsity.

    Sketches have the length of the LASSO's; that of a count-mean sketch is rounded up
    to a multiple of its rows.
    """
    bits = _SPARSE_BITS
    recovery = mechanisms.SparseRecovery(n, 1.0, 1.0, bits, sparsity=sparsity)
    rate = dimension / recovery.vector_dimension(dimension)
    return {
        "sparse_recovery": lambda: recovery,
        "distributed_discrete_gaussian": lambda: mechanisms.DistributedDiscreteGaussian(
            n, 1.0, 1.0, bits
        ),
        "sketched_ddg": lambda: mechanisms.SketchedDdg(
            n, 1.0, 1.0, bits, compression_rate=rate
        ),
    }[name]()


def _sparse_means(setting: Setting) -> list[Work]:
    """Returns the LASSO, a sketch of its length and no sketch, over sparsities."""
    n, dimension, repeats, sparsities = SPARSE_SIZES[setting.scale]
    return [
        mean_estimation.work(
            {"mechanism": name, "sparsity": sparsity},
            sparse_config(name, n, dimension, sparsity),
            dimension=dimension,
            repeats=repeats,
            epsilon=8.0,
            make_vectors=functools.partial(_vectors, "sparse", sparsity),
            bits=_SPARSE_BITS,
        )
        for name in SPARSE_NAMES
        for sparsity in sparsities
    ]


# Clients and length of a message, and epsilon, of each curve over the bits.
_BITS_SIZES = ((100, 100), (1000, 1000), (1000, 10_000), (1000, 100_000))
_BITS_EPSILONS = (1.0, 2.0, 4.0, 16.0)
_BITS_DELTA = 1e-5


def _bits(setting: Setting) -> list[Work]:
    """Returns error ratios over bits: sizes at epsilon 8, and epsilons at one size."""
    is_small = setting.scale == "small"
    curves = [(*size, 8.0) for size in _BITS_SIZES[: 3 if is_small else 4]]
    curves += [(1000, 1000, epsilon) for epsilon in _BITS_EPSILONS]
    names = ("clients", "length", "epsilon", "bits", "bound")
    points = [
        (*curve, bits, bound)
        for curve in curves
        for bound in noise_events.BOUNDS
        for bits in range(6, 19 if is_small else 21)
    ]

    def work(n: int, length: int, epsilon: float, bits: int, bound: str) -> Work:
        def compute(folder: Path) -> Mapping[str, Any]:
            del folder
            of = (n, length, epsilon, _BITS_DELTA, bits, bound)
            return {"error_ratio": secure_sums.error_ratio(*of)}

        labels = dict(zip(names, (n, length, epsilon, bits, bound)))
        return Work(labels, {"delta": _BITS_DELTA}, compute)

    return [work(*point) for point in points]


_ERRORS: Mapping[str, Any] = {"error": "standard_error", "log": "xy"}

FIGURES = [
    *(
        Figure(name, f"{_PAPER}, {what}", grid, plot, "secagg_sweep", SCALES)
        for name, what, grid, plot in (
            (
                "secagg_fig2",
                "Fig. 2: compression rates at several noise multipliers",
                _sweep("secagg_fig2"),
                Plot(
                    *("compression_rate", ("noise",), ("task",)),
                    rows=_with_noise,
                    log="x",
                ),
            ),
            (
                "secagg_fig3",
                "Figs. 3, 5 and 6: bits and compression rate, at equal epsilon",
                _sweep("secagg_fig3"),
                Plot(
                    "uplink_bits_per_parameter",
                    ("compression_rate",),
                    ("task", "budget"),
                    by=("bits",),
                    log="x",
                ),
            ),
            (
                "secagg_table1",
                "Table 1: fewest bits within a slack, at equal epsilon",
                _sweep("secagg_fig3"),
                Plot("setting", ("noise",), ("task",), rows=fewest_bits),
            ),
            (
                "secagg_fig4",
                "Fig. 4: a large model compressed against a small one",
                _sweep("secagg_fig4"),
                Plot(
                    "uplink_bits_per_client",
                    ("model",),
                    ("task", "noise"),
                    by=("compression_rate",),
                    rows=_with_noise,
                    log="x",
                    titles={"default": "large model"},
                ),
            ),
            (
                "secagg_fig7",
                "Fig. 7: compression over cohort sizes",
                _sweep("secagg_fig7"),
                Plot(
                    *("compression_rate", ("cohort_size",), ("task", "noise")),
                    rows=_with_noise,
                    log="x",
                ),
            ),
            (
                "secagg_fig8",
                "Fig. 8: larger cohorts at the time of secure aggregation of smaller",
                _sweep("secagg_fig7", timed=True),
                Plot("setting", ("noise",), ("task",), rows=equal_times),
            ),
        )
    ),
    *(
        Figure(
            name,
            f"{_PAPER}, {what}",
            _layers(panel),
            Plot("rest", ("embedding",), ("task", "noise_multiplier")),
            "secagg_layers",
            SCALES,
        )
        for panel, (name, what) in enumerate(
            (
                (
                    "secagg_fig9",
                    "Fig. 9: embedding and rest sketched separately, with noise",
                ),
                (
                    "secagg_fig10",
                    "Fig. 10: embedding and rest sketched separately, without noise",
                ),
            )
        )
    ),
    Figure(
        "secagg_mean",
        "Squared error of the mean under secure aggregation against rate and bits",
        _means,
        Plot(
            *("compression_rate", ("series",), ("vectors",), ("squared_error",)),
            beside="theory",
            **_ERRORS,
        ),
    ),
    Figure(
        "secagg_sparse",
        "Squared error of sparse means against sparsity: LASSO, sketch, no sketch",
        _sparse_means,
        Plot(
            *("sparsity", ("mechanism",), ()),
            y=("squared_error", "bits_per_parameter"),
            titles=SPARSE_NAMES,
            **_ERRORS,
        ),
    ),
    Figure(
        "secagg_bits",
        "Bits of a coordinate at equal epsilon: exact accountant, published bound",
        _bits,
        Plot(
            *("bits", ("bound", "epsilon"), ("clients", "length"), ("error_ratio",)),
            log="y",
        ),
    ),
]
