# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What the papers claim, and what the runs say of it: an effect and a verdict.

A claim says which runs are compared with which, and what it asks of the effect before
the effect is known. `python -m tools.pages` computes the rest from docs/results.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Optional

from dpfl import files

from .. import effects, tables

# Of accuracy, one point; of a loss of four, about one percent.
MARGINS: Mapping[str, float] = {"final_accuracy": 0.01, "final_loss": 0.04}
FREE, AHEAD = "free", "ahead"


@dataclasses.dataclass(frozen=True)
class Claim:
    """Runs that are compared, and what is asked of the effect.

    Attributes:
      paper: As its page names it.
      claim: What is claimed.
      where: Figure, table or section of the paper.
      setting: What was trained here.
      asks: `FREE`, the effect is above minus the margin of the measure; or `AHEAD`, it
        is above 0.
      table: Name of a table in docs/results.
      ours: Labels of the runs.
      other: Labels of those that they are compared with.
      over: Labels over whose values the effect is pooled.
      chosen: Values of labels that rows have, with | between them.
      measure: A column of `MARGINS`; of losses the effect is what they fall by.
      less: Values that `chosen` has besides, for runs whose effect is taken off; None
        for a single effect.
    """

    paper: str
    claim: str
    where: str
    setting: str
    asks: str
    table: str
    ours: Mapping[str, str]
    other: Mapping[str, str]
    over: tuple[str, ...] = ()
    chosen: Mapping[str, str] = dataclasses.field(default_factory=dict)
    measure: str = "final_accuracy"
    less: Optional[Mapping[str, str]] = None

    def effect(self, folder: Path) -> effects.Effect:
        """What the runs gain, in units of the measure, from the tables in a folder.

        Raises:
          ValueError: If a run has none to be compared with.
        """
        rows = files.read_csv(folder / f"{self.table}.csv")
        own = self._pairs(rows, self.chosen)
        cells, pairs = own
        if self.less is None:
            found, scale = effects.effect(cells, pairs), 1.0
        else:
            others, reversed_pairs = self._pairs(rows, {**self.chosen, **self.less})
            taken = [(second, first) for first, second in reversed_pairs]
            # Each half of the pairs is one effect, and the mean halves them.
            found = effects.effect({**cells, **others}, [*pairs, *taken])
            scale = 2.0
        if self.measure == "final_loss":
            ends = -found.size, -found.high, -found.low
        else:
            ends = found.size, found.low, found.high
        return effects.Effect(*(scale * end for end in ends))

    def _pairs(self, rows: tables.Rows, chosen: Mapping[str, str]) -> tuple:
        names = [*self.over, *sorted({*self.ours, *self.other}), *sorted(chosen)]
        cells: dict[tuple[str, ...], list[float]] = {}
        pairs = {}
        for row in rows:
            if all(row[k] in v.split("|") for k, v in chosen.items()):
                key = tuple(row[name] for name in names)
                cells.setdefault(key, []).append(float(row[self.measure]))
                if all(row[k] == v for k, v in self.ours.items()):
                    beside = {**row, **self.other}
                    pairs[key] = tuple(beside[name] for name in names)
        missing = [other for other in pairs.values() if other not in cells]
        if missing or not pairs:
            raise ValueError(f"{self.table} must have {missing or self.ours}")
        return cells, list(pairs.items())

    def verdict(self, found: effects.Effect) -> str:
        """Whether it holds, by what was asked beforehand."""
        if self.asks == FREE:
            free = found.is_free(MARGINS[self.measure])
            return {"yes": "holds", "no": "does not hold"}.get(free, free)
        if found.low > 0:
            return "holds"
        return "does not hold" if found.high < 0 else "not decided"


def lines(claims: Iterable[Claim], folder: Path) -> str:
    """A table in Markdown: accuracies in points, losses as they are."""
    heads = ("claim", "verdict", "effect", "here", "asked", "in the paper")
    text: list[tuple[str, ...]] = [heads]
    for one in claims:
        found = one.effect(folder)
        points = one.measure == "final_accuracy"
        scale, shown = (100, ".1f") if points else (1, ".3f")
        ends = (f"{scale * x:{shown}}" for x in (found.size, found.low, found.high))
        margin = "1 point" if points else f"{MARGINS[one.measure]:g} of loss"
        asked = f"costs below {margin}" if one.asks == FREE else "ahead"
        effect = "{} ({} to {})".format(*ends)
        verdict = f"**{one.verdict(found)}**"
        text.append((one.claim, verdict, effect, one.setting, asked, one.where))
    if not any(cells[-1] for cells in text[1:]):
        text = [cells[:-1] for cells in text]
    text.insert(1, ("---",) * len(text[0]))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in text)


def of_paper(paper: str) -> list[Claim]:
    """The claims of a paper, in their order."""
    return [one for one in CLAIMS if one.paper == paper]


# docs/evidence says what these are.
_LARGE = "MNIST, large network"
_SMALL = "MNIST, small network"
_DOCS = "docstrings"
_Z = {"noise_multiplier": "0.8650285641270344", "task": "mnist"}
_GAUSSIAN = "gaussian b32"
_LOSS = "final_loss"


def _measure(task: str) -> str:
    return _LOSS if task == "docs" else "final_accuracy"


def _rates(table: str, setting: str, figure: str, task: str = "mnist") -> list[Claim]:
    """That L2-CSGM's compression is free, at both rates."""
    return [
        Claim(
            paper="chen2024",
            claim=f"L2-CSGM at {rate}-fold is free",
            where=figure,
            setting=setting,
            asks=FREE,
            table=table,
            ours={"compression_rate": rate},
            other={"compression_rate": "1"},
            over=("epsilon",),
            chosen={"task": task},
            measure=_measure(task),
        )
        for rate in ("10", "100")
    ]


def _points(
    paper: str, claim: str, where: str, asks: str, ours: str, other: str
) -> Claim:
    """A claim about two points of `equal_bits`, each as MECHANISM POINT."""
    first, second = _point(ours), _point(other)
    return Claim(paper, claim, where, _SMALL, asks, "equal_bits", first, second)


def _point(words: str) -> dict[str, str]:
    return dict(zip(("mechanism", "point"), words.split()))


def _sketch(rate: str, words: str) -> Claim:
    return Claim(
        paper="chen2022",
        claim=f"a sketch of a {words} is free",
        where="Fig. 2",
        setting=_LARGE,
        asks=FREE,
        table="secagg_fig2",
        ours={"compression_rate": rate},
        other={"compression_rate": "1"},
        chosen=_Z,
    )


def _solver(other: str, problem: str, setting: str) -> Claim:
    return Claim(
        paper="denisov2022",
        claim=f"the optimal matrix trains better than {other}",
        where="Fig. 3",
        setting=setting,
        asks=AHEAD,
        table="mf_fig3",
        ours={"mechanism": "optimal"},
        other={"mechanism": other},
        over=("epsilon",),
        chosen={"problem": problem, "schedule": "constant"},
        measure=_measure(problem),
    )


def _schedule(schedule: str) -> Claim:
    return Claim(
        paper="denisov2022",
        claim=f"a rate with a {schedule} is better",
        where="Fig. 3",
        setting=_LARGE,
        asks=AHEAD,
        table="mf_fig3",
        ours={"schedule": schedule},
        other={"schedule": "constant"},
        over=("epsilon",),
        chosen={"problem": "mnist", "mechanism": "optimal"},
    )


def _way(claim: str, asks: str, ours: str, other: str, names: str) -> Claim:
    return Claim(
        paper="ours",
        claim=claim,
        where="",
        setting=_DOCS,
        asks=asks,
        table="stream_training",
        ours={"way": ours},
        other={"way": other},
        over=("mechanism", "rate"),
        chosen={"mechanism": names},
        measure=_LOSS,
    )


def _sensitive(epsilon: str, own: str, clip: str, rate: str) -> Claim:
    """That MF loses more than GM by a setting of the paper, from dpfl's own."""
    return Claim(
        paper="chen2024",
        claim=f"clip {float(clip):g} costs MF more than GM",
        where="section 6",
        setting=f"{_LARGE}, ε={float(epsilon):g}",
        asks=AHEAD,
        table="sgmf_sensitivity",
        ours={"clip_norm": clip, "server_lr": rate},
        other={"clip_norm": "0.3", "server_lr": own},
        chosen={"epsilon": epsilon, "mechanism": "GM"},
        less={"mechanism": "MF"},
    )


_CHEN2024 = (
    *_rates("csgm_fig5", f"{_LARGE}, 50 clients", "Fig. 5"),
    *_rates("csgm_fig2", f"{_LARGE}, 100 clients", "Fig. 2"),
    *_rates("csgm_fig4", f"{_LARGE}, 400 clients", "Fig. 4"),
    *(
        _points(
            "chen2024", f"the same: {r[1:]}-fold", "", FREE, f"l2_csgm {r}", _GAUSSIAN
        )
        for r in ("r10", "r100")
    ),
    *_rates("csgm_fig6", _DOCS, "Fig. 6", task="docs"),
    *(
        _points(
            *("chen2024", f"the L2 form is ahead of L∞: {r[1:]}-fold", "section 3"),
            *(AHEAD, f"l2_csgm {r}", f"linf_csgm {r}"),
        )
        for r in ("r10", "r100")
    ),
    *(
        _points(
            *("chen2024", f"SGMF at {r[1:]}-fold is free", "Figs. 3, 7, 8"),
            *(FREE, f"sgmf {r}", "mf b32"),
        )
        for r in ("r10", "r100")
    ),
    *(
        _sensitive(*budget, *setting)
        for budget in (("2.0", "0.2"), ("8.0", "0.5"))
        for setting in (("1.0", "0.1"), ("0.03", "0.5"))
    ),
)
_CHEN2022 = (
    _sketch("10", "tenth"),
    _sketch("100", "hundredth"),
    _points(
        "chen2022", "the same: a tenth", "", FREE, "sketched_ddg r10_b16", "ddg b16"
    ),
    Claim(
        paper="chen2022",
        claim="a sketch of a tenth is free",
        where="Fig. 2",
        setting=_DOCS,
        asks=FREE,
        table="equal_bits_docs",
        ours=_point("sketched_ddg r10_b7"),
        other=_point("ddg b8"),
        measure=_LOSS,
    ),
    Claim(
        paper="chen2022",
        claim="more noise bears more compression",
        where="Fig. 2",
        setting=f"{_LARGE}, 300-fold",
        asks=AHEAD,
        table="secagg_fig2",
        ours={"compression_rate": "300"},
        other={"compression_rate": "1"},
        chosen=_Z,
        less={"noise_multiplier": "0.0"},
    ),
    Claim(
        paper="chen2022",
        claim="six bits are as good as 16",
        where="Fig. 3",
        setting=_LARGE,
        asks=FREE,
        table="secagg_fig3",
        ours={"bits": "6"},
        other={"bits": "16"},
        chosen={"compression_rate": "1"},
    ),
    _points("chen2022", "the same", "", FREE, "ddg b6", "ddg b16"),
    Claim(
        paper="chen2022",
        claim="a large model, compressed, is ahead",
        where="Fig. 4",
        setting="MNIST, 100-fold, and small network",
        asks=AHEAD,
        table="secagg_fig4",
        ours={"model": "default", "compression_rate": "100"},
        other={"model": "small_cnn", "compression_rate": "1"},
    ),
)
_DENISOV2022 = (
    *(_solver(tree, "mnist", _LARGE) for tree in ("honaker-online", "honaker-full")),
    *(_solver(tree, "docs", _DOCS) for tree in ("honaker-online", "honaker-full")),
    Claim(
        paper="denisov2022",
        claim="momentum in the matrix is ahead",
        where="Fig. 6",
        setting=_LARGE,
        asks=AHEAD,
        table="mf_fig3",
        ours={"mechanism": "optimal"},
        other={"mechanism": "optimal-prefix-sum"},
        over=("epsilon",),
        chosen={"problem": "mnist", "schedule": "constant"},
    ),
    *map(_schedule, ("drop", "cooldown")),
)
_SKETCH = "sketched_ddg r30_b9"
_DOME2025 = (
    _points(
        "dome2025", "DOME is ahead of a sketch", "Table 1", AHEAD, "dome k256", _SKETCH
    ),
    _points(
        *("dome2025", "the same, without mean removal", "", AHEAD),
        *("dome_whole k256", _SKETCH),
    ),
    _points(
        *("dome2025", "the same, with one direction and 8 bits", "", AHEAD),
        *("dome_few_bits k1024", _SKETCH),
    ),
    _points(
        *("dome2025", "taking the mean off helps", "section 1", AHEAD),
        *("dome k256", "dome_whole k256"),
    ),
    Claim(
        paper="dome2025",
        claim="probes help",
        where="abstract",
        setting=_SMALL,
        asks=AHEAD,
        table="dome_ablations",
        ours={"mechanism": "dome_whole"},
        other={"mechanism": "dome_whole_no_probes"},
    ),
)
_OURS = (
    *(
        _points(
            "ours",
            f"SGMF is ahead of CSGM: {r[1:]}-fold",
            "",
            AHEAD,
            f"sgmf {r}",
            f"l2_csgm {r}",
        )
        for r in ("r10", "r100")
    ),
    _points(
        "ours", "SGMF with three bits costs nothing", "", FREE, "sgmf r10", _GAUSSIAN
    ),
    _points(
        "ours",
        "one stream is ahead of independent noise",
        "",
        AHEAD,
        "mf b32",
        _GAUSSIAN,
    ),
    _points(
        *("ours", "seven bits of a sketch for 16", "", FREE),
        *("sketched_ddg r10_b7", "sketched_ddg r10_b16"),
    ),
    _way(
        "random slots for Poisson sampling",
        FREE,
        "random slots",
        "Poisson sampling",
        "GM",
    ),
    _way("one stream is ahead of epochs'", AHEAD, "one stream", "by epochs", "MF|SGMF"),
    _way(
        "cyclic sampling is ahead of shuffled epochs",
        *(AHEAD, "one stream, cyclic sampling", "one stream", "MF|SGMF"),
    ),
)
CLAIMS: tuple[Claim, ...] = (
    *(*_CHEN2024, *_CHEN2022),
    *(*_DENISOV2022, *_DOME2025, *_OURS),
)
