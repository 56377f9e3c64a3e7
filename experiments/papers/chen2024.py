# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Chen et al. 2024: sparsified Gaussian mechanisms, L2-CSGM and SGMF.

    dpfl-reproduce --figure=csgm_fig1

Server momentum, rates and clips are those of the tasks' flag files, or of `medium`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Optional

import dp_accounting
import numpy as np

from dpfl import accounting, mechanisms

from ..tables import Row, Rows
from . import mean_estimation, medium, stream_errors
from .plotting import UNCOMPRESSED, Plot
from .sweep import EVALUATED, Cell, Figure, Work, axis, cross

_PAPER = "Chen et al. 2024"

# Dimension of Fig. 1, above any Delta_2^2 / Delta_inf^2 there, so that it does not
# bind.
EPSILON, DELTA, DIMENSION = 5.0, 1e-8, 2**34
KEEP_FRACTION, RATIO = 0.01, 1e-3


def _calibrated(make_event: Callable[[float], dp_accounting.DpEvent]) -> float:
    return accounting.calibrate_noise_multiplier(make_event, EPSILON, DELTA)


def gaussian_event(noise_multiplier: float) -> dp_accounting.DpEvent:
    """The event of one release of the Gaussian mechanism."""
    gaussian = mechanisms.Gaussian(1, 1.0, noise_multiplier)
    return gaussian.round_dp_event(dimension=1, sampling_probability=1.0)


def _noise(panel: str, linf_ratio: float, keep_fraction: float) -> Work:
    labels = {"panel": panel, "linf_ratio": linf_ratio, "keep_fraction": keep_fraction}

    def event(noise_multiplier: float) -> dp_accounting.DpEvent:
        return accounting.SparsifiedGaussianDpEvent(
            noise_multiplier=noise_multiplier,
            keep_fraction=keep_fraction,
            linf_ratio=linf_ratio,
            dimension=DIMENSION,
        )

    def compute(_: Path) -> Mapping[str, Any]:
        both = _calibrated(event), _calibrated(gaussian_event)
        return dict(zip(("noise_multiplier", "gaussian"), both))

    return Work(labels, {"epsilon": EPSILON, "delta": DELTA}, compute)


def _noises(scale: str) -> list[Work]:
    points = 13 if scale == "small" else 41
    places = [float(f"{place:.4g}") for place in np.geomspace(1e-4, 1, points)]
    left = [_noise("left", ratio, KEEP_FRACTION) for ratio in places]
    return left + [_noise("right", RATIO, gamma) for gamma in places]


def _places(rows: Rows) -> list[Row]:
    """Rows of both panels, each with its place along the axis."""
    columns = {
        "left": ("linf_ratio", "ratio of the clips"),
        "right": ("keep_fraction", "kept fraction"),
    }
    return [
        {**row, "place": row[column], "axis": words}
        for row in rows
        for column, words in [columns[row["panel"]]]
    ]


_RATES = {"small": (10, 100), "medium": (10, 100), "paper": (10, 50, 100, 500, 1000)}
# Fig. 6 has four budgets of the recurrent network: with five rates they would take more
# than a day of one card.
_FEWER_RATES = {**_RATES, "paper": (10, 100, 1000)}


def _compressed(whole: str, sparse: str, rates: tuple[int, ...]) -> list[Cell]:
    """Cells of a mechanism without compression, and of another at each rate."""
    return [({"compression_rate": 1}, {"mechanism": whole})] + cross(
        [({}, {"mechanism": sparse})], axis("compression_rate", rates)
    )


# Figs. 2, 4, 5 and 6: task, clients a round, budgets and number of seeds. At "small"
# the data sets that need no download, with cohorts in about the same proportion of each
# other. At "medium" Figs. 4 and 5 are cohorts of an eighth, a half and a sixteenth of
# the writers at one budget, and Fig. 2 is the same at another one.
_CSGM: Mapping[
    str, Mapping[str, tuple[tuple[str, int, tuple[float, ...], int], ...]]
] = {
    "csgm_fig2": {
        "small": (("digits", 50, (4.0, 8.0), 1), ("docs", 50, (8.0,), 1)),
        "medium": (("mnist", 100, (2.0,), 6),),
        "paper": (
            ("emnist", 1000, (5.0, 10.0), 1),
            ("stackoverflow", 1000, (5.0, 10.0), 1),
        ),
    },
    "csgm_fig4": {
        "small": (("digits", 50, (2.0, 4.0, 8.0), 1),),
        "paper": (("emnist", 1000, (1.0, 3.0, 5.0, 10.0), 1),),
    },
    "csgm_fig5": {
        "small": (("digits", 10, (4.0, 8.0, 16.0), 1),),
        "paper": (("emnist", 100, (1.0, 3.0, 5.0, 10.0), 1),),
    },
    "csgm_fig6": {
        "small": (("docs", 50, (4.0, 8.0), 1),),
        "medium": (("fashion", 100, (2.0, 4.0, 8.0, 16.0), 6),),
        "paper": (("stackoverflow", 1000, (1.0, 3.0, 5.0, 10.0), 1),),
    },
    "csgm_cohorts": {
        "medium": (
            *(("mnist", 50, (8.0,), 10), ("mnist", 100, (8.0,), 10)),
            ("mnist", 400, (8.0,), 6),
        ),
    },
}


def _csgm_problem(
    task: str, cohort: int, epsilon: float, scale: str
) -> Mapping[str, Any]:
    if scale != "medium":
        return {"flagfile": f"tasks/{task}.flags"}
    is_noisy = task == medium.MNIST and (cohort == 50 or epsilon == 2.0)
    return {**medium.FLAGS[task], **(medium.CAREFUL if is_noisy else {})}


def _csgm(name: str, scale: str) -> Iterator[Cell]:
    """The runs of GM and L2-CSGM at equal epsilon."""
    rates = _FEWER_RATES if name == "csgm_fig6" else _RATES
    for task, cohort, epsilons, seeds in _CSGM[name][scale]:
        for epsilon in epsilons:
            yield from cross(
                [({"task": task}, _csgm_problem(task, cohort, epsilon, scale))],
                axis("cohort_size", [cohort]),
                axis("epsilon", [epsilon]),
                _compressed("gaussian", "l2_csgm", rates[scale]),
                axis("seed", range(1, seeds + 1)),
            )


# Figs. 3, 7 and 8: flags of a problem, its budgets, and clip and rate. Docs has two
# epochs, since Debian's Python comes without some modules and has 281 clients; MNIST
# has six epochs of eight rounds, F-EMNIST the paper's 16 epochs of 32 rounds.
_DIGITS = {"task": "digits", "rounds": 40, "delta": 1e-3, "eval_every": 5}
_DOCS = {"task": "docs", "rounds": 48, "delta": 1e-3, "eval_every": 8}
_SGMF_PROBLEMS: Mapping[str, Mapping[str, Any]] = {
    "digits": {**_DIGITS, "cohort_size": 10},
    "docs": {**_DOCS, "cohort_size": 10, "rounds_per_epoch": 24},
    "mnist": {**medium.FLAGS[medium.MNIST], "cohort_size": 100},
    "emnist": {
        **{"flagfile": "tasks/emnist.flags", "cohort_size": 100, "rounds": 512},
        **{"rounds_per_epoch": 32, "delta": 1e-5, "eval_every": 8},
    },
}
_WIDE = {"clip_norm": 1.0, "server_lr": 0.1}
_NARROW = {"clip_norm": 0.03, "server_lr": 0.5}
_BOTH = (2.0, 8.0)
_PUBLISHED = (1.0, 3.0, 5.0, 10.0)
_SGMF: Mapping[str, Mapping[str, tuple[tuple[str, tuple[float, ...], Any], ...]]] = {
    "sgmf_own": {
        "small": (("digits", (8.0, 16.0), {}), ("docs", (8.0,), {})),
        "medium": (("mnist", (8.0,), {}),),
    },
    "sgmf_fig3": {
        "small": (("digits", (8.0,), _WIDE),),
        "medium": (("mnist", (8.0,), _WIDE),),
        "paper": (("emnist", (10.0,), _WIDE),),
    },
    "sgmf_fig7": {
        "small": (("digits", (8.0, 16.0), _WIDE),),
        "medium": (("mnist", _BOTH, _WIDE),),
        "paper": (("emnist", _PUBLISHED, _WIDE),),
    },
    "sgmf_fig8": {
        "small": (("digits", (8.0, 16.0), _NARROW),),
        "medium": (("mnist", _BOTH, _NARROW),),
        "paper": (("emnist", _PUBLISHED, _NARROW),),
    },
}
_SGMF_SEEDS = {"small": (1, 2), "paper": (1,)}
_SGMF_RATES = {"small": (10, 100), "medium": (10, 100), "paper": (5, 10, 50, 100)}


def _sgmf(name: str, scale: str) -> Iterator[Cell]:
    """The runs of uncompressed MF and SGMF at equal epsilon."""
    for problem, epsilons, own in _SGMF[name][scale]:
        cells = cross(
            [({"problem": problem}, {**_SGMF_PROBLEMS[problem], **own})],
            [({}, {"participation": "once_per_epoch"})],
            axis("epsilon", epsilons),
            _compressed("matrix_factorization", "sgmf", _SGMF_RATES[scale]),
        )
        yield from medium.seeded(name, cells, _SGMF_SEEDS.get(scale))


# The paper says that with its matrix mechanism performance is "more sensitive to server
# learning rates and L2 clip norms" than with DP-FedAvg (section 6). It has no DP-FedAvg
# at the settings of Figs. 3, 7 and 8; here both have them, beside dpfl's own. MF by RDP
# has the noise of SGMF, which tells what noise does from what compression does.
_GM = {"mechanism": "gaussian"}
_MF = {"mechanism": "matrix_factorization", "participation": "once_per_epoch"}
_SENSITIVITY: tuple[tuple[float, float, float, tuple[str, ...]], ...] = (
    (2.0, 0.3, 0.2, ("GM", "MF")),
    (2.0, 1.0, 0.1, ("GM", "MF", "MF by RDP")),
    (2.0, 0.03, 0.5, ("GM", "MF")),
    (8.0, 0.3, 0.5, ("GM", "MF")),
    (8.0, 1.0, 0.1, ("GM", "MF")),
    (8.0, 0.03, 0.5, ("GM", "MF")),
    (8.0, 0.3, 1.0, ("GM", "MF")),
)
_COMPARED = {"GM": _GM, "MF": _MF, "MF by RDP": {**_MF, "accounting_method": "rdp"}}


def _sensitivity(scale: str) -> Iterator[Cell]:
    for epsilon, clip, rate, names in _SENSITIVITY:
        problem = {**medium.FLAGS[medium.MNIST], "cohort_size": 100}
        yield from cross(
            [({"task": medium.MNIST}, problem)],
            [({"mechanism": name}, _COMPARED[name]) for name in names],
            axis("epsilon", [epsilon]),
            axis("clip_norm", [clip]),
            axis("server_lr", [rate]),
            axis("seed", medium.SEEDS),
        )


def _setting(rows: Rows) -> list[Row]:
    return [
        {**row, "setting": f"clip {row['clip_norm']}, rate {row['server_lr']}"}
        for row in rows
    ]


# Number of clients, dimension and repeats. A power of two, so that nothing is padded.
MEAN_SIZES = {"small": (100, 2**14, 20), "paper": (1000, 2**20, 10)}
_MEAN_RATES = (1, 3, 10, 30, 100, 300, 1000)


def _means(scale: str) -> Iterator[Work]:
    """Measurements of GM, and of both sparsified mechanisms at every rate."""
    n, dimension, repeats = MEAN_SIZES[scale]
    for name in ("gaussian", "l2_csgm", "linf_csgm"):
        for rate in (1,) if name == "gaussian" else _MEAN_RATES:
            make: Any = mechanisms.MECHANISMS[name]
            keep = {} if name == "gaussian" else {"keep_fraction": 1 / rate}
            yield mean_estimation.work(
                {"mechanism": name, "compression_rate": rate},
                make(cohort_size=n, clip_norm=1.0, noise_multiplier=1.0, **keep),
                dimension=dimension,
                repeats=repeats,
                epsilon=4.0,
                theory=lambda noised: noised.mean_squared_error(dimension),
            )


_CSGM_PLOT = Plot("round", "compression_rate", "task cohort_size epsilon")
_SGMF_PLOT = Plot("round", "compression_rate", "problem epsilon")


def _view(
    name: str, words: str, cells: Any, plot: Plot, sweep: Optional[str] = None
) -> Figure:
    """A figure of the paper, at the scales of its grid."""
    cells = functools.partial(cells, name)
    scales = tuple({**_CSGM, **_SGMF}[name])
    return Figure(name, f"{_PAPER}, {words}", cells, plot, sweep, scales, EVALUATED)


_SWEEP = (_csgm, _CSGM_PLOT, "csgm_sweep")
_STREAMS = (_sgmf, _SGMF_PLOT)
_WIDE_STREAMS = (_sgmf, _SGMF_PLOT, "sgmf_wide")
FIGURES = [
    Figure(
        "csgm_fig1",
        f"The noise of L2-CSGM comes down to GM's: {_PAPER}, Fig. 1, exact",
        _noises,
        Plot(
            *("place", "", "panel", "noise_multiplier"),
            beside="gaussian",
            log="xy",
            rows=_places,
            place="axis",
            titles={
                "left": "over the ratio of the clips; dashes: Gaussian",
                "right": "over the kept fraction; dashes: Gaussian",
            },
        ),
    ),
    _view("csgm_fig2", "Fig. 2: accuracy of GM and L2-CSGM on both tasks", *_SWEEP),
    _view("csgm_fig4", "Fig. 4: F-EMNIST with large cohorts", *_SWEEP),
    _view("csgm_fig5", "Fig. 5: F-EMNIST with small cohorts", *_SWEEP),
    _view("csgm_fig6", "Fig. 6: Stack Overflow over budgets", *_SWEEP),
    Figure(
        "csgm_cohorts",
        f"A large network bears hundred-fold compression: {_PAPER}, Figs. 2, 4 and 5",
        functools.partial(_csgm, "csgm_cohorts"),
        Plot(
            *("cohort_size", "compression_rate", "task epsilon"),
            titles=UNCOMPRESSED,
            baseline="1",
        ),
        scales=("medium",),
    ),
    Figure(
        "mean_estimation",
        "Squared error of the mean against compression: GM, L2-CSGM, L-inf-CSGM",
        _means,
        Plot(
            *("compression_rate", "mechanism", "", "squared_error"),
            error="standard_error",
            beside="theory",
            log="xy",
        ),
    ),
    _view("sgmf_fig3", "Fig. 3: accuracy of MF and SGMF", *_WIDE_STREAMS),
    _view(
        "sgmf_fig7",
        "Fig. 7: MF and SGMF, clip 1.0 and server rate 0.1",
        *_WIDE_STREAMS,
    ),
    _view("sgmf_fig8", "Fig. 8: MF and SGMF, clip 0.03 and server rate 0.5", *_STREAMS),
    Figure(
        "sgmf_own",
        "Accuracy of MF and SGMF with the clip and the rate of dpfl's tasks",
        functools.partial(_sgmf, "sgmf_own"),
        *(_SGMF_PLOT, None, ("small", "medium"), EVALUATED),
    ),
    Figure(
        "sgmf_sensitivity",
        "Accuracy of GM and MF over clips and server rates",
        _sensitivity,
        Plot("setting", "mechanism", "epsilon", rows=_setting),
        scales=("medium",),
    ),
    Figure(
        "sgmf_streams",
        "With cyclic sampling one stream has the least noise or ties (exact)",
        stream_errors.grid,
        stream_errors.PLOT,
        words=("encoder",),
    ),
]
