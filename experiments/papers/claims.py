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
from collections.abc import Iterator
from typing import Any

from dpfl import files

from .. import flag_files, tables
from . import verdicts
from .verdicts import Claim, Exact, Family, Gate, Line, Untested

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


def _read(name: str) -> list[Any]:
    return [*map(_line, files.read_csv(flag_files.path(f"papers/{name}.csv")))]


def _of(kind: type) -> Iterator[Any]:
    return (one for one in _LINES if isinstance(one, kind))


_LINES = _read("claims")
CLAIMS: tuple[Claim, ...] = tuple(_of(Claim))
EXACT: tuple[Exact, ...] = tuple(_of(Exact))


# What docs/evidence/preregistration.md asks, as `configs/papers/asked.csv` has it.
# `dpfl-compare` makes femnist_2nn.csv by --csv and femnist_2nn_clients.csv by
# --by_client; femnist_2nn_rates.csv has the lines of the sweep.csv of all arms.
_ASKED = _read("asked")


def _family(name: str, mechanisms: str) -> Family:
    """A family with its gates.

    Args:
      name: The family's name.
      mechanisms: Mechanisms of the arms of claims and gates, separated by |.
    """
    own, [control, noise] = (
        tuple(one for one in _ASKED if one.paper == paper) for paper in (name, "gates")
    )
    ends = f"{control.table}_rates", {"mechanism": mechanisms}
    gates = (
        Gate(
            "1000-fold is not shown to cost a point",
            lambda folder: control.effect(folder).high,
            below=-0.01,
        ),
        Gate(
            "noise costs less than 1.5 points",
            lambda folder: noise.effect(folder).size,
            least=0.015,
        ),
        Gate(
            "an effect still changes",
            functools.partial(verdicts.late_change, own),
            below=0.005,
        ),
        Gate(
            "a best rate is an end of its grid",
            functools.partial(verdicts.best_at_end, *ends),
            below=1,
        ),
    )
    return Family(name, own, gates)


FAMILIES: tuple[Family, ...] = (
    _family("P1", "none|gaussian|l2_csgm"),
    _family("P2", "none|gaussian|l2_csgm|distributed_discrete_gaussian|sketched_ddg"),
)


def of_paper(paper: str) -> list[Line]:
    """The claims of a paper: effects by data sets, numbers, and untested ones."""
    return sorted((one for one in _LINES if one.paper == paper), key=_place)


def _place(one: Line) -> int:
    words = [*DATA_SETS]
    return words.index(one.place(words)) if isinstance(one, Claim) else len(words)
