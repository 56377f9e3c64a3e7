# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mean estimation under secure aggregation: dense vectors, and sparse ones."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from dpfl import mechanisms

from .. import mean_estimation, plotting, secure_sums
from ..result_rows import Row, Rows, numbers, where
from ..sweep import Setting, Work

EPSILON = 1.0
RATES = (1, 3, 10, 30, 100)
# Where hashes, which are slow, and other vectors are tried.
FEW_RATES = (10, 100)
# Clients, dimension and repeats.
SIZES = {"small": (100, 2**14, 50), "paper": (1000, 2**20, 10)}
# Enough bits, and few. A coordinate of the sum needs more with more clients.
BITS = {"small": (16, 12), "paper": (18, 15)}
# Distributions of the vectors, and the expected product of two of them.
PRODUCTS = {"similar": 0.5, "independent": 0.0}


def _vectors(kind: str) -> Any:
    from .. import measured_means as measuring

    return {
        "similar": measuring.similar_vectors,
        "independent": measuring.independent_vectors,
    }[kind]


def _work(
    series: str, config: mechanisms.Mechanism, rate: int, vectors: str, scale: str
) -> Work:
    _, dimension, repeats = SIZES[scale]
    return mean_estimation.work(
        {"series": series, "compression_rate": rate, "vectors": vectors},
        config,
        dimension=dimension,
        repeats=repeats,
        epsilon=EPSILON,
        make_vectors=lambda: _vectors(vectors),
        theory=lambda noised: secure_sums.expected_error(
            noised, dimension, PRODUCTS[vectors]
        ),
        bits=getattr(config, "bits", 0),
    )


def grid(setting: Setting) -> list[Work]:
    """Returns sketches of both kinds, and no sketch, over rates and bits."""
    scale = setting.scale
    n = SIZES[scale][0]
    many, few = BITS[scale]
    ddg = functools.partial(mechanisms.DistributedDiscreteGaussian, n, 1.0, 1.0)
    sketched = functools.partial(mechanisms.SketchedDdg, n, 1.0, 1.0)
    whole = {
        "Gaussian": mechanisms.Gaussian(n, 1.0, 1.0),
        f"DDG, {many} bits": ddg(many),
        f"DDG, {few} bits": ddg(few),
    }
    shifts, hashes = f"shifts, {many} bits", f"hashes, {many} bits"
    swept = {
        shifts: lambda r: sketched(many, compression_rate=r),
        f"shifts, {few} bits": lambda r: sketched(few, compression_rate=r),
        "project and perturb": lambda r: mechanisms.ProjectAndPerturb(n, 1.0, 1.0, r),
        hashes: lambda r: sketched(many, compression_rate=r, sketch="hashes"),
    }
    curves: list[tuple[str, str, tuple[int, ...]]]
    curves = [(name, "similar", RATES) for name in swept if name != hashes]
    curves += [(hashes, "similar", FEW_RATES), (shifts, "independent", FEW_RATES)]
    return [
        *(_work(name, config, 1, "similar", scale) for name, config in whole.items()),
        *(
            _work(name, swept[name](float(rate)), rate, vectors, scale)
            for name, vectors, rates in curves
            for rate in rates
        ),
    ]


SPARSE_EPSILON = 8.0
SPARSE_BITS = 16
# Clients, dimension, repeats and numbers of coordinates that are not zero.
SPARSE_SIZES: dict[str, tuple[int, int, int, tuple[int, ...]]] = {
    "small": (200, 2**12, 20, (1, 2, 5, 10, 20)),
    "paper": (1000, 2**14, 20, (1, 3, 10, 30, 100)),
}
SPARSE_NAMES = {
    mechanisms.DistributedDiscreteGaussian.name: "DDG without sketch",
    mechanisms.SketchedDdg.name: "count-mean sketch, same bits",
    mechanisms.SparseRecovery.name: "sparse recovery (LASSO)",
}


def sparse_config(
    name: str, n: int, dimension: int, sparsity: int
) -> mechanisms.Mechanism:
    """Returns a mechanism for a mean of that sparsity.

    Sketches have the length of the LASSO's; that of a count-mean sketch is rounded up
    to a multiple of its rows.
    """
    recovery = mechanisms.SparseRecovery(n, 1.0, 1.0, SPARSE_BITS, sparsity=sparsity)
    if name == mechanisms.SparseRecovery.name:
        return recovery
    if name == mechanisms.DistributedDiscreteGaussian.name:
        return mechanisms.DistributedDiscreteGaussian(n, 1.0, 1.0, SPARSE_BITS)
    rate = dimension / recovery.vector_dimension(dimension)
    return mechanisms.SketchedDdg(n, 1.0, 1.0, SPARSE_BITS, compression_rate=rate)


def _sparse_vectors(sparsity: int) -> Any:
    from .. import measured_means as measuring

    return measuring.sparse_vectors(sparsity)


def sparse_grid(setting: Setting) -> list[Work]:
    """Returns the LASSO, a sketch of its length and no sketch, over sparsities."""
    n, dimension, repeats, sparsities = SPARSE_SIZES[setting.scale]
    return [
        mean_estimation.work(
            {"mechanism": name, "sparsity": sparsity},
            sparse_config(name, n, dimension, sparsity),
            dimension=dimension,
            repeats=repeats,
            epsilon=SPARSE_EPSILON,
            make_vectors=lambda s=sparsity: _sparse_vectors(s),  # type: ignore[misc]
            bits=SPARSE_BITS,
        )
        for name in SPARSE_NAMES
        for sparsity in sparsities
    ]


# Mechanism of a series by its first word, with how often it comes before.
_MECHANISMS = {
    "Gaussian": "gaussian",
    "DDG": "ddg",
    "shifts": "sketched_ddg",
    "hashes": "sketched_ddg",
    "project": "project_and_perturb",
}


def _colors(names: Sequence[str]) -> dict[str, str]:
    """Returns a color for each series: shades for those of one mechanism."""
    kinds = {name: _MECHANISMS[name.split(",")[0].split()[0]] for name in names}
    found = {}
    for name, kind in kinds.items():
        akin = [other for other in names if kinds[other] == kind]
        found[name] = plotting.STYLES[kind][0]
        if len(akin) > 1:
            found[name] = plotting.shade(kind, akin.index(name), len(akin))
    return found


def _series(row: Row) -> str:
    own = "" if row["vectors"] == "similar" else ", independent vectors"
    return row["series"] + own


def _title(name: str) -> str:
    """Returns what the legend calls a series: shifts and hashes are sketches."""
    is_sketch = _MECHANISMS[name.split(",")[0].split()[0]] == "sketched_ddg"
    return f"sketch by {name}" if is_sketch else name


def _marker(name: str, count: int) -> dict[str, Any]:
    """Returns how points of a series look: hollow if there is one, else by its kind."""
    if count == 1:
        return {"fmt": "s", "ms": 6, "mfc": "none"}
    if name.endswith("independent vectors"):
        return {"fmt": "v", "ms": 6}
    return {"fmt": "^", "ms": 6} if name.startswith("hashes") else {"fmt": "o", "ms": 4}


def draw(rows: Rows, scale: str) -> Any:
    """Draws dense vectors: the error over the rate, and over the bits."""
    n, dimension, repeats = SIZES[scale]
    picture, axes = plotting.panels(2, 4.4, 4.2, sharey=True, layout="constrained")
    for name, color in _colors(list(dict.fromkeys(map(_series, rows)))).items():
        chosen = [row for row in rows if _series(row) == name]
        for axis, column in zip(axes, ("compression_rate", "bits_per_parameter")):
            x = numbers(chosen, column)
            # Two rates far apart make no curve.
            style: dict[str, Any]
            style = {"ls": "--"} if len(x) > 2 else {"ls": "", "marker": "_", "ms": 14}
            axis.plot(x, numbers(chosen, "theory"), color=color, lw=1, **style)
            plotting.measured(
                axis,
                x,
                chosen,
                color=color,
                label=_title(name),
                **_marker(name, len(x)),
            )
    axes[0].set(xlabel="compression rate r = d/m", ylabel="squared error of the mean")
    axes[1].set(xlabel="bits per parameter and client")
    for axis in axes:
        axis.set(xscale="log")
        plotting.plain_numbers(axis)
    picture.legend(
        *axes[1].get_legend_handles_labels(),
        loc="outside lower center",
        ncol=3,
    )
    picture.suptitle(
        rf"$\varepsilon={EPSILON:g}$, $\delta=10^{{-5}}$, n={n}, d={dimension}; "
        f"dashes: theory, points: {plotting.measured_label(repeats)}",
    )
    return picture


def draw_sparse(rows: Rows, scale: str) -> Any:
    """Draws sparse vectors: the error and the bits over the sparsity."""
    n, dimension, repeats, _ = SPARSE_SIZES[scale]
    picture, axes = plotting.panels(2, 4.4, 3.6)
    for name, title in SPARSE_NAMES.items():
        chosen = where(rows, mechanism=name)
        x = numbers(chosen, "sparsity")
        # Of the bits, two of the lines are one.
        is_dashed = name == mechanisms.SparseRecovery.name
        common = plotting.look(name, 1 if is_dashed else 0)
        plotting.measured(axes[0], x, chosen, label=title, **common)
        axes[1].plot(x, numbers(chosen, "bits_per_parameter"), **common)
    axes[0].axhline(1, color="k", ls=":", lw=1, label="squared norm of an update")
    axes[0].set(ylabel="squared error of the mean")
    axes[1].set(ylabel="bits per parameter and client")
    for axis in axes:
        axis.set(xscale="log", yscale="log", xlabel="coordinates that are not zero")
        plotting.plain_numbers(axis)
    axes[0].legend(fontsize=8, loc="lower right", bbox_to_anchor=(1, 0.16))
    picture.suptitle(
        rf"$\varepsilon={SPARSE_EPSILON:g}$, $\delta=10^{{-5}}$, n={n}, "
        f"d={dimension}, {SPARSE_BITS} bits; {plotting.measured_label(repeats)}",
    )
    picture.tight_layout()
    return picture
