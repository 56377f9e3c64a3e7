# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The subcommands bits and bands of dpfl-privacy, which has the flags.

    widths = privacy_curves.widths()
    costs = privacy_curves.of_bits(candidates, participation, widths)

`of_bands` computes the other curve; both read the flags of the command line.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import dp_accounting
from absl import flags

from dpfl import checks, mechanisms
from dpfl import factorization as mf
from dpfl.mechanisms import Mechanism, Participation, build, integer
from dpfl.mechanisms.matrix_fields import SCHEDULES

from . import bands_curve, cli, comparison, tables

BITS_COLUMNS = tables.columns("bits")
BANDS_COLUMNS = tables.columns("bands")
# The mechanism whose release is a round, by that of the stream.
RELEASES = {
    mechanisms.MatrixFactorization.name: mechanisms.Gaussian.name,
    mechanisms.Sgmf.name: mechanisms.L2Csgm.name,
}
# Fields that `bands` uses; those of the matrix define A and C of a stream.
BANDS_FIELDS = {
    *("cohort_size", "clip_norm"),
    *("matrix_method", "matrix_momentum", "matrix_schedule"),
}.union(*map(build.accepted_fields, RELEASES.values())) - {
    *("adaptive_clipping", "noise_multiplier", *build.ADAPTIVE_FIELDS)
}


def widths() -> list[int]:
    """The numbers of bits given by --widths."""
    counts = cli.integers("widths", "whole numbers with commas between them")
    for width in counts:
        checks.integer("--widths", width, 1, integer.MOST_BITS)
    return counts


def of_bits(
    candidates: Sequence[Mechanism],
    participation: Participation,
    bits: Sequence[int],
) -> list[comparison.MechanismCost]:
    """Computes the points of the curve, and draws them if --plot is given.

    Each mechanism is shown with every number of bits; stderr reports combinations that
    cannot run.

    Args:
      candidates: The mechanisms.
      participation: The participation of clients.
      bits: The numbers of bits.
    """
    options: Any = flags.FLAGS
    wanted = [
        each for candidate in candidates for each in comparison.widened(candidate, bits)
    ]
    budget = (options.epsilon, options.delta, options.accounting_method)
    with cli.bar(wanted) as shown:
        results = list(
            comparison.points(shown, participation, options.dimension, *budget)
        )
    points: list[comparison.MechanismCost] = []
    for mechanism, point, refused in results:
        if point is None:
            print(f"not shown: {mechanism.name}: {refused}", file=sys.stderr)
        else:
            points.append(point)
    if options.plot is not None:
        _draw_bits([dataclasses.asdict(each) for each in points], options.plot)
    return points


def _draw_bits(rows: Sequence[Mapping[str, Any]], path: str) -> None:
    """Draws the error against bits; a point's number of bits stands beside it."""
    from . import plotting
    from .panels import Plot

    shown = []
    for row in rows:
        # Mechanisms without a number of bits have one point a rate: a curve of rates.
        has_rate = row["bits"] is not None and row["rate"] is not None
        own = {"line": f"{row['mechanism']}{_rate(row['rate']) if has_rate else ''}"}
        own["width"] = "" if row["bits"] is None else str(row["bits"])
        shown.append({**row, **own})
    plot = Plot(
        *("bits_per_parameter", "line", "", "error_over_gaussian"),
        log="xy",
        note="width",
    )
    plotting.write(plot, shown, "Squared error over the Gaussian mechanism's", path)


def _rate(rate: float) -> str:
    return f", r={rate:g}"


@dataclasses.dataclass(frozen=True)
class BandsRow(bands_curve.StreamPoint):
    """A point of the curve of one mechanism at one compression rate."""

    mechanism: str
    compression_rate: float
    # The error relative to independent noise without compression, with Poisson
    # sampling; None without sampling.
    over_independent: Optional[float]
    # Whether it is the least point of its curve.
    least: bool


def of_bands(rates: Sequence[float], values: Mapping[str, Any]) -> list[BandsRow]:
    """Computes the points of all curves, and draws them if --plot is given.

    Rates are those of the sparsified mechanism, and not among the values of fields. The
    number of bands of least error is reported on stderr.
    """
    options: Any = flags.FLAGS
    participation = _participation(options.participation)
    reference: Optional[float] = None
    if participation == mechanisms.CyclicPoisson.name:
        plain = _run(mechanisms.Gaussian.name, values, participation)
        reference = bands_curve.point(plain, 1).root_mean_error
    names = _names(options.mechanisms)
    if participation in bands_curve.HIDDEN:
        names = _of_whole_sums(names, options.mechanisms, rates, participation)
    # Without compression the sparsified mechanism equals the other one.
    own = [rate for rate in rates if rate != 1 or len(names) == 1]
    runs = {
        (name, rate): _run(
            RELEASES[name], {**values, "compression_rate": rate}, participation
        )
        for name in names
        for rate in (own if name == mechanisms.Sgmf.name else [1.0])
    }
    wanted = [
        (curve, bands)
        for curve, run in runs.items()
        for bands in bands_curve.usual_bands(run)
    ]
    points: dict[tuple[str, float], list[bands_curve.StreamPoint]] = {}
    guess = 1.0
    with cli.bar(wanted) as each:
        for curve, bands in each:
            result = bands_curve.point(runs[curve], bands, guess=guess)
            points.setdefault(curve, []).append(result)
            guess = result.noise_multiplier
    rows: list[BandsRow] = []
    for (name, rate), those in points.items():
        rows += _rows(those, name, rate, reference)
    if options.plot is not None:
        from . import plotting
        from .panels import Plot

        shown = [
            {
                **dataclasses.asdict(row),
                "line": f"{row.mechanism}{_rate(row.compression_rate)}",
                "least": "least" if row.least else "",
            }
            for row in rows
        ]
        plot = Plot(
            *("separation", "line", "", "root_mean_error"), log="xy", note="least"
        )
        title = "Noise of the iterates over bands of C, in clips"
        plotting.write(plot, shown, title, options.plot)
    return rows


def _rows(
    points: Sequence[bands_curve.StreamPoint],
    name: str,
    rate: float,
    reference: Optional[float],
) -> list[BandsRow]:
    """The rows of one curve; stderr reports the least."""
    best = bands_curve.best(points)
    said = f"{name} at {rate:g}-fold compression: bands {best.bands} are best"
    if reference is not None:
        said += (
            f", with {best.root_mean_error / reference:.3f} times the error of "
            "independent noise with Poisson sampling, uncompressed"
        )
    print(said, file=sys.stderr)
    return [
        BandsRow(
            **dataclasses.asdict(one),
            mechanism=name,
            compression_rate=rate,
            over_independent=reference and one.root_mean_error / reference,
            least=one is best,
        )
        for one in points
    ]


def _names(given: Optional[Sequence[str]]) -> Sequence[str]:
    if given is None:
        return list(RELEASES)
    for name in given or [""]:
        checks.choice("--mechanisms", name, RELEASES)
    return given


def _of_whole_sums(
    names: Sequence[str], asked: Any, rates: Sequence[float], participation: str
) -> list[str]:
    """Mechanisms to which accounting of hidden turns applies, if none was named."""
    whole = [mechanisms.MatrixFactorization.name]
    if asked is not None and names != whole:
        raise ValueError(
            f"--mechanisms must be {whole[0]} for {participation}, which excludes "
            f"compression, found {','.join(names)}"
        )
    if set(rates) != {1.0}:
        raise ValueError(
            f"--compression_rates must be 1 for {participation}, found "
            f"{','.join(f'{rate:g}' for rate in rates)}"
        )
    return whole


def _participation(name: str) -> str:
    """The participation of a stream's clients, by the flag."""
    if name == mechanisms.PoissonSampling.name:
        # With one band, cyclic groups are one group.
        return mechanisms.CyclicPoisson.name
    if name not in bands_curve.PARTICIPATIONS:
        known = ", ".join(bands_curve.PARTICIPATIONS)
        raise ValueError(
            f"--participation must be one of {known} for bands, found {name}"
        )
    return name


def _run(
    name: str, values: Mapping[str, Any], participation: str
) -> bands_curve.StreamRun:
    """The run of streams in which a round's release is a mechanism's."""
    options: Any = flags.FLAGS
    mechanism: Any = build.build(name, {**values, "noise_multiplier": 1.0})
    schedule = values.get("matrix_schedule", "constant")
    checks.choice("matrix_schedule", schedule, SCHEDULES)
    workload = mf.Workload(
        options.rounds, values.get("matrix_momentum", 0.0), SCHEDULES[schedule]()
    )

    def release(noise_multiplier: float) -> dp_accounting.DpEvent:
        noised = mechanism.with_noise_multiplier(noise_multiplier)
        return noised.round_dp_event(options.dimension, 1.0)

    with checks.renaming({"encoder": "matrix_method"}):
        return bands_curve.StreamRun(
            workload=workload,
            population=options.population or mechanism.cohort_size,
            cohort_size=mechanism.cohort_size,
            epsilon=options.epsilon,
            delta=options.delta,
            release=release,
            participation=participation,
            encoder=values.get("matrix_method", bands_curve.ENCODERS[0]),
            accounting_method=options.accounting_method,
        )
