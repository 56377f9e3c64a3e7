# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The sweep of Figs. 2 to 8 and Table 1: count sketch and discrete Gaussian noise.

All of them are views of one sweep over noise multipliers z, compression rates r, bits
b, cohort sizes n and models.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, Optional, Union

from dpfl import mechanisms, tasks

from ... import flag_files
from .. import medium, plotting
from ..result_rows import (
    Row,
    Rows,
    distinct,
    mean_and_range,
    numbers,
    parameters,
    seeds,
    where,
)
from ..sweep import Setting, Work
from ..trainings import training_work, without_budget


def noise(row: Row) -> tuple[str, str]:
    """Returns name and value of the label that says how much noise a run has."""
    name = "budget" if row.get("budget") else "noise_multiplier"
    return name, row[name]


def panels(rows: Rows) -> list[tuple[str, list[Row]]]:
    """Returns task and rows of each task and each amount of noise."""
    found: dict[tuple[str, tuple[str, str]], list[Row]] = {}
    for row in rows:
        found.setdefault((row["task"], noise(row)), []).append(row)
    return [(task, runs) for (task, _), runs in found.items()]


def amount_label(row: Row) -> str:
    """Returns how much noise a run was given, as its budget or its multiplier."""
    name, value = noise(row)
    words = r"$\varepsilon$=" if name == "budget" else "noise multiplier "
    return f"{words}{float(value):g}"


def noise_label(rows: Rows) -> str:
    """Returns how much noise there is, and the epsilon that the runs spent or had."""
    _, value = noise(rows[0])
    if float(value) == 0:
        return "no noise"
    return f"{amount_label(rows[0])}{epsilon_label(rows)}"


def epsilon_label(rows: Rows) -> str:
    """Returns the epsilon that the runs spent, in brackets.

    Nothing if it is infinite, or if it was given as their budget.
    """
    epsilons = numbers(rows, "epsilon")
    if rows[0].get("budget") or not all(map(math.isfinite, epsilons)):
        return ""
    low, high = min(epsilons), max(epsilons)
    spread = f"{low:.1f}" if high < 1.05 * low else f"{low:.1f} to {high:.1f}"
    return rf" ($\varepsilon$={spread})"


# A share of the task's own measure.
SLACK = {
    "digits": 0.01,
    "docs": 0.04,
    "emnist": 0.01,
    "mnist": 0.01,
    "stackoverflow": 0.04,
}


def said(task: str) -> str:
    """Returns how far off the slack is, in words."""
    measure = tasks.task_entry(task).measure
    return f"{SLACK[task]:.0%} {'above' if measure.lower_is_better else 'below'}"


def bar(rows: Rows, task: str) -> float:
    """Returns the worst measure that the slack allows.

    Args:
      rows: Uncompressed runs.
      task: Name of the task.
    """
    measure = tasks.task_entry(task).measure
    mean, _, _ = mean_and_range(rows, measure.final_column)
    return mean * (1 + SLACK[task] if measure.lower_is_better else 1 - SLACK[task])


def within(rows: Rows, worst: float, task: str) -> bool:
    """Returns whether runs are no worse than `worst` in the mean over seeds."""
    measure = tasks.task_entry(task).measure
    mean, _, _ = mean_and_range(rows, measure.final_column)
    return mean <= worst if measure.lower_is_better else mean >= worst


_SEEDS = {"small": (1, 2), "medium": medium.SEEDS, "paper": (1, 2, 3, 4, 5)}


@dataclasses.dataclass(frozen=True)
class Cell:
    """A run of the sweep but for its seed.

    Attributes:
      task: Name of the task.
      z: Noise multiplier; None if it is set by the budget.
      rate: r; 1 is the discrete Gaussian alone, without sketch.
      bits: b.
      cohort_size: n.
      model: The task's model; None is that of the flag file.
      budget: Epsilon in place of z.
      others: Flags in place of the task's.
    """

    task: str
    z: Optional[float]
    rate: float
    bits: int
    cohort_size: int
    model: Optional[str] = None
    budget: Optional[float] = None
    others: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def noise(self) -> Mapping[str, Optional[float]]:
        """Returns the label that says how much noise there is."""
        if self.budget is None:
            return {"noise_multiplier": self.z}
        return {"budget": self.budget}

    @property
    def flags(self) -> Mapping[str, Any]:
        """Returns what the run has in place of the flag file's."""
        flags = {**self.others, "cohort_size": self.cohort_size, "bits": self.bits}
        if self.rate == 1:
            flags["mechanism"] = mechanisms.DistributedDiscreteGaussian.name
        else:
            flags["mechanism"] = mechanisms.SketchedDdg.name
            flags["compression_rate"] = self.rate
        if self.budget is None:
            flags["noise_multiplier"] = self.z
        else:
            flags["epsilon"] = self.budget
        if self.model:
            flags["model"] = self.model
        return flags


def _work(cell: Cell, seed: int, setting: Setting) -> Work:
    labels = {
        "task": cell.task,
        "model": cell.model or "default",
        "cohort_size": cell.cohort_size,
        **cell.noise,
        "compression_rate": cell.rate,
        "bits": cell.bits,
        "seed": seed,
    }
    flags = {**_problem(cell, setting.scale), **cell.flags, "seed": seed}
    return training_work(labels, flags, setting)


def _problem(cell: Cell, scale: str) -> Mapping[str, Any]:
    """Returns the flags that do not depend on the mechanism."""
    if scale == "medium":
        return {**without_budget(medium.FLAGS[cell.task]), "noise_source": "helpers"}
    return flag_files.values(
        f"chen2022/{cell.task}.flags",
        "mechanism",
        "compression_rate",
        "noise_multiplier",
    )


def _works(cells: Iterable[Cell], setting: Setting) -> list[Work]:
    return [
        _work(cell, seed, setting) for cell in cells for seed in _SEEDS[setting.scale]
    ]


@dataclasses.dataclass(frozen=True)
class Rates:
    """Fig. 2 on one task.

    Attributes:
      noises: Noise multipliers z.
      rates: Compression rates r.
      bits: b.
      cohort_size: n.
      budgets: Epsilons, each instead of a noise multiplier.
      others: Flags in place of the task's.
    """

    noises: tuple[float, ...]
    rates: tuple[float, ...]
    bits: int
    cohort_size: int
    budgets: tuple[float, ...] = ()
    others: Mapping[str, Any] = dataclasses.field(default_factory=dict)


RATES: Mapping[str, Mapping[str, Rates]] = {
    "small": {
        "digits": Rates((0.0, 2.0, 4.0), (1, 5, 10, 100), 16, 50),
        "docs": Rates((0.0, 2.0), (1, 20, 200), 18, 50),
    },
    # Beyond 100 the two amounts of noise on MNIST may be told apart. Docstrings have
    # the noise of Fig. 9.
    "medium": {
        medium.MNIST: Rates((0.0,), (1, 10, 100, 300, 1000), 16, 100, (8.0,)),
        medium.DOCS: Rates(
            *((0.0, 0.6), (1, 4, 10, 100), 16, 100),
            others=medium.CAREFUL_DOCS,
        ),
    },
    "paper": {
        "emnist": Rates(
            (0.0, 0.1, 0.3, 0.5), (1, 4, 5, 10, 20, 30, 40, 50, 60), 16, 100
        ),
        "stackoverflow": Rates((0.0, 0.3, 0.5, 0.6), (1, 2, 4, 5, 10, 15, 20), 18, 100),
    },
}


def _amounts(
    swept: Union[Rates, Models, Cohorts],
) -> list[tuple[Optional[float], Optional[float]]]:
    """Returns z and budget of each amount of noise, one of them None."""
    return [
        *((z, None) for z in swept.noises),
        *((None, budget) for budget in swept.budgets),
    ]


def rates_grid(setting: Setting) -> list[Work]:
    """Returns Fig. 2: over compression rates and noise multipliers."""
    return _works(
        (
            Cell(
                *(task, z, rate, swept.bits, swept.cohort_size),
                budget=budget,
                others=swept.others,
            )
            for task, swept in RATES[setting.scale].items()
            for z, budget in _amounts(swept)
            for rate in swept.rates
        ),
        setting,
    )


@dataclasses.dataclass(frozen=True)
class Bits:
    """Table 1 and Figs. 3, 5, 6 on one task.

    Attributes:
      budgets: Epsilons.
      cohort_size: n.
      widths: The bits b of each compression rate r.
    """

    budgets: tuple[float, ...]
    cohort_size: int
    widths: Mapping[float, tuple[int, ...]]


# The paper fixes z, at which few bits have a larger epsilon than many.
BITS: Mapping[str, Mapping[str, Bits]] = {
    "small": {
        "digits": Bits((8.0,), 50, {1: (6, 7, 8, 16), 10: (7, 8, 16), 100: (8, 16)})
    },
    # Those with 16 bits are also in Fig. 2.
    "medium": {
        medium.MNIST: Bits((8.0,), 100, {1: (6, 8, 16), 10: (7, 16), 100: (10, 16)})
    },
    "paper": {
        "emnist": Bits(
            (5.0, 10.0),
            100,
            {1: (7, 8, 10, 16), 10: (7, 8, 10, 16), 50: (8, 10, 12, 16)},
        ),
        "stackoverflow": Bits(
            (5.0, 10.0),
            1000,
            {1: (9, 10, 12, 18), 5: (9, 10, 12, 18), 20: (10, 12, 18)},
        ),
    },
}


def bits_grid(setting: Setting) -> list[Work]:
    """Returns Table 1 and Figs. 3, 5, 6: bits against rate, at equal epsilon."""
    return _works(
        (
            Cell(task, None, rate, bits, swept.cohort_size, budget=budget)
            for task, swept in BITS[setting.scale].items()
            for budget in swept.budgets
            for rate, widths in swept.widths.items()
            for bits in widths
        ),
        setting,
    )


@dataclasses.dataclass(frozen=True)
class Models:
    """Fig. 4 on one task.

    Attributes:
      small: The small model.
      noises: Noise multipliers z.
      of_large: Compression rates of the large model.
      of_small: Compression rates of the small model.
      budgets: Epsilons, each instead of a noise multiplier.
      others_of_small: Flags of the small model in place of the task's, by rate.
    """

    small: str
    noises: tuple[float, ...]
    of_large: tuple[float, ...]
    of_small: tuple[float, ...]
    budgets: tuple[float, ...] = ()
    others_of_small: Mapping[float, Mapping[str, Any]] = dataclasses.field(
        default_factory=dict
    )


MODELS: Mapping[str, Mapping[str, Models]] = {
    "small": {"digits": Models("tiny_cnn", (1.0, 4.0), (1, 5, 10, 30, 100), (1, 10))},
    # Those of the large model are also in Fig. 2. The small one has the server's rates
    # of the figure equal_bits.
    "medium": {
        medium.MNIST: Models(
            *("small_cnn", (), (1, 10, 100, 1000), (1, 10), (8.0,)),
            {1: {"server_lr": 1.0}},
        )
    },
    "paper": {
        "emnist": Models("2nn", (0.1, 0.3, 0.5), (1, 5, 10, 20, 50), (1, 2, 4, 10)),
    },
}


def models_grid(setting: Setting) -> list[Work]:
    """Returns Fig. 4: a large model compressed, and a small one."""
    cells = []
    for task, models in MODELS[setting.scale].items():
        bits = RATES[setting.scale][task].bits
        cohort = RATES[setting.scale][task].cohort_size
        own = models.others_of_small
        cells += [
            Cell(task, z, rate, bits, cohort, model, budget, others)
            for z, budget in _amounts(models)
            for model, rate, others in (
                *((None, rate, {}) for rate in models.of_large),
                *((models.small, rate, own.get(rate, {})) for rate in models.of_small),
            )
        ]
    return _works(cells, setting)


@dataclasses.dataclass(frozen=True)
class Cohorts:
    """Figs. 7 and 8 on one task.

    Attributes:
      noises: Noise multipliers z.
      sizes: Cohort sizes n.
      rates: Compression rates r.
      others: Flags in place of the task's, where z is given.
      budgets: Epsilons, each instead of a noise multiplier.
      others_at_budget: Flags in place of the task's, where epsilon is given, by n.
    """

    noises: tuple[float, ...]
    sizes: tuple[int, ...]
    rates: tuple[float, ...]
    others: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    budgets: tuple[float, ...] = ()
    others_at_budget: Mapping[int, Mapping[str, Any]] = dataclasses.field(
        default_factory=dict
    )

    def flags(self, size: int, budget: Optional[float]) -> Mapping[str, Any]:
        """Returns the flags of a cohort in place of the task's."""
        if budget is None:
            return self.others
        return self.others_at_budget.get(size, {})


COHORTS: Mapping[str, Mapping[str, Cohorts]] = {
    "small": {"digits": Cohorts((1.0, 4.0), (10, 50), (1, 10, 100))},
    # At epsilon 8 each cohort has its own server rate: 0.2 with 50 clients, as in
    # csgm_fig5, and the task's with 200, as 100 clients have in csgm_fig2.
    "medium": {
        medium.MNIST: Cohorts(
            *((1.0,), (50, 200), (1, 10, 100), medium.CAREFUL),
            budgets=(8.0,),
            others_at_budget={50: medium.CAREFUL},
        )
    },
    "paper": {
        "emnist": Cohorts((0.1, 0.3, 0.5), (100, 1000), (1, 10, 15, 20, 30, 40, 50)),
        "stackoverflow": Cohorts(
            (0.3, 0.5), (50, 100, 200, 1000), (1, 2, 4, 5, 10, 15, 20)
        ),
    },
}
# Of Fig. 8: the cohort without compression, and the one that must be no slower.
TIMED_COHORTS = {"digits": (10, 50), medium.MNIST: (50, 200), "emnist": (100, 1000)}


def _cohort_cells(scale: str) -> list[Cell]:
    return [
        Cell(
            *(task, z, rate, RATES[scale][task].bits, cohort),
            budget=budget,
            others=swept.flags(cohort, budget),
        )
        for task, swept in COHORTS[scale].items()
        for z, budget in _amounts(swept)
        for cohort in swept.sizes
        for rate in swept.rates
    ]


def cohorts_grid(setting: Setting) -> list[Work]:
    """Returns Fig. 7: compression over cohort sizes."""
    return _works(_cohort_cells(setting.scale), setting)


def timed_cohorts_grid(setting: Setting) -> list[Work]:
    """Returns Fig. 8: the runs of Fig. 7 with two of the cohorts."""
    cells = _cohort_cells(setting.scale)
    return _works(
        (c for c in cells if c.cohort_size in TIMED_COHORTS.get(c.task, ())), setting
    )


Look = Mapping[str, Any]
# Runs at rate 1 send whole vectors.
_PLAIN = "r=1: no sketch (DDG)"


def _line(
    axis: Any,
    rows: Rows,
    x: str,
    task: str,
    look: Look,
    label: str,
    plain_look: Optional[Look] = None,
) -> None:
    """Draws means with ranges over seeds against a column.

    Args:
      axis: A panel.
      rows: Runs of the line.
      x: Column of the place.
      task: Whose measure is drawn.
      look: Of the line.
      label: For the legend.
      plain_look: Of the points at rate 1, which are on the line of a sketch and are
        none; None where the line has one rate.
    """
    column = tasks.task_entry(task).measure.final_column
    points = _points(rows, x, column)
    plain: list[plotting.Point] = []
    if plain_look:
        plain = _points(where(rows, compression_rate=1), x, column)
    if points:
        marked = [i for i, point in enumerate(points) if point not in plain]
        plotting.ranges(axis, points, label, markevery=marked, **look)
    if plain and plain_look:
        own = {**plain_look, "ls": "", "zorder": 3}
        is_named = _PLAIN in axis.get_legend_handles_labels()[1]
        plotting.ranges(axis, plain, "_" if is_named else _PLAIN, **own)


def _points(rows: Rows, x: str, column: str) -> list[plotting.Point]:
    """Returns the means of a column with ranges over seeds, by another column."""
    groups = {float(v): where(rows, **{x: v}) for v in distinct(rows, x)}
    return plotting.range_points(dict(sorted(groups.items())), column)


# Hollow, where lines of the sketch have its marker.
_FILLS: Mapping[bool, Mapping[str, Any]] = {False: {}, True: {"mfc": "white"}}


def _shaded(step: int, count: int) -> tuple[Look, Look]:
    """Returns how one of a few lines of the sketch looks, and its points at rate 1.

    Both have the same shade, each of its own color, so that a point is seen to belong
    to its line.
    """
    # From nearly black, so that two of them differ, to no lighter than the color.
    line, plain = (
        {
            **plotting.look(name, step),
            "color": plotting.shade(name, step, count, (-0.75, 0.0)),
        }
        for name in ("sketched_ddg", "ddg")
    )
    return line, plain


def _finish(axis: Any, task: str, x_label: str, below: int = 0) -> None:
    label = f"final {tasks.task_entry(task).measure.label}"
    labels: dict[str, Any]
    labels = {"xscale": "log", "xlabel": x_label, "ylabel": label}
    plotting.finish(axis, below=below, last=_PLAIN, **labels)


def _slack(axis: Any, plain: Rows, task: str, color: str) -> None:
    """Draws how bad a run may be, from uncompressed ones if they are done."""
    if plain:
        axis.axhline(bar(plain, task), color=color, ls=":", lw=1.6)


def _server_rate(task: str, scale: str) -> str:
    """Returns the server's rate in words, if all runs of Fig. 2 on a task share it.

    The best rate of a sketch need not be that of whole vectors.
    """
    works = [w for w in rates_grid(Setting(scale)) if w.labels["task"] == task]
    rates = {work.settings.get("server_lr") for work in works}
    rate = rates.pop()
    return "" if rates or rate is None else f"server rate {float(rate):g} for all; "


def draw_rates(rows: Rows, scale: str) -> Any:
    """Draws Fig. 2: a panel for each task, a line for each noise multiplier."""
    shown = distinct(rows, "task")
    picture, axes = plotting.panels(len(shown), 4.8, 3.8)
    for axis, task in zip(axes, shown):
        runs = where(rows, task=task)
        amounts = panels(runs)
        for i, (_, chosen) in enumerate(amounts):
            look, plain = _shaded(i, len(amounts))
            label = noise_label(chosen)
            _line(axis, chosen, "compression_rate", task, look, label, plain)
            _slack(axis, where(chosen, compression_rate=1), task, look["color"])
        axis.set_title(
            f"{task}, {runs[0]['cohort_size']} clients a round, "
            f"{runs[0]['bits']} bits a number\n"
            f"{_server_rate(task, scale)}dotted: {said(task)} r=1",
        )
        _finish(axis, task, "compression rate r", below=max(1, 3 - len(shown) // 2))
    picture.suptitle(seeds(rows))
    picture.tight_layout()
    return picture


def draw_bits(rows: Rows, scale: str) -> Any:
    """Draws Figs. 3, 5, 6: a line for each rate, a point for each number of bits."""
    del scale
    shown = panels(rows)
    picture, axes = plotting.panels(len(shown), 4.6, 3.8)
    for axis, (task, runs) in zip(axes, shown):
        for i, rate in enumerate(distinct(runs, "compression_rate")):
            chosen = where(runs, compression_rate=rate)
            label, look = "no sketch (DDG)", plotting.look("ddg")
            if float(rate) != 1:
                label, look = (
                    f"sketch, r={float(rate):g}",
                    {**plotting.look("sketched_ddg", i - 1), **_FILLS[i > 1]},
                )
            _line(axis, chosen, "uplink_bits_per_parameter", task, look, label)
            _name_points(axis, chosen, task)
        best = [r for r in runs if float(r["compression_rate"]) == 1]
        widest = max((int(r["bits"]) for r in best), default=0)
        _slack(axis, where(best, bits=widest), task, "k")
        dotted = f"dotted: {said(task)} {widest} bits, no sketch"
        axis.set_title(f"{task}, {noise_label(runs)}; {dotted}")
        _finish(axis, task, "bits per parameter, helpers' included")
    picture.suptitle(f"at points: bits of a number; {seeds(rows)}")
    picture.tight_layout()
    return picture


def _name_points(axis: Any, rows: Rows, task: str) -> None:
    column = tasks.task_entry(task).measure.final_column
    for bits in distinct(rows, "bits"):
        runs = where(rows, bits=bits)
        mean, _, _ = mean_and_range(runs, column)
        place = float(runs[0]["uplink_bits_per_parameter"]), mean
        axis.annotate(
            bits, place, textcoords="offset points", xytext=(3, 3), fontsize=8
        )


def draw_models(rows: Rows, scale: str) -> Any:
    """Draws Fig. 4: both models over the bytes that a client sends."""
    shown = panels(rows)
    picture, axes = plotting.panels(len(shown), 4.4, 3.6)
    for axis, (task, group) in zip(axes, shown):
        runs = [
            {**r, "kilobytes": str(float(r["uplink_bits_per_client"]) / 8000)}
            for r in group
        ]
        names = {"default": "large model", MODELS[scale][task].small: "small model"}
        for i, (model, name) in enumerate(names.items()):
            look, plain = (
                {**plotting.look(kind, i), **_FILLS[i > 0]}
                for kind in ("sketched_ddg", "ddg")
            )
            own = where(runs, model=model)
            label = f"{name}, {parameters(own)}" if own else name
            _line(axis, own, "kilobytes", task, look, label, plain)
        axis.set_title(f"{task}, {noise_label(runs)}")
        _finish(axis, task, "kB up, a client and round")
    picture.suptitle(seeds(rows))
    picture.tight_layout()
    return picture


def draw_cohorts(rows: Rows, scale: str) -> Any:
    """Draws Fig. 7: a panel for each amount of noise, a line for each cohort."""
    del scale
    shown = panels(rows)
    picture, axes = plotting.panels(len(shown), 4.4, 3.6)
    for axis, (task, runs) in zip(axes, shown):
        cohorts = distinct(runs, "cohort_size")
        for i, cohort in enumerate(cohorts):
            chosen = where(runs, cohort_size=cohort)
            look, plain = _shaded(i, len(cohorts))
            label = f"{cohort} clients{epsilon_label(chosen)}"
            _line(axis, chosen, "compression_rate", task, look, label, plain)
            _slack(axis, where(chosen, compression_rate=1), task, look["color"])
        axis.set_title(f"{task}, {amount_label(runs[0])}; dotted: {said(task)} r=1")
        _finish(axis, task, "compression rate r", below=max(1, 3 - len(shown) // 2))
    picture.suptitle(seeds(rows))
    picture.tight_layout()
    return picture
