# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""DOME with one choice changed at a time, and what its sketch sees round by round."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl import tasks

from .. import plotting
from ..result_rows import Rows, distinct, mean_and_range, seeds, where
from ..sweep import Setting, Work
from .comparison import (
    COMPARISONS,
    NO_NOISE,
    SKETCHED,
    TITLES,
    budget_label,
    budgets,
    dome_flags,
    dots,
    mechanism_flags,
    shared,
    work,
)


@dataclasses.dataclass(frozen=True)
class Ablation:
    """DOME with one thing other than in the flag file.

    Attributes:
      title: What drawings call it.
      flags: What is other.
    """

    title: str
    flags: Mapping[str, Any]


def _sketch_ablation(ablated: Ablated, size: int) -> Ablation:
    """Returns another k; a sketch of k random rows sees k/d of a squared norm."""
    given = dome_flags(ablated.task)
    ratio = math.sqrt(size / int(given["sketch_size"]))
    clip = float(f"{float(given['clip_norm']) * ratio:.4g}")
    return Ablation(
        f"a sketch of {size} numbers (k)", {"sketch_size": size, "clip_norm": clip}
    )


NO_PROBES = "dome_no_probes"


@dataclasses.dataclass(frozen=True)
class Ablated:
    """What is ablated at a scale.

    Attributes:
      task: Name of the task.
      sizes: Other k.
      base: The variant of DOME that everything but one choice is taken from.
      has_no_noise: Whether there are runs without noise, too.
    """

    task: str
    sizes: tuple[int, ...]
    base: str = "dome"
    has_no_noise: bool = True


# At the medium scale mean removal, the worst of DOME's choices, is off throughout.
ABLATED = {
    "small": Ablated("digits", (16, 64, 1024)),
    "medium": Ablated("mnist", (64, 1024), "dome_whole", has_no_noise=False),
    "paper": Ablated("emnist", (16, 64, 1024)),
}
# Second moments where k=256 has the noise's own variance, 4.5e-9.
_FLOORS = (4.5e-10, 4.5e-8)
_CHANGES: Sequence[tuple[str, str, Mapping[str, Any]]] = [
    ("q0.9", "directions with 90% of the energy kept (q)", {"energy_fraction": 0.9}),
    (
        "q0.99999",
        "directions with 99.999% of the energy kept (q)",
        {"energy_fraction": 0.99999},
    ),
    ("max_rank1", "at most one direction kept (r)", {"max_rank": 1}),
    ("beta0.5", r"first moment decays by a half ($\beta_1$=0.5)", {"beta_1": 0.5}),
    ("beta0", r"no first moment ($\beta_1$=0)", {"beta_1": 0.0}),
    ("biased", "noise left in the second moment", {"debiasing": False}),
    ("qr", "sketch updated as published (QR)", {"sketch_rule": "qr"}),
    ("no_decay", "sketch forgets nothing", {"sketch_decay": 1.0}),
    (
        "gradient",
        "sketch learns from the whole gradient",
        {"sketch_target": "gradient"},
    ),
]
_WITH_MEAN_REMOVAL: Sequence[tuple[str, str, Mapping[str, Any]]] = [
    ("no_mean", "no mean removal", {"mean_removal": False}),
    (
        "no_mean_max_rank1",
        "no mean removal, at most one direction kept (r)",
        {"mean_removal": False, "max_rank": 1},
    ),
]
_WITHOUT_MEAN_REMOVAL: Sequence[tuple[str, str, Mapping[str, Any]]] = [
    *(
        (
            f"floor{floor:g}",
            f"second moment at least {floor:g}",
            {"second_moment_floor": floor},
        )
        for floor in _FLOORS
    ),
]


def ablations(scale: str) -> dict[str, Ablation]:
    """Returns ablations by the name in a row; what is ablated comes first."""
    ablated = ABLATED[scale]
    size = int(dome_flags(ablated.task)["sketch_size"])
    removes = ablated.base == "dome"
    name = f"DOME, k={size}" if removes else f"DOME without mean removal, k={size}"
    found = {ablated.base: Ablation(name, {})}
    for other in ablated.sizes:
        found[f"{ablated.base}_k{other}"] = _sketch_ablation(ablated, other)
    no_probes = NO_PROBES if removes else f"{ablated.base}_no_probes"
    found[no_probes] = Ablation("no random probes", {"probes": False})
    changes = [
        *_CHANGES,
        ("max_rank", f"up to {size} directions kept (r)", {"max_rank": size}),
        *(_WITH_MEAN_REMOVAL if removes else _WITHOUT_MEAN_REMOVAL),
    ]
    for change, title, flags in changes:
        found[f"{ablated.base}_{change}"] = Ablation(title, flags)
    return found


def references(scale: str) -> tuple[str, ...]:
    """Returns mechanisms of the comparison that are beside the ablations in the table.

    At the medium scale DOME as published and sketched DDG, which is to be beaten, are.
    """
    if ABLATED[scale].base == "dome":
        return ()
    return ("dome_ddg", "dome_ddg_rank1", "dome_sgd", "dome", *SKETCHED)


def _dome_work(
    task: str,
    mechanism: str,
    flags: Mapping[str, Any],
    epsilon: float,
    seed: int,
    setting: Setting,
) -> Work:
    """Returns a run; without flags of its own it is one of the comparison."""
    base = ABLATED[setting.scale].base
    if mechanism in references(setting.scale):
        base = mechanism
    chosen = COMPARISONS[setting.scale][task].chosen[base]
    given = {**mechanism_flags(task, base, *chosen), **flags}
    return work(task, mechanism, given, epsilon, seed, setting)


def grid(setting: Setting) -> list[Work]:
    """Returns every ablation at one budget and, at most scales, without noise."""
    ablated = ABLATED[setting.scale]
    compared = COMPARISONS[setting.scale][ablated.task]
    named = {name: each.flags for name, each in ablations(setting.scale).items()}
    named.update({name: {} for name in references(setting.scale)})
    without = [NO_NOISE] if ablated.has_no_noise else []
    return [
        _dome_work(ablated.task, name, flags, epsilon, seed, setting)
        for epsilon in (compared.epsilons[0], *without)
        for name, flags in named.items()
        for seed in compared.seeds
    ]


# Whose sketches are looked at, with its flags beside those of DOME.
SEEN: Mapping[str, Mapping[str, Any]] = {
    "dome": {},
    NO_PROBES: {"probes": False},
    "dome_whole": {},
}
# How many seeds of the comparison are looked at.
SEEN_SEEDS = {"small": 1, "medium": 3, "paper": 1}


def energy_grid(setting: Setting) -> list[Work]:
    """Returns runs whose sketches are looked at, some of them in other grids too."""
    found = []
    for task, compared in COMPARISONS[setting.scale].items():
        for epsilon in (compared.epsilons[0], NO_NOISE):
            for name, flags in SEEN.items():
                base = name if name in compared.chosen else "dome"
                own = mechanism_flags(task, base, *compared.chosen[base])
                given = {**own, **flags}
                found += [
                    work(task, name, given, epsilon, seed, setting)
                    for seed in compared.seeds[: SEEN_SEEDS[setting.scale]]
                ]
    return found


SEEN_COLUMNS = {
    "aggregator_explained_energy": "share of energy seen",
    "aggregator_subspace_overlap": "overlap with the round before",
    "aggregator_retained_rank": "kept directions r",
}
# The first round has none before it.
_SKIPPED = {"aggregator_subspace_overlap": 1}
# By which the runs of one color are told apart, and the rounds that are marked.
_MARKERS = "os^"
_MARKED = 8
_SEEN_TITLES = {**TITLES, NO_PROBES: "DOME, no probes"}
_BELOW: Mapping[str, Any] = {"loc": "lower center", "ncol": 4}


def draw(rows: Rows, scale: str) -> Any:
    """Draws a line for each ablation; dotted where the first of them is.

    The references, which change more than one choice, are in the table alone.
    """
    titles = {name: each.title for name, each in ablations(scale).items()}
    base = next(iter(titles))
    rows = [row for row in rows if row["mechanism"] in titles] or rows
    measure = tasks.task_entry(rows[0]["task"]).measure
    picture, (axis,) = plotting.panels(1, 8.0, 1.4 + 0.27 * len(titles))
    label = "nothing changed"
    for epsilon in budgets(rows):
        plain = where(rows, mechanism=base, epsilon=epsilon)
        if plain:
            mean, _, _ = mean_and_range(plain, measure.final_column)
            color = plotting.STYLES["dome"][0]
            axis.axvline(mean, color=color, ls=":", lw=1.4, label=label)
            # Once in the legend.
            label = "_"
    title = f"{shared(rows, grid, scale)}; {seeds(rows)}"
    dots(axis, rows, titles, title, with_bits=False)
    picture.tight_layout()
    return picture


def _seen_look(name: str, epsilon: str) -> dict[str, Any]:
    """Returns how a curve looks: hollow and dashed without noise."""
    step = list(SEEN).index(name)
    color = plotting.shade("dome", step, len(SEEN), (-0.75, 0.4))
    is_hollow = math.isinf(float(epsilon))
    return {
        "color": color,
        "ls": "--" if is_hollow else "-",
        "marker": _MARKERS[step],
        "ms": 4,
        "mfc": "white" if is_hollow else color,
        # Not at the same rounds, where lines of one budget meet.
        "markevery": (step + is_hollow * _MARKED // 2, _MARKED),
    }


def draw_energy(rows: Rows, scale: str) -> Any:
    """Draws energy, overlap and rank over the rounds, a row of panels for a task."""
    import matplotlib.pyplot as plt

    del scale
    shown = distinct(rows, "task")
    picture, axes = plt.subplots(
        len(shown),
        len(SEEN_COLUMNS),
        figsize=(3.3 * len(SEEN_COLUMNS), 2.6 * len(shown) + 0.6),
        squeeze=False,
    )
    for line, task in zip(axes, shown):
        runs = where(rows, task=task)
        for axis, (column, words) in zip(line, SEEN_COLUMNS.items()):
            for name, epsilon in dict.fromkeys(
                (row["mechanism"], row["epsilon"]) for row in runs
            ):
                own = plotting.Line(
                    where(runs, mechanism=name, epsilon=epsilon),
                    f"{_SEEN_TITLES[name]}, {budget_label(epsilon)}",
                    _seen_look(name, epsilon),
                )
                plotting.curves(axis, own, column, skipped=_SKIPPED.get(column, 0))
            axis.set(xlabel="round")
            axis.set_title(f"{task}: {words}")
        share = int(dome_flags(task)["sketch_size"]) / tasks.task_entry(task).dimension
        line[0].axhline(share, color="k", ls=":", lw=1, label="random rows (k/d)")
        line[0].set_yscale("log")
        line[-1].set_yscale("log")
    picture.suptitle(seeds(rows))
    picture.tight_layout(rect=(0, 0.5 / picture.get_figheight(), 1, 1))
    picture.legend(*axes[0, 0].get_legend_handles_labels(), **_BELOW)
    return picture
