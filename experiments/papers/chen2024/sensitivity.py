# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""GM with Poisson sampling and MF once an epoch, over clips and server rates.

The paper says that with its matrix mechanism performance is "more sensitive to server
learning rates and L2 clip norms" than with DP-FedAvg (section 6 and the appendix). It
has no DP-FedAvg at the settings of Figs. 3, 7 and 8; here both mechanisms have them.

The rule was fixed before the runs of GM: at a setting MF is the more sensitive one if
it loses more than GM, each from its own best setting at that epsilon, and if the losses
of the seeds do not overlap. A seed's loss is taken from the mean of the best setting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dpfl import mechanisms, tasks
from dpfl.mechanisms import OncePerEpoch

from .. import medium, plotting
from ..result_rows import Rows, mean_and_range, seeds, where
from ..sweep import Setting, Work
from ..trainings import training_work

COHORT_SIZE = 100


class Tried(NamedTuple):
    """A setting.

    Attributes:
      clip_norm: The L2 bound of a client's update.
      server_lr: The server's rate.
      origin: Where it comes from, for a drawing.
    """

    clip_norm: float
    server_lr: float
    origin: str


_WIDE = Tried(1.0, 0.1, "paper's Fig. 7")
_NARROW = Tried(0.03, 0.5, "paper's Fig. 8")
# By epsilon. dpfl's come from trials: at 2 with GM alone, at 8 with several mechanisms,
# MF among them.
SETTINGS: Mapping[float, tuple[Tried, ...]] = {
    2.0: (Tried(0.3, 0.2, "dpfl's"), _WIDE, _NARROW),
    8.0: (Tried(0.3, 0.5, "dpfl's"), _WIDE, _NARROW, Tried(0.3, 1.0, "rate doubled")),
}
_MF = {
    "mechanism": mechanisms.MatrixFactorization.name,
    "participation": OncePerEpoch.name,
}
# By the name in drawings: the flags of a mechanism, without compression.
MECHANISMS: Mapping[str, Mapping[str, Any]] = {
    "GM": {"mechanism": mechanisms.Gaussian.name},
    "MF": _MF,
}
# MF by the accountant of SGMF, which asks for as much noise as SGMF has: where SGMF
# falls behind in sgmf_fig7, it tells what noise does from what compression does.
NOISIER = "MF by RDP"
_OF_NOISIER = {**_MF, "accountant": "rdp"}
_SETTING_OF_NOISIER = (2.0, _WIDE)


def _runs() -> Iterator[tuple[float, Tried, str, Mapping[str, Any]]]:
    """Yields epsilon, setting, name and flags of each row, whatever the seed."""
    for epsilon, settings in SETTINGS.items():
        for tried in settings:
            for name, flags in MECHANISMS.items():
                yield epsilon, tried, name, flags
            if (epsilon, tried) == _SETTING_OF_NOISIER:
                yield epsilon, tried, NOISIER, _OF_NOISIER


def grid(setting: Setting) -> list[Work]:
    """Returns the runs of both mechanisms at each setting."""
    works: list[Work] = []
    for epsilon, tried, name, flags in _runs():
        own = {"clip_norm": tried.clip_norm, "server_lr": tried.server_lr}
        shared = {**medium.FLAGS[medium.MNIST], "cohort_size": COHORT_SIZE, **flags}
        for seed in medium.SEEDS:
            labels = {
                "task": medium.MNIST,
                "mechanism": name,
                "epsilon": epsilon,
                **own,
                "seed": seed,
            }
            given = {**shared, "epsilon": epsilon, **own, "seed": seed}
            works.append(training_work(labels, given, setting))
    return works


# By name: that of the legend, a key of `plotting.STYLES`, whether the marker is hollow
# and how its number is aligned: "right" puts it to the left of its point.
_LOOKS = {
    **{
        name: (plotting.TITLES[name], name, False, alignment)
        for name, alignment in zip(MECHANISMS, ("right", "left"))
    },
    NOISIER: ("matrix factorization, noise of 10-fold SGMF", "MF", True, "left"),
}


def draw(rows: Rows, scale: str) -> Any:
    """Draws a panel for each budget: means with ranges, and the means as numbers."""
    del scale
    picture, axes = plotting.panels(len(SETTINGS), 5.0, 4.2)
    for axis, (epsilon, settings) in zip(axes, SETTINGS.items()):
        for name in _LOOKS:
            _points(axis, where(rows, mechanism=name, epsilon=epsilon), name, settings)
        axis.set_xticks(range(len(settings)), [_words(tried) for tried in settings])
        axis.set_xlim(-0.6, len(settings) - 0.4)
        axis.set_title(rf"$\varepsilon$={epsilon:g}")
        axis.set_ylabel(f"final {tasks.task_entry(medium.MNIST).measure.label}")
    picture.suptitle(f"{medium.MNIST}, {COHORT_SIZE} clients a round; {seeds(rows)}")
    picture.tight_layout(rect=(0, 0.08, 1, 1))
    named = axes[0].get_legend_handles_labels()
    picture.legend(*named, loc="lower center", ncol=len(_LOOKS))
    return picture


def _words(tried: Tried) -> str:
    return f"clip {tried.clip_norm:g},\nrate {tried.server_lr:g}\n({tried.origin})"


def _points(axis: Any, rows: Rows, name: str, settings: tuple[Tried, ...]) -> None:
    """Draws the points of a mechanism at the settings at which it was run."""
    title, style, is_hollow, alignment = _LOOKS[name]
    color, marker = plotting.STYLES[style]
    column = tasks.task_entry(medium.MNIST).measure.final_column
    points: list[plotting.Point] = []
    for place, tried in enumerate(settings):
        own = {"clip_norm": tried.clip_norm, "server_lr": tried.server_lr}
        if runs := where(rows, **own):
            found = mean_and_range(runs, column)
            shift = plotting.aside(list(_LOOKS).index(name), len(_LOOKS))
            points.append((place + shift, *found))
    if not points:
        return
    look = {"color": color, "ls": "", "marker": marker, "ms": 7}
    plotting.ranges(axis, points, title, **look, **({"mfc": "w"} if is_hollow else {}))
    for x, mean, _, _ in points:
        axis.annotate(
            f"{mean:.3f}",
            (x, mean),
            (6 if alignment == "left" else -6, 0),
            textcoords="offset points",
            ha=alignment,
            va="center",
            color=color,
            fontsize=9,
        )
