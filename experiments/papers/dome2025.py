# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""DOME (Nicolas et al. 2025): dpfl's own experiments, since the paper has none.

    dpfl-reproduce --figure=dome_compare --scale=small

They compare DOME with others at equal rounds, epsilon and bits up, ablate its choices
one at a time, and measure what its sketch captures round by round.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from dpfl import mechanisms, tasks
from dpfl.mechanisms.integer import ROTATED_DIMENSION
from dpfl.mechanisms.mechanism import COUNT_BITS, FLOAT_BITS, SEED_BITS

from .. import flag_files
from . import medium
from .plotting import Plot
from .sweep import SCALES, Cell, Curves, Figure, cross

_SOURCE = "DOME (Nicolas et al. 2025)"

# Flags of the flag files that are DOME's; the others belong to the problem.
DOME_FLAGS = (
    *("mechanism", "sketch_size", "clip_norm", "server_lr", "server_momentum"),
    *("measures_energy", "measure"),
)
# Bits of a number of the count sketch. With 8 it is twice as long, but on so coarse a
# grid that epsilon takes a fifth more noise; with 12 it is about as good as with 16. If
# updates are larger relative to the noise, 8 are as good, and leave room for twice as
# many numbers.
SKETCH_BITS, FEW_BITS = 16, 8
SKETCH_ROWS = 16
SKETCHED = {
    **{"sketched_ddg": SKETCH_BITS, "sketched_ddg_few_bits": FEW_BITS},
    "sketched_ddg_adam": FEW_BITS,
}
NO_NOISE = math.inf

_WHOLE: Mapping[str, Any] = {"mean_removal": False}
_FEW_BITS_EACH: Mapping[str, Any] = {
    **{"mechanism": mechanisms.DomeDdg.name, "bits": FEW_BITS},
    **_WHOLE,
}
_PUBLISHED = {"sketch_rule": "qr", "sketch_decay": 1.0, "sketch_target": "gradient"}
# Flags of each variant beside the flags of DOME.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "dome": {},
    # As many directions may be kept as the sketch has.
    "dome_published": _PUBLISHED,
    "dome_whole": _WHOLE,
    "dome_ddg": _FEW_BITS_EACH,
    "dome_ddg_rank1": {**_FEW_BITS_EACH, "max_rank": 1},
    "dome_sgd": {**_WHOLE, "direction": "gradient", "server_momentum": 0.9},
}


def _file(task: str) -> str:
    return f"dome2025/{tasks.task_entry(task).flag_file}"


def dome_flags(task: str) -> dict[str, str]:
    """DOME's own flags in a task's flag file."""
    given = flag_files.values(_file(task))
    return {name: given[name] for name in DOME_FLAGS}


def _message_bits(task: str) -> int:
    """The bits of DOME's k numbers, which all compressing mechanisms are given."""
    return FLOAT_BITS * int(dome_flags(task)["sketch_size"])


def mechanism_flags(
    task: str, mechanism: str, clip: float, rate: float, dimension: int = 0
) -> dict[str, Any]:
    """The flags of one mechanism of the comparison.

    Args:
      task: Name of the task.
      mechanism: A key of `TITLES`.
      clip: The clip norm.
      rate: The server's learning rate.
      dimension: d of the model; 0 for the task's own.
    """
    tuned = {"clip_norm": clip, "server_lr": rate}
    if mechanism in VARIANTS:
        flags = {**dome_flags(task), **VARIANTS[mechanism], **tuned}
        if mechanism == "dome_published":
            flags["max_rank"] = flags["sketch_size"]
        if "bits" in flags:
            flags["sketch_size"] = _message_bits(task) // int(flags["bits"])
        return flags
    sgd = {**tuned, "server_momentum": 0.9}
    dimension = dimension or tasks.task_entry(task).dimension
    if mechanism == "l2_csgm":
        rotated = ROTATED_DIMENSION["hadamard"](dimension)
        # Beside its values a message has their number, and a seed.
        values = _message_bits(task) - COUNT_BITS - SEED_BITS
        kept = values / (FLOAT_BITS * rotated)
        return {**sgd, "mechanism": "l2_csgm", "keep_fraction": kept}
    if mechanism in SKETCHED:
        bits = SKETCHED[mechanism]
        adam = {"server_optimizer": "adam"} if mechanism.endswith("_adam") else {}
        return {
            **{**sgd, **adam, "mechanism": mechanisms.SketchedDdg.name, "bits": bits},
            "sketch_length": SKETCH_ROWS,
            "compression_rate": dimension / (_message_bits(task) // bits),
        }
    optimizer = mechanism[len("gaussian_") :]
    return {**sgd, "mechanism": "gaussian", "server_optimizer": optimizer}


TITLES = {
    "dome": "DOME",
    "dome_published": "DOME, the paper's sketch",
    "dome_whole": "DOME, no mean removal",
    "dome_ddg": "DOME, no mean removal, 8-bit numbers",
    "dome_ddg_rank1": "DOME, no mean removal, 8-bit numbers, one kept direction",
    "dome_sgd": "DOME, no mean removal, SGD",
    "sketched_ddg": "sketched DDG, SGD",
    "sketched_ddg_few_bits": "sketched DDG, 8-bit numbers, SGD",
    "sketched_ddg_adam": "sketched DDG, 8-bit numbers, Adam",
    "l2_csgm": "L2-CSGM, SGD",
    "gaussian_sgd": "Gaussian, SGD",
    "gaussian_adam": "Gaussian, Adam",
    "gaussian_adam_uncorrected": "Gaussian, Adam uncorrected",
    "gaussian_adam_debiased": "Gaussian, Adam debiased",
}


class Comparison(NamedTuple):
    """The mechanisms compared on a task; `NO_NOISE` shows compression alone."""

    task: str
    epsilons: tuple[float, ...]
    seeds: tuple[int, ...]

    @property
    def chosen(self) -> dict[str, tuple[float, float]]:
        """The clip and the server's rate of each mechanism."""
        place = _TASKS.index(self.task)
        both = {
            n: (clips[place], rates[place]) for n, (clips, rates) in _CHOSEN.items()
        }
        return {name: (clip, rate) for name, (clip, rate) in both.items() if rate}

    def flags(self, name: str) -> dict[str, Any]:
        """The flags of a mechanism with the chosen clip and rate."""
        return mechanism_flags(self.task, name, *self.chosen[name])


COMPARISONS: Mapping[str, tuple[Comparison, ...]] = {
    "small": (
        Comparison("digits", (8.0, 16.0, NO_NOISE), (1, 2)),
        Comparison("docs", (8.0, NO_NOISE), (1, 2)),
    ),
    "medium": (Comparison("mnist", (8.0, NO_NOISE), medium.SEEDS),),
    "paper": (
        Comparison("emnist", (10.0, NO_NOISE), (1, 2, 3)),
        Comparison("stackoverflow", (10.0, NO_NOISE), (1, 2, 3)),
    ),
}
# Clips and the server's rates by mechanism and task, 0 for a mechanism that is not
# compared. Values of mnist are those of the figure equal_bits, or follow from them. The
# last two tasks are not tuned: clips of the sketches are the task's times sqrt(k/d),
# server rates the task's, times d/k where a sketch is not scaled up (or the largest
# allowed one), and usual ones for Adam.
_TASKS = ("digits", "docs", "mnist", "emnist", "stackoverflow")
_CLIPS = (0.1, 0.3, 0.3, 0.1, 0.1)
_SKETCHED_CLIPS = (0.012, 0.04, 0.0016, 0.0008)
_OF_FEW_BITS = (0, 0, 0.08, 0, 0)
_CHOSEN: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "dome": ((0.1, *_SKETCHED_CLIPS), (0.01, 0.003, 0.01, 0.003, 0.003)),
    "dome_published": ((0.1, *_SKETCHED_CLIPS), (0.01, 0, 0.01, 0.003, 0.003)),
    "dome_whole": ((0.02, *_SKETCHED_CLIPS), (0.03, 0.03, 0.03, 0.003, 0.003)),
    "dome_ddg": (_OF_FEW_BITS, (0, 0, 0.03, 0, 0)),
    "dome_ddg_rank1": (_OF_FEW_BITS, (0, 0, 0.03, 0, 0)),
    "dome_sgd": ((0.0125, *_SKETCHED_CLIPS), (31.0, 300.0, 20.0, 4000.0, 10_000.0)),
    "sketched_ddg": (_CLIPS, (0.5, 0.2, 0.3, 1.0, 1.78)),
    "sketched_ddg_few_bits": (_CLIPS, (0, 0, 0.5, 0, 0)),
    "sketched_ddg_adam": (_CLIPS, (0, 0, 0.03, 0, 0)),
    "l2_csgm": (_CLIPS, (0.2, 0.03, 0.3, 1.0, 1.78)),
    "gaussian_sgd": (_CLIPS, (0.5, 0.2, 1.0, 1.0, 1.78)),
    "gaussian_adam": (_CLIPS, (0.03, 0.03, 0.03, 0.01, 0.01)),
    "gaussian_adam_uncorrected": (_CLIPS, (0.01, 0, 0.01, 0.003, 0.003)),
    "gaussian_adam_debiased": (_CLIPS, (0.03, 0.03, 0.03, 0.01, 0.01)),
}
# Budget and seed at which clips and rates were tried, and the values tried.
TUNED_AT = (8.0, 11)
TRIED: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]] = {
    "digits": {
        "dome": ((0.02, 0.1), (0.003, 0.01, 0.03)),
        "dome_published": ((0.1,), (0.003, 0.01, 0.03)),
        "dome_whole": ((0.02, 0.1), (0.01, 0.03, 0.1)),
        "dome_sgd": ((0.0125,), (12.0, 31.0, 62.0)),
        "sketched_ddg": ((0.1,), (0.2, 0.5, 1.0)),
        "l2_csgm": ((0.1,), (0.1, 0.2, 0.5)),
        "gaussian_sgd": ((0.1,), (0.2, 0.5, 1.0)),
        "gaussian_adam": ((0.1,), (0.01, 0.03, 0.1)),
        "gaussian_adam_uncorrected": ((0.1,), (0.003, 0.01, 0.03)),
        "gaussian_adam_debiased": ((0.1,), (0.01, 0.03, 0.1)),
    },
    "docs": {
        "dome": ((0.012,), (0.001, 0.003, 0.01, 0.03)),
        "dome_whole": ((0.012,), (0.01, 0.03, 0.1)),
        "dome_sgd": ((0.012,), (100.0, 300.0, 1000.0)),
        "sketched_ddg": ((0.3,), (0.1, 0.2, 0.5)),
        "l2_csgm": ((0.3,), (0.003, 0.01, 0.03, 0.1)),
        "gaussian_sgd": ((0.3,), (0.2, 0.5, 1.0)),
        "gaussian_adam": ((0.3,), (0.01, 0.03, 0.1)),
        "gaussian_adam_debiased": ((0.3,), (0.01, 0.03, 0.1)),
    },
}


def _cells(
    task: str,
    name: str,
    flags: Mapping[str, Any],
    epsilon: float,
    seeds: Optional[Sequence[int]] = None,
) -> list[Cell]:
    """The runs of one mechanism at a budget, or without noise.

    The default seeds are those of the comparison at the medium scale.
    """
    labels = {"task": task, "mechanism": name, "epsilon": epsilon}
    is_plain = epsilon == NO_NOISE
    budget = {"noise_multiplier": 0.0} if is_plain else {"epsilon": epsilon}
    problem = flag_files.values(_file(task), *DOME_FLAGS, "epsilon")
    cells = [(labels, {**problem, **flags, **budget})]
    return medium.seeded("dome_compare", cells, seeds)


def _compared(scale: str) -> Iterator[Cell]:
    """The runs of the comparison, with the chosen clips and rates."""
    for compared in COMPARISONS[scale]:
        for epsilon, name in itertools.product(compared.epsilons, compared.chosen):
            # Without noise there is nothing to debias.
            if epsilon != NO_NOISE or name != "gaussian_adam_debiased":
                flags = compared.flags(name)
                seeds = None if scale == "medium" else compared.seeds
                yield from _cells(compared.task, name, flags, epsilon, seeds)


def _tuning(_: str) -> Iterator[Cell]:
    """The runs of every clip and rate that was tried, on the small tasks only."""
    epsilon, seed = TUNED_AT
    for task, tried in TRIED.items():
        for name, (clips, rates) in tried.items():
            for clip, rate in itertools.product(clips, rates):
                flags = mechanism_flags(task, name, clip, rate)
                cells = _cells(task, name, flags, epsilon, [seed])
                yield from cross(cells, [({"clip_norm": clip, "server_lr": rate}, {})])


# Trainable parameters of the network with the ten classes of MNIST.
CNN_DIMENSION = 1_011_466
# Clip and server's rate of each mechanism, the best of a few trials
# (docs/results/medium_validation.csv). DOME's clips are that of the others times the
# share sqrt(k/d) of an update's norm that k random directions see.
CNN_CHOSEN: Mapping[str, tuple[float, float]] = {
    "dome": (0.0048, 0.003),
    "dome_ddg_rank1": (0.0095, 0.01),
    "sketched_ddg_few_bits": (0.3, 0.2),
    "sketched_ddg_adam": (0.3, 0.01),
    "gaussian_sgd": (0.3, 0.2),
    "gaussian_adam": (0.3, 0.01),
}
# Half the writers of the other figures, since the work of DOME's clients comes on top
# of their training; an epoch has 16 rounds.
_CNN: Mapping[str, Any] = {"model": "cnn", "cohort_size": 50, "eval_every": 6}


def _cnn(_: str) -> Iterator[Cell]:
    """The runs of mechanisms with the papers' network at one budget."""
    for name, choice in CNN_CHOSEN.items():
        flags = mechanism_flags(medium.MNIST, name, *choice, CNN_DIMENSION)
        yield from _cells(medium.MNIST, name, {**flags, **_CNN}, 8.0, medium.SEEDS)


class Ablated(NamedTuple):
    """The ablations of a scale; `sizes` are other values of k.

    Each ablation changes one choice of `base`, a variant of DOME. `references` are
    mechanisms of the comparison, shown beside the ablations.
    """

    task: str
    sizes: tuple[int, ...]
    base: str = "dome"
    budgets: tuple[float, ...] = (8.0, NO_NOISE)
    references: tuple[str, ...] = ()


# At the medium scale mean removal, the worst of DOME's choices, is off throughout, and
# DOME as published and sketched DDG, which is to be beaten, stand beside it.
ABLATED = {
    "small": Ablated("digits", (16, 64, 1024)),
    "medium": Ablated(
        *("mnist", (64, 1024), "dome_whole", (8.0,)),
        ("dome_ddg", "dome_ddg_rank1", "dome_sgd", "dome", *SKETCHED),
    ),
    "paper": Ablated("emnist", (16, 64, 1024), budgets=(10.0, NO_NOISE)),
}
# Titles and flags of the changes.
Changes = Mapping[str, tuple[str, Mapping[str, Any]]]
_NO_PROBES = {"probes": False}
_NO_MEAN, _ONE_DIRECTION = "no mean removal", "at most one direction kept (r)"
_CHANGES: Changes = {
    "no_probes": ("no random probes", _NO_PROBES),
    **{
        f"q{part:g}": (
            f"directions with {100 * part:g}% of the energy kept (q)",
            {"energy_fraction": part},
        )
        for part in (0.9, 0.99999)
    },
    "max_rank1": (_ONE_DIRECTION, {"max_rank": 1}),
    "beta0.5": (r"first moment decays by a half ($\beta_1$=0.5)", {"beta_1": 0.5}),
    "beta0": (r"no first moment ($\beta_1$=0)", {"beta_1": 0.0}),
    "biased": ("noise left in the second moment", {"debiasing": False}),
    "qr": ("sketch updated as published (QR)", {"sketch_rule": "qr"}),
    "no_decay": ("sketch forgets nothing", {"sketch_decay": 1.0}),
    "gradient": (
        *("sketch learns from the whole gradient", {"sketch_target": "gradient"}),
    ),
}
# Changes if there is mean removal, and if there is none.
_OF_BASE: Mapping[str, Changes] = {
    "dome": {
        "no_mean": (_NO_MEAN, _WHOLE),
        "no_mean_max_rank1": (
            *(f"{_NO_MEAN}, {_ONE_DIRECTION}", {**_WHOLE, "max_rank": 1}),
        ),
    },
    "dome_whole": {
        f"floor{least:g}": (
            *(f"second moment at least {least:g}", {"second_moment_floor": least}),
        )
        for least in (4.5e-10, 4.5e-8)
    },
}


def ablations(scale: str) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Titles and flags by the name in a row; the base comes first."""
    ablated = ABLATED[scale]
    given, base = dome_flags(ablated.task), ablated.base
    size, clip = int(given["sketch_size"]), float(given["clip_norm"])
    variants: dict[str, tuple[str, Mapping[str, Any]]] = {}
    variants[base] = (f"nothing changed, k={size}", {})
    for other in ablated.sizes:
        # A sketch of k random rows sees k/d of a squared norm.
        own = float(f"{clip * math.sqrt(other / size):.4g}")
        flags: Mapping[str, Any] = {"sketch_size": other, "clip_norm": own}
        variants[f"{base}_k{other}"] = (f"a sketch of {other} numbers (k)", flags)
    rank = {"max_rank": (f"up to {size} directions kept (r)", {"max_rank": size})}
    for change, shown in {**_CHANGES, **rank, **_OF_BASE[base]}.items():
        variants[f"{base}_{change}"] = shown
    return variants


def _ablated(scale: str) -> Iterator[Cell]:
    """The runs of every ablation at one budget and, at most scales, without noise."""
    ablated = ABLATED[scale]
    [compared] = [c for c in COMPARISONS[scale] if c.task == ablated.task]
    changed = {n: (ablated.base, own) for n, (_, own) in ablations(scale).items()}
    named = {**changed, **{name: (name, {}) for name in ablated.references}}
    for epsilon, name in itertools.product(ablated.budgets, named):
        base, own = named[name]
        flags = {**compared.flags(base), **own}
        yield from _cells(compared.task, name, flags, epsilon, compared.seeds)


# Variants whose sketches are examined, and the number of seeds.
SEEN = {"dome": {}, "dome_no_probes": _NO_PROBES, "dome_whole": {}}
SEEN_SEEDS = {"small": 1, "medium": 3, "paper": 1}
SEEN_COLUMNS = tuple(
    f"aggregator_{each}"
    for each in ("explained_energy", "subspace_overlap", "retained_rank")
)


def _seen(scale: str) -> Iterator[Cell]:
    """The runs whose sketches are examined, some of which are in other grids too."""
    for compared in COMPARISONS[scale]:
        seeds = compared.seeds[: SEEN_SEEDS[scale]]
        budgets = (compared.epsilons[0], NO_NOISE)
        for epsilon, (name, own) in itertools.product(budgets, SEEN.items()):
            base = name if name in compared.chosen else "dome"
            flags = {**compared.flags(base), **own}
            yield from _cells(compared.task, name, flags, epsilon, seeds)


_CHOICES = {
    name: title for scale in ABLATED for name, (title, _) in ablations(scale).items()
}
_DOTS = ("mechanism", "epsilon", "task")

FIGURES = [
    Figure(
        "dome_compare",
        f"{_SOURCE}: against others at equal epsilon and equal bits up; ours",
        _compared,
        Plot(*_DOTS, titles=TITLES),
        *("dome_sweep", SCALES),
    ),
    Figure(
        "dome_cnn",
        f"{_SOURCE}: the same with the papers' network; ours",
        _cnn,
        Plot(*_DOTS, titles=TITLES),
        scales=("medium",),
    ),
    Figure(
        "dome_ablations",
        f"{_SOURCE}: one choice at a time; ours",
        _ablated,
        Plot(*_DOTS, titles={**_CHOICES, **TITLES}),
        *("dome_sweep", SCALES),
    ),
    Figure(
        "dome_energy",
        f"{_SOURCE}: what the sketch sees, round by round; ours",
        _seen,
        Plot(
            *("round", "mechanism epsilon", "task", " ".join(SEEN_COLUMNS)),
            titles={**TITLES, "dome_no_probes": "DOME, no probes"},
        ),
        *("dome_sweep", SCALES, Curves(SEEN_COLUMNS)),
    ),
    Figure(
        "dome_tuning",
        f"{_SOURCE}: server rates tried before the comparison; ours",
        _tuning,
        Plot("server_lr", "mechanism clip_norm", "task", log="x", titles=TITLES),
        scales=("small",),
    ),
]
