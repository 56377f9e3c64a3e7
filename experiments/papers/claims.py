# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The papers' claims, as `configs/papers/claims.csv` has them.

    print(verdict_tables.lines(claims.of_paper("chen2022"), Path("docs/results")))

A line is a `verdicts.Claim` if it asks something, a `verdicts.Exact` if it has a table,
and else untested. Labels are NAME=VALUE with semicolons, and an effect is subtracted
that has labels in `less`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from dpfl import files

from .. import flag_files, tables
from . import verdicts
from .verdicts import AHEAD, FREE, Claim, Exact, Family, Gate, Line, Untested

# Heads of data sets by words of settings, in the order of pages.
DATA_SETS = {
    "MNIST, large network": "MNIST, large network",
    "MNIST, small network": "MNIST, small network",
    "Fashion-MNIST": "Fashion-MNIST",
    "MNIST": "MNIST, both networks",
}


def _labels(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in filter(None, text.split("; ")))


def _line(row: tables.Row) -> Line:
    own: dict[str, Any] = {n: row[n] for n in ("paper", "claim", "where", "setting")}
    if not row["table"]:
        return Untested(**own)
    own |= {name: row[name] for name in ("table", "column") if row[name]}
    own |= {"ours": _labels(row["ours"]), "other": _labels(row["other"])}
    if row["asks"]:
        own |= {"asks": row["asks"], "over": tuple(row["over"].split())}
        own |= {"chosen": _labels(row["chosen"]), "times": int(row["times"] or 1)}
        if row["less"]:
            own["less"] = _labels(row["less"]), _labels(row["less_other"])
        return Claim(**own)
    if not row["other"] and not row["by"]:
        own["other"] = None
    own |= {n: float(row[n]) for n in ("most", "least") if row[n]}
    return Exact(**own, by=row["by"], ends=tuple(row["ends"].split()))


def _of(kind: type) -> Iterator[Any]:
    return (one for one in _LINES if isinstance(one, kind))


_LINES = [*map(_line, files.read_csv(flag_files.path("papers/claims.csv")))]
CLAIMS: tuple[Claim, ...] = tuple(_of(Claim))
EXACT: tuple[Exact, ...] = tuple(_of(Exact))


# What docs/evidence/preregistration.md asks. `dpfl-compare` makes femnist_2nn.csv by
# --csv and femnist_2nn_clients.csv by --by_client; femnist_2nn_rates.csv has the lines
# of the sweep.csv of all arms.
_ASKED, _ARM = "femnist_2nn", ("mechanism", "compression_rate", "bits")


def _arm(mechanism: str, rate: str = "", bits: str = "") -> dict[str, str]:
    """The labels of an arm."""
    return dict(zip(_ARM, (mechanism, rate and f"{rate}.0", bits)))


def _asked(
    claim: str, ours: Mapping[str, str], other: Mapping[str, str], asks: str = FREE
) -> Claim:
    """A claim that was asked beforehand.

    Args:
      claim: The claim in words.
      ours: Labels of an arm.
      other: Labels of the arm that it is compared with.
      asks: As for `Claim`.
    """
    return Claim("femnist", claim, "", "", asks, _ASKED, ours, other)


_TRUSTED = _arm("gaussian")
_SECURE = _arm("distributed_discrete_gaussian", bits="16")
_CONTROL = _asked("1000-fold", _arm("l2_csgm", "1000"), _TRUSTED)
_NOISE = _asked("no noise", _arm("none"), _TRUSTED, AHEAD)


def _family(name: str, mechanisms: str, *own: Claim) -> Family:
    """A family with its gates.

    Args:
      name: The family's name.
      mechanisms: Mechanisms of the arms of claims and gates, separated by |.
      *own: The claims.
    """
    arms = {"mechanism": mechanisms}
    gates = (
        Gate(
            "1000-fold is not shown to cost a point",
            lambda folder: _CONTROL.effect(folder).high,
            below=-0.01,
        ),
        Gate(
            "noise costs less than 1.5 points",
            lambda folder: _NOISE.effect(folder).size,
            least=0.015,
        ),
        Gate(
            "an effect still changes",
            functools.partial(verdicts.late_change, own),
            below=0.005,
        ),
        Gate(
            "a best rate is an end of its grid",
            functools.partial(verdicts.best_at_end, f"{_ASKED}_rates", arms),
            below=1,
        ),
    )
    return Family(name, own, gates)


FAMILIES: tuple[Family, ...] = (
    _family(
        *("P1", "none|gaussian|l2_csgm"),
        *(
            _asked(f"L2-CSGM at {rate}-fold is free", _arm("l2_csgm", rate), _TRUSTED)
            for rate in ("10", "100", "300")
        ),
    ),
    _family(
        *("P2", "none|gaussian|l2_csgm|distributed_discrete_gaussian|sketched_ddg"),
        *(
            _asked(
                f"a {rate}-fold sketch of {bits} bits is free",
                _arm("sketched_ddg", rate, bits),
                _SECURE,
            )
            for rate, bits in (("50", "16"), ("100", "10"))
        ),
    ),
)


def of_paper(paper: str) -> list[Line]:
    """The claims of a paper: effects by data sets, numbers, and untested ones."""
    return sorted((one for one in _LINES if one.paper == paper), key=_place)


def _place(one: Line) -> int:
    words = [*DATA_SETS]
    return words.index(one.place(words)) if isinstance(one, Claim) else len(words)
