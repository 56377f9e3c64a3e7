# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Epsilon of a run and why, the noise for a budget, and mechanisms side by side.

  dpfl-privacy epsilon --mechanism=gaussian --noise_multiplier=1.2 --rounds=10
  dpfl-privacy calibrate --mechanism=l2_csgm --compression_rate=100 --epsilon=8
  dpfl-privacy compare --epsilon=8 --compression_rates=1,10,100 --plot=out.png
  dpfl-privacy bits --epsilon=8 --mechanisms=distributed_discrete_gaussian
  dpfl-privacy explain --mechanism=gaussian --noise_multiplier=1.2 --rounds=10
  dpfl-privacy explain RUN
  dpfl-privacy bands --epsilon=8 --population=3200 --rounds=512 --compression_rates=100

`epsilon` and `calibrate` also print what auditors ask for: epsilon at other deltas, mu,
rho and true positive rates (docs/privacy/README.md#what-auditors-ask-for).

`compare` sets every mechanism's noise so that all have the same epsilon, or
(--equal=error) the error that the Gaussian mechanism has at --epsilon. The error is the
expected squared L2 error of the mean of cohort_size updates of norm clip_norm, from the
mechanism and not from the choice of clients. `bits` shows the error against the bits
that are sent, at equal epsilon: of every number of bits a coordinate for mechanisms
that have one, and of every compression rate. Where cohorts vary both have helpers bring
the noise in integers, unless --noise_source says otherwise. --bits=auto and
--compression_rate=auto choose numbers, and say on stderr what was chosen. `bands` shows
the error of the iterates against the number of bands of a stream of noise over the
whole run, for clients that are dealt into as many groups, or with
--participation=once_per_epoch take part once in an epoch, or with balls_in_bins or
b_min_separation have rounds that are their secret.
`explain` shows why an epsilon is what it is, of the run of an output folder or of flags
as for epsilon or calibrate: the event, and of each route to an epsilon its value, why
it was taken or not, and the pages of docs/privacy that prove it.
DOME's error is left out, since it depends on the updates, and sparse_recovery's
is of the right order only. Bits are per client and round and count
all that is sent: a sparsified message is 32 bits for each kept value (their expected
number), 32 bits for their number and a seed of 128 bits. An epsilon above 50 is
remarked on, with the noise that brings it to 8, and so is one that with
--noise_multiplier a bit or two more of --bits would bring down by a tenth. No
TensorFlow is imported.

Columns of the tables:
  compression        how many times fewer values are sent
  noise multiplier   standard deviation of the noise over the clip; of a stream, over
                     what one round of a client moves
  error of mean      expected squared L2 error of the mean of the updates
  over Gaussian      error of mean, over the Gaussian mechanism's
  bits up, down      a client and round; bits a parameter: up, over the parameters
  accounting method  method that gave epsilon
  neighbours         whom epsilon protects: who may join and go, or send zeros
  q in a group       probability that a client joins a round of its group, or if free
  most rounds        that a client may be in
  error of iterates  root of the mean squared error of the noise in the models of a
                     run, a coordinate, in clips; of the last: the last model's
  over independent   error, over independent noise with Poisson sampling
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

from absl import flags

from dpfl import checks, mechanisms, planning
from dpfl.accounting import audit_figures, calibration
from dpfl.mechanisms import Mechanism, Participation, build, integer
from dpfl.planning import remarks
from dpfl.planning.budget import Setting
from dpfl.planning.ledger import RunCost

from . import (
    cli,
    comparison,
    mechanism_flags,
    privacy_curves,
    privacy_explained,
    tables,
)
from . import privacy_candidates as choice
from .privacy_explained import Explained

COLUMNS = tables.columns("costs")
_DRAWN = "noise_multiplier epsilon mean_squared_error uplink_bits downlink_bits"

_MECHANISM = flags.DEFINE_enum(
    "mechanism",
    "gaussian",
    choice.PRIVATE,
    "The mechanism, for epsilon and calibrate.",
)
flags.DEFINE_list(
    "mechanisms",
    None,
    "Mechanisms of compare; default: all whose flags are given.",
)
flags.DEFINE_list(
    "compression_rates", ["1", "10", "100", "1000"], "Compression rates of compare."
)
_EQUAL = flags.DEFINE_enum(
    "equal", "epsilon", ["epsilon", "error"], "Quantity that compare holds equal."
)
_EPSILON = flags.DEFINE_float("epsilon", None, "The privacy budget's epsilon.")
_DELTA = flags.DEFINE_float("delta", 1e-5, "The privacy budget's delta.")
_DIMENSION = flags.DEFINE_integer("dimension", 1018174, "Parameters of the model.")
_PARTICIPATION = flags.DEFINE_enum(
    "participation",
    "poisson",
    sorted(mechanisms.PARTICIPATIONS),
    "poisson: each client joins each round with probability cohort_size / population; "
    "fixed: a client may be in every round; without_replacement: the same, but cohorts "
    "are drawn uniformly and kept secret; once_per_epoch: clients are shuffled; "
    "random_allocation: each client draws a round of every epoch in secret; "
    "cyclic_poisson: --min_separation groups take turns, and each client joins in "
    "its group's turn with the probability that makes cohort_size expected; "
    "balls_in_bins: the same with as many groups as possible, and a client's group is "
    "secret; b_min_separation: each client joins at random, in secret, at least "
    "--min_separation rounds apart; k_of_t: each client draws cohort_size * rounds / "
    "population of the rounds in secret.",
)
_MIN_SEPARATION = flags.DEFINE_integer(
    "min_separation", None, build.MIN_SEPARATION_HELP
)
_POPULATION = flags.DEFINE_integer(
    "population", None, "Number of clients; by default cohort_size."
)
_ROUNDS = flags.DEFINE_integer("rounds", 1, "Number of rounds.")
_ACCOUNTING_METHOD = flags.DEFINE_enum(
    "accounting_method",
    "auto",
    calibration.ACCOUNTING_METHODS,
    calibration.ACCOUNTING_METHODS_HELP,
)
flags.DEFINE_list(
    "widths",
    [str(bits) for bits in range(4, 17)],
    "Numbers of bits a coordinate, for bits.",
)
flags.DEFINE_bool("progress", True, "Whether bits and bands show a bar on stderr.")
_JSON = flags.DEFINE_bool("json", False, "Print JSON; null stands for infinity.")
_OUTPUT = flags.DEFINE_string("output", None, "Write to this file, not to stdout.")
_PLOT = flags.DEFINE_string("plot", None, "Draw the results; a PNG file.")


def _check_noise_multiplier(name: str, value: Any) -> None:
    if value and not 1e-100 <= checks.nonnegative(name, value) <= 1e100:
        raise ValueError(checks.message(name, "0, or from 1e-100 to 1e100", value))


mechanism_flags.define(
    {"cohort_size": 100, "clip_norm": 1.0}, cli.help_module(__name__)
)
for _name in ("dimension", "population", "rounds", "min_separation", "cohort_size"):
    cli.check_flag(_name, checks.integer)
for _name in ("epsilon", "clip_norm"):
    cli.check_flag(_name, checks.positive)
cli.check_flag("delta", checks.delta)
cli.check_flag("noise_multiplier", _check_noise_multiplier)

_COMPARE_ONLY = ("plot", "equal", "mechanisms", "compression_rates", "widths")


def _cost(
    mechanism: Mechanism, participation: Participation, figures: bool = False
) -> comparison.MechanismCost:
    cost = comparison.cost(
        mechanism,
        participation,
        _DIMENSION.value,
        _DELTA.value,
        _ACCOUNTING_METHOD.value,
        figures,
    )
    _remark(remarks.epsilon_remark, mechanism, participation, cost)
    return cost


def _remark(
    sentence: Callable[..., str],
    mechanism: Mechanism,
    participation: Participation,
    cost: comparison.MechanismCost,
) -> None:
    """Prints on stderr the remark on an epsilon, if `sentence` returns one."""
    budget = (cost.delta, _ACCOUNTING_METHOD.value)
    setting = Setting(cost.dimension, participation, *budget)
    remark = sentence(cost.epsilon, mechanism, setting)
    if remark:
        print(f"{mechanism.name}: {remark}", file=sys.stderr)


def _calibrated(mechanism: Mechanism, participation: Participation) -> Mechanism:
    budget = (_EPSILON.value, _DELTA.value, _ACCOUNTING_METHOD.value)
    return planning.calibrate(mechanism, participation, _DIMENSION.value, *budget)


def _one_mechanism(values: Mapping[str, Any]) -> tuple[Mechanism, Participation]:
    name = _MECHANISM.value
    mechanism_flags.check_meaning(name, build.accepted_fields(name))
    mechanism = mechanism_flags.build(name, values)
    participation = choice.participation_of(mechanism.cohort_size)
    return choice.complete(mechanism, participation), participation


def _epsilon() -> list[comparison.MechanismCost]:
    """The subcommand epsilon: the cost of one mechanism."""
    cli.refuse("epsilon", "epsilon", *_COMPARE_ONLY)
    cli.require("epsilon", "noise_multiplier")
    mechanism, participation = _one_mechanism(mechanism_flags.given())
    cost = _cost(mechanism, participation, figures=True)
    _remark(remarks.bits_remark, mechanism, participation, cost)
    return [cost]


def _noiseless() -> dict[str, Any]:
    """The values of fields before the noise is found.

    Any placeholder would do, except that some do not fit the noise of a clip's count.
    """
    return {**mechanism_flags.given(), "noise_multiplier": 0.0}


def _calibrate() -> list[comparison.MechanismCost]:
    """The subcommand calibrate: the cost at the noise for a budget."""
    cli.refuse("calibrate", "noise_multiplier", *_COMPARE_ONLY)
    cli.require("calibrate", "epsilon")
    mechanism, participation = _one_mechanism(_noiseless())
    calibrated = _calibrated(mechanism, participation)
    return [_cost(calibrated, participation, figures=True)]


def _target_error(participation: Participation) -> float:
    """The error of the Gaussian mechanism at the budget."""
    gaussian = mechanisms.Gaussian(
        cohort_size=participation.cohort_size,
        clip_norm=flags.FLAGS.clip_norm,
        noise_multiplier=1.0,
    )
    return _calibrated(gaussian, participation).mean_squared_error(_DIMENSION.value)


def _compare() -> list[comparison.MechanismCost]:
    """The subcommand compare: the costs of several mechanisms."""
    cli.refuse("compare", "noise_multiplier", "widths")
    cli.refuse("compare, which has --mechanisms", "mechanism")
    cli.refuse("compare, which has --compression_rates", *build.RATE_FIELDS)
    by_error = _EQUAL.value == "error"
    cli.require("compare", "epsilon")
    participation, candidates = choice.of(_noiseless(), by_error)
    if by_error:
        target = _target_error(participation)
        costs = [_cost_at_error(m, participation, target) for m in candidates]
    else:
        costs = [
            _cost(_calibrated(m, participation), participation) for m in candidates
        ]
    if _PLOT.value is not None:
        from . import plotting
        from .panels import Plot

        plot = Plot("compression_rate", "mechanism", y=_DRAWN, log="xy")
        rows = [dataclasses.asdict(cost) for cost in costs]
        title = f"Mechanisms at equal {_EQUAL.value}"
        plotting.write(plot, rows, title, _PLOT.value)
    return costs


def _cost_at_error(
    mechanism: Mechanism, participation: Participation, target: float
) -> comparison.MechanismCost:
    at = (_DIMENSION.value, _DELTA.value, target, _ACCOUNTING_METHOD.value)
    cost = comparison.cost_at_error(mechanism, participation, *at)
    if cost.accounting_method != comparison.UNREACHABLE:
        _remark(remarks.epsilon_remark, mechanism, participation, cost)
    return cost


def _bits() -> list[comparison.MechanismCost]:
    """The subcommand bits: points of the curve of error against bits."""
    cli.refuse("bits", "noise_multiplier", "mechanism", "bits", "equal")
    cli.refuse("bits", *build.RATE_FIELDS)
    cli.require("bits", "epsilon")
    widths = privacy_curves.widths()
    participation, candidates = choice.of({**_noiseless(), "bits": integer.MOST_BITS})
    return privacy_curves.of_bits(candidates, participation, widths)


def _bands() -> list[privacy_curves.BandsRow]:
    """The subcommand bands: points of the curve of error against bands."""
    cli.refuse("bands", "noise_multiplier", "mechanism", "widths", "equal")
    cli.refuse("bands", "min_separation", *build.RATE_FIELDS)
    cli.require("bands", "epsilon")
    values = mechanism_flags.given()
    cli.refuse("bands", *(n for n in values if n not in privacy_curves.BANDS_FIELDS))
    return privacy_curves.of_bands(choice.rates(), values)


def _explain(run: Optional[str] = None) -> list[Explained]:
    """The way to the epsilon of a run, or of one mechanism: the subcommand explain."""
    if run is not None:
        own = flags.FLAGS.get_flags_for_module(cli.help_module(__name__))
        others = {flag.name for flag in own} - {"json", "output", "progress"}
        cli.refuse("explain RUN, whose folder has the settings", *sorted(others))
        return [privacy_explained.of_run(run)]
    cli.refuse("explain", *_COMPARE_ONLY)
    if _EPSILON.value is None:
        cli.require("explain without --epsilon or RUN", "noise_multiplier")
        mechanism, participation = _one_mechanism(mechanism_flags.given())
    else:
        cli.refuse("explain --epsilon", "noise_multiplier")
        mechanism, participation = _one_mechanism(_noiseless())
        mechanism = _calibrated(mechanism, participation)
    numbers = _DIMENSION.value, _DELTA.value
    cost = RunCost(
        mechanism, participation, *numbers, accounting_method=_ACCOUNTING_METHOD.value
    )
    return [privacy_explained.of_cost(cost, participation.rounds)]


# Function and table columns of each subcommand; explain prints lines.
SUBCOMMANDS: Mapping[str, tuple[Callable[..., Sequence[Any]], Mapping[str, str]]] = {
    "epsilon": (_epsilon, COLUMNS),
    "calibrate": (_calibrate, COLUMNS),
    "explain": (_explain, {}),
    "compare": (_compare, COLUMNS),
    "bits": (_bits, privacy_curves.BITS_COLUMNS),
    "bands": (_bands, privacy_curves.BANDS_COLUMNS),
}


def _figures_text(figures: Mapping[str, Any]) -> str:
    curve = (f"epsilon at {d:g}: {e:.5g}" for d, e in figures["epsilons"].items())
    facts = audit_figures.facts(figures).items()
    return "\n".join(
        [*curve, *(f"{name}: {tables.cell(value)}" for name, value in facts)]
    )


def main(argv: Sequence[str]) -> None:
    """Runs the subcommand named by the first positional argument."""
    find, columns = SUBCOMMANDS[cli.command(argv, SUBCOMMANDS, ["explain"])]
    cli.check_outputs({"output": (), "plot": (".png",)})
    results = find(*argv[2:])
    rows = [dataclasses.asdict(each) for each in results]
    if _JSON.value:
        parts = [tables.as_json(rows)]
    elif columns:
        figures = (row.get("audit_figures") for row in rows)
        parts = [tables.text(rows, columns), *map(_figures_text, filter(None, figures))]
    else:
        parts = [privacy_explained.text(each) for each in results]
    tables.write("".join(f"{part}\n" for part in parts), _OUTPUT.value)


if __name__ == "__main__":
    cli.run(main)
