# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The subcommand explain of dpfl-privacy: the way from settings to an epsilon.

    explained = privacy_explained.of_run("runs/a")
    print(privacy_explained.text(explained))

`of_cost` explains settings that no run has yet.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import attr
import dp_accounting
from dp_accounting import dp_event

from dpfl import accounting, checks, files
from dpfl.accounting import events, routes, trees
from dpfl.mechanisms import Mechanism, Participation, build
from dpfl.planning import ledger

from . import run_folders, tables

# Epsilons of one event differ by less between machines.
_ROUNDING = 1e-9
_HEADS = tables.columns("routes")
ROUTE_PAGES: Mapping[str, tuple[str, ...]] = {
    row["route"]: tuple(row["pages"].split())
    for row in files.read_csv(Path(__file__).with_name("route_pages.csv"))
}
"""Pages of docs/privacy with the theorems of each route, beside those of the event."""


@dataclasses.dataclass(frozen=True)
class Explained:
    """An epsilon and all that it follows from.

    Attributes:
      run: Output folder of the run; None for a mechanism from flags.
      mechanism: Its name and its fields.
      participation: Its name and its fields, with the rounds that were done.
      dimension: Parameters of the model.
      page: Page of docs/privacy on why the event is that of the mechanism.
      event: Lines of the event's tree, see `_outline`.
      asked_method: Value of --accounting_method, by which a route may be taken.
      accounting_method: Name of the route that was taken.
      routes: Fields of the `accounting.routes.Candidate` of each route, and the pages
        of docs/privacy with the theorems that it uses.
    """

    run: Optional[str]
    mechanism: Mapping[str, Any]
    participation: Mapping[str, Any]
    dimension: int
    page: str
    event: Sequence[str]
    asked_method: str
    epsilon: float
    delta: float
    accounting_method: str
    order: Optional[float]
    relation: Optional[str]
    routes: Sequence[Mapping[str, Any]]


def of_cost(cost: ledger.RunCost, rounds: int, run: Optional[str] = None) -> Explained:
    """The epsilon of the first rounds of a run.

    Args:
      cost: The run's mechanism, participation, dimension, delta and accounting method.
      rounds: How many of its rounds count, at least 1.
      run: Its output folder, if it has one.
    """
    event = cost.event_after(rounds, ledger.Again())
    report = accounting.epsilon(
        event, cost.delta, accounting_method=cost.accounting_method, every_route=True
    )
    return Explained(
        run,
        _named(cost.mechanism),
        _named(cost.participation.first(rounds)),
        cost.dimension,
        cost.mechanism.privacy_page,
        _outline(trees.normalised(event)),
        cost.accounting_method,
        report.epsilon,
        report.delta,
        report.accounting_method,
        report.order,
        report.relation,
        [
            {**attr.asdict(candidate), "pages": pages_of(candidate, report.event)}
            for candidate in report.candidates
        ],
    )


def pages_of(candidate: routes.Candidate, event: dp_event.DpEvent) -> tuple[str, ...]:
    """Pages of a route; those of the event are left out where it is refused."""
    every = list(ROUTE_PAGES[candidate.route])
    if candidate.epsilon is not None:
        is_dominated = candidate.route.startswith("stopped-")
        every += pages(event, dominating=is_dominated)
    # A page is named once, by its first section.
    files = [page.partition("#")[0] for page in every]
    return tuple(p for i, p in enumerate(every) if files[i] not in files[:i])


def pages(event: dp_event.DpEvent, *, dominating: bool = False) -> Iterator[str]:
    """Yields pages of docs/privacy with the theorems of a tree's releases.

    Args:
      event: The tree, normalised.
      dominating: Whether Gaussians stand for releases that one can stand for.
    """
    for release, _ in trees.releases(event):
        resolved = trees.resolve_sampling(release)
        stands = getattr(resolved, "dominating_pages", ())
        if dominating and stands:
            yield from stands
        elif isinstance(resolved, dp_accounting.PoissonSampledDpEvent):
            yield "gaussian.md#poisson-sampled-gaussians"
        elif isinstance(resolved, dp_accounting.GaussianDpEvent):
            yield "gaussian.md"
        else:
            yield from getattr(resolved, "pages", ())
            if getattr(resolved, "sampling_probability", 1.0) < 1:
                yield from getattr(resolved, "sampling_pages", ())
        for name in ("round_event", "update", "count"):
            part = getattr(resolved, name, None)
            if isinstance(part, dp_event.DpEvent):
                yield from pages(part, dominating=dominating)


def _outline(event: dp_event.DpEvent) -> list[str]:
    """Lines of a tree of events, one an event, indented below what holds it."""
    inner: list[dp_event.DpEvent] = []
    if isinstance(event, events.RunDpEvent):
        names = " or ".join(
            events.NAMES[relation] for relation in event.neighboring_relations
        )
        line, inner = f"private for {names}:", [event.event]
    elif isinstance(event, dp_accounting.ComposedDpEvent):
        line, inner = "composed:", list(event.events)
    elif isinstance(event, dp_accounting.SelfComposedDpEvent):
        line, inner = f"{event.count} times:", [event.event]
    elif isinstance(event, dp_accounting.PoissonSampledDpEvent):
        q = event.sampling_probability
        line, inner = f"with each client joining with probability {q!r}:", [event.event]
    else:
        line = _on_one_line(event)
    return [line, *(f"  {below}" for part in inner for below in _outline(part))]


def _on_one_line(value: Any) -> str:
    """The repr of an event, in which a matrix is its shape."""
    if not isinstance(value, dp_event.DpEvent) or not attr.has(type(value)):
        shape = getattr(value, "shape", None)
        return f"<array of shape {shape}>" if shape else repr(value)
    fields = (
        f"{field.name}={_on_one_line(getattr(value, field.name))}"
        for field in attr.fields(type(value))
    )
    return f"{type(value).__name__}({', '.join(fields)})"


def _named(part: Any) -> dict[str, Any]:
    return {"name": part.name, **dataclasses.asdict(part)}


def of_run(folder: str) -> Explained:
    """The epsilon in the summary.json of a run.

    Raises:
      ValueError: If the folder is not that of a run that is done, no round of it was,
        or its settings do not give the epsilon that it has.
    """
    [run] = run_folders.read([folder])
    if not run.summary["rounds"]:
        raise ValueError(f"no round of RUN {folder} has completed yet")
    try:
        cost = _cost_of(run.summary)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"the summary.json of RUN must have a mechanism and its settings, found "
            f"{folder} ({error})"
        ) from error
    explained = of_cost(cost, run.summary["rounds"], folder)
    saved = run.summary["epsilon"]
    if explained.epsilon != saved and not math.isclose(
        explained.epsilon, saved, rel_tol=_ROUNDING
    ):
        raise ValueError(
            f"the summary.json of RUN {folder} has the epsilon {saved!r}, but its "
            f"settings have {float(explained.epsilon)!r}; another version of dpfl may "
            "have written it"
        )
    return explained


def _cost_of(summary: Mapping[str, Any]) -> ledger.RunCost:
    """The cost of the run of a summary.json, its exact keys beside the others."""
    settings = summary["settings"]
    config = build.config_class(summary["mechanism"])
    mechanism: Mechanism = config(**summary["mechanism_options"])
    participation: Participation = build.participation(
        settings["participation"],
        summary["population"],
        settings["cohort_size"],
        # A stream that starts afresh in each epoch has no number of rounds.
        settings["rounds"] or summary["rounds"],
        rounds_per_epoch=settings["rounds_per_epoch"],
        min_separation=settings["min_separation"],
    )
    numbers = checks.dimension("dimension", summary["dimension"]), summary["delta"]
    accounting_method = settings["accounting_method"]
    return ledger.RunCost(
        mechanism, participation, *numbers, accounting_method=accounting_method
    )


def text(explained: Explained) -> str:
    """Lines for readers: epsilon, mechanism, event and the table of routes."""

    def words(part: Mapping[str, Any]) -> str:
        fields = (f"{k}={v}" for k, v in part.items() if v is not None and k != "name")
        return f"{part['name']}: {', '.join(fields)}"

    order = "" if explained.order is None else f", order {explained.order:g}"
    lines = [
        f"epsilon {float(explained.epsilon)!r} at delta {explained.delta:g} "
        f"by {explained.accounting_method}{order}, for the relation "
        f"{explained.relation} (adjacency.md)",
        f"mechanism {words(explained.mechanism)}",
        f"participation {words(explained.participation)}",
        f"parameters {explained.dimension}",
        f"event{f' ({explained.page})' if explained.page else ''}:",
        *(f"  {line}" for line in explained.event),
        f"routes; --accounting_method={explained.asked_method} takes the least "
        "epsilon:",
    ]
    cells = [list(_HEADS.values())]
    cells += [
        [
            *(
                row["route"],
                "-" if row["epsilon"] is None else repr(float(row["epsilon"])),
            ),
            *(row["reason"], ", ".join(row["pages"]) or "-"),
        ]
        for row in explained.routes
    ]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for line in cells:
        padded = "  ".join(word.ljust(width) for word, width in zip(line, widths))
        lines.append(f"  {padded.rstrip()}")
    return "\n".join(lines)
