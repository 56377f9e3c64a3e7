# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Tables of claims with their verdicts for pages, in Markdown, and their picture.

print(verdict_tables.lines(claims.of_paper("chen2022"), Path("docs/results")))
"""

from __future__ import annotations

import collections
import math
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from dpfl import files

from .. import effects, plotting, tables
from .verdicts import UNDECIDED, Claim, Family, Labels, Line, in_points

# Color of each verdict (Okabe and Ito, and Tol).
_VERDICTS = {
    **{"holds": "#117733", "no cost shown": "#009e73"},
    "costs, below the margin": "#56b4e9",
    **{"does not hold": "#882255", "costs more": "#d55e00", "not decided": "#7f7f7f"},
    "not assayable": "#bbbbbb",
}


def asked(families: Sequence[Family], folder: Path) -> str:
    """A Markdown table of families, corrected for all of their claims.

    Args:
      families: The families.
      folder: Folder of the tables of runs.
    """
    rows: list[tuple[str, ...]] = []
    counts = effects.holm_in_order([each.p_values(folder) for each in families])
    for family, count in zip(families, counts):
        failed = "; ".join(family.failed(folder))
        for place, verdict in enumerate(family.verdicts(folder)):
            one, because = family.claims[place], failed
            if verdict == UNDECIDED != one.verdict(one.effect(folder)):
                because = "the line before is not"
            _, effect, seeds, _ = one.cells(folder)
            clients, stays = one.over_clients(folder), "stays" if place < count else ""
            more = "" if clients is None else in_points(clients)
            own = family.name, one.claim, f"**{verdict}**", effect, more, seeds
            rows.append((*own, stays, because))
    heads = ("family", "claim", "verdict", "effect", "over clients too", "seeds")
    return _without_empty((*heads, "corrected", "because"), rows)


def _without_empty(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table without the columns that are empty."""
    columns = [column for column in zip(heads, *rows) if any(column[1:])]
    shown, *filled = zip(*columns)
    if "seeds" not in shown:
        shown = tuple("measured" if name == "effect" else name for name in shown)
    return tables.markdown(shown, filled)


def gates(families: Sequence[Family], folder: Path) -> str:
    """A Markdown table of the numbers of families' gates.

    Args:
      families: The families.
      folder: Folder of the tables of runs.
    """
    rows = []
    for each in families:
        for gate in each.gates:
            found = f"{gate.number(folder):.3g}"
            is_least = gate.least > -math.inf
            wanted = f"at least {gate.least:g}" if is_least else f"below {gate.below:g}"
            rows.append((each.name, gate.words, found, wanted))
    return tables.markdown(("family", "not assayable where", "found", "wanted"), rows)


def corrected(claims: Iterable[Line], folder: Path) -> list[Claim]:
    """The claims on effects that are decided if all of them count, by Holm's method."""
    effect_claims = [one for one in claims if isinstance(one, Claim)]
    p_values = {
        place: c.p_value(c.effect(folder)) for place, c in enumerate(effect_claims)
    }
    return [effect_claims[place] for place in effects.holm(p_values)]


def overview(claims: Iterable[Claim], folder: Path, heads: Labels) -> str:
    """A Markdown table of the verdicts on each claim, by data set.

    Args:
      claims: The claims, of which a page's with the same words are one line.
      folder: Folder of the tables of runs.
      heads: Heads of columns, by words of a setting; a claim belongs to the first words
        that its setting has.
    """
    rows: dict[str, dict[str, list[str]]] = {}
    for one in claims:
        place = one.place(heads)
        link = f"[{one.claim}]({one.paper}.md)"
        cells = rows.setdefault(link, {each: [] for each in heads})
        cells[place].append(one.verdict(one.effect(folder)))
    text = [
        [link, *("; ".join(_counted(own)) for own in cells.values())]
        for link, cells in rows.items()
    ]
    return tables.markdown(["claim", *heads.values()], text)


def _counted(words: Iterable[str]) -> list[str]:
    """Distinct words, with the number of each that there are several of."""
    counts = collections.Counter(words).items()
    return [f"{word} ({count})" if count > 1 else word for word, count in counts]


def lines(claims: Iterable[Line], folder: Path, kept: Collection[Line] = ()) -> str:
    """A Markdown table of claims, without empty columns.

    Args:
      claims: The claims of the table.
      folder: Folder of the tables of runs.
      kept: Claims that are decided if those of all papers count; see `corrected`.
    """
    rows: list[tuple[str, ...]] = []
    for one in claims:
        verdict, effect, seeds, asked = one.cells(folder)
        stays = "stays" if one in kept else ""
        own = one.setting, one.claim, f"**{verdict}**", effect, seeds, stays
        rows.append((*own, asked, one.where))
    heads = ("here", "claim", "verdict", "effect", "seeds", "corrected")
    return _without_empty((*heads, "asked", "in the paper"), rows)


def draw_effects(
    lines: Sequence[tuple[str, str, effects.Effect]], path: str, note: str
) -> None:
    """Draws effects on accuracy with their intervals, one below the other, in points.

    Args:
      lines: A label, a verdict and an effect each.
      path: The picture's path.
      note: A comment in the file.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    size = (9, 0.9 + 0.24 * len(lines))
    figure, axis = pyplot.subplots(figsize=size, layout="constrained")
    axis.axvline(0, color="0.5", linewidth=0.8)
    axis.axvline(-1, color="0.5", linewidth=0.8, linestyle=":")
    for place, (_, verdict, one) in enumerate(lines):
        reach = [[100 * (one.size - one.low)], [100 * (one.high - one.size)]]
        style = {"fmt": "o", "color": _VERDICTS[verdict], "markersize": 4}
        axis.errorbar([100 * one.size], [place], xerr=reach, label=verdict, **style)
    axis.set_yticks(range(len(lines)), [label for label, *_ in lines], fontsize=8)
    axis.set_ylim(len(lines) - 0.5, -0.5)
    axis.grid(axis="x", alpha=0.3)
    axis.set_xlabel("gain in points of accuracy; dotted line: one point lost")
    handles, labels = axis.get_legend_handles_labels()
    named = dict(zip(labels, handles))
    place_below = {"loc": "outside lower center", "ncol": 4, "fontsize": 8}
    figure.legend([*named.values()], [*named], **place_below)
    files.public_folder(Path(path).parent)
    options = {"dpi": 120, "bbox_inches": "tight", "metadata": {"Comment": note}}
    plotting.write_picture(figure, path, **options)
    pyplot.close(figure)
