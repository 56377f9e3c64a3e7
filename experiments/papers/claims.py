# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The papers' claims as data; `python -m tools.pages` computes the verdicts.

    print(verdicts.lines(claims.of_paper("chen2022"), Path("docs/results")))

`experiments.papers.verdicts` defines the conditions on effects.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Optional

from . import verdicts
from .verdicts import AHEAD, FREE, Claim, Exact, Family, Gate, Line, Untested

# Terms of docs/evidence.
_LARGE = "MNIST, large network"
_SMALL = "MNIST, small network"
_FASHION = "Fashion-MNIST"
# Heads of data sets by words of settings, in the order of pages.
DATA_SETS = {
    **{each: each for each in (_LARGE, _SMALL, _FASHION)},
    "MNIST": "MNIST, both networks",
}
_Z = {"noise_multiplier": "0.7900269534708082", "task": "mnist"}
_PLAIN = {"compression_rate": "1"}
_GAUSSIAN = "gaussian b32"


def _rates(
    table: str,
    setting: str,
    figure: str,
    mechanism: str = "L2-CSGM",
    chosen: Mapping[str, str] = {"task": "mnist"},
    **own: str,
) -> list[Claim]:
    """Claims that a mechanism's compression is free, at both rates, by `own` runs."""
    return [
        Claim(
            paper="chen2024",
            claim=f"{mechanism} at {rate}-fold is free",
            where=figure,
            setting=setting,
            asks=FREE,
            table=table,
            ours={"compression_rate": rate, **own},
            other=_PLAIN,
            over=("epsilon",),
            chosen=chosen,
        )
        for rate in ("10", "100")
    ]


def _points(
    paper: str, claim: str, where: str, asks: str, ours: str, other: str
) -> Claim:
    """A claim on two points of `equal_bits`, each given as MECHANISM POINT."""
    first, second = _point(ours), _point(other)
    return Claim(paper, claim, where, _SMALL, asks, "equal_bits", first, second)


def _longer(one: Claim) -> Claim:
    """A claim about points of `equal_bits` after four times the rounds."""
    setting = f"{_SMALL}, 192 rounds"
    return dataclasses.replace(one, table="equal_bits_long", setting=setting)


def _on_fashion(one: Claim) -> Claim:
    """A claim about points of `equal_bits` on Fashion-MNIST."""
    return dataclasses.replace(one, table="equal_bits_fashion", setting=_FASHION)


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


def _without_noise(
    rate: str, noise: str, setting: str, table: str = "secagg_fig2"
) -> Claim:
    """A claim that compression costs less with this noise than without noise."""
    own, none = {"noise_multiplier": noise}, {"noise_multiplier": "0.0"}
    return Claim(
        paper="chen2022",
        claim="more noise bears more compression",
        where="Fig. 2",
        setting=setting,
        asks=AHEAD,
        table=table,
        ours={"compression_rate": rate, **own},
        other=_PLAIN,
        chosen={"task": "mnist", "noise_multiplier": f"{noise}|0.0"},
        less=({"compression_rate": rate, **none}, _PLAIN),
    )


def _bits(
    claim: str, where: str, rate: str, bits: str, words: str, whole: str = "16"
) -> Claim:
    """A claim that few bits of a sketch suffice as 16 bits, or others, without one."""
    return Claim(
        paper="chen2022",
        claim=claim,
        where=where,
        setting=f"{_LARGE}, {words}",
        asks=FREE,
        table="secagg_fig3",
        ours={"compression_rate": rate, "bits": bits},
        other={"compression_rate": "1", "bits": whole},
    )


def _together(figure: str, rate: str, words: str) -> Claim:
    """A claim that one sketch is as accurate as separate sketches of layer and rest."""
    return Claim(
        paper="chen2022",
        claim="one sketch does as one a layer",
        where=f"Fig. {figure}",
        setting=f"{_FASHION}, 2nn, {rate}-fold, {words}",
        asks=FREE,
        table=f"secagg_fig{figure}",
        ours={"embedding": rate, "rest": "together"},
        other={"rest": rate},
    )


_SETTINGS = {"mnist": f"{_LARGE}, one pass", "fashion": f"{_FASHION}, one pass"}


def _streams(
    claim: str,
    figure: str,
    ours: Mapping[str, str],
    other: Mapping[str, str],
    problems: Iterable[str] = _SETTINGS,
    **own: str,
) -> list[Claim]:
    """A claim that one stream of noise is better than another at equal epsilon."""
    return [
        Claim(
            paper="denisov2022",
            claim=claim,
            where=figure,
            setting=_SETTINGS[problem],
            asks=AHEAD,
            table="mf_fig3",
            ours=ours,
            other=other,
            over=("epsilon",),
            chosen={"problem": problem, "schedule": "constant", **own},
        )
        for problem in problems
    ]


def _solvers(claim: str, figure: str, ours: str, other: str) -> list[Claim]:
    return _streams(claim, figure, {"mechanism": ours}, {"mechanism": other})


def _schedule(schedule: str) -> list[Claim]:
    """The schedule with its best rate, or without a rate for runs on MNIST."""
    claim, own = f"a rate with a {schedule} is better", {"schedule": schedule}
    return _streams(
        *(claim, "Fig. 3", own, {"schedule": "constant"}),
        problems=["fashion"],
        schedule=f"{schedule}|constant",
        mechanism="optimal",
    )


def _way(claim: str, asks: str, ours: str, other: str, names: str) -> Claim:
    return Claim(
        paper="ours",
        claim=claim,
        where="",
        setting=_FASHION,
        asks=asks,
        table="stream_training",
        ours={"way": ours, "mechanism": names},
        other={"way": other},
        over=("mechanism", "rate"),
    )


def _sensitive(epsilon: str, own: str, clip: str, rate: str) -> Claim:
    """A claim that MF loses more than GM by the paper's setting, from dpfl's own."""
    own_setting = {"clip_norm": "0.3", "server_lr": own}
    setting = {"clip_norm": clip, "server_lr": rate}
    return Claim(
        paper="chen2024",
        claim=f"clip {float(clip):g}, rate {rate} cost MF more",
        where="section 6",
        setting=f"{_LARGE}, ε={float(epsilon):g}",
        asks=AHEAD,
        table="sgmf_sensitivity",
        ours={"mechanism": "GM", **setting},
        other=own_setting,
        chosen={"epsilon": epsilon, "mechanism": "GM|MF"},
        less=({"mechanism": "MF", **setting}, own_setting),
    )


def _cohorts(clients: str, fewer: str, words: str) -> Claim:
    """A claim that these clients lose less to compression than fewer."""
    rates = {"compression_rate": "10|100"}
    return Claim(
        paper="chen2024",
        claim="larger cohorts lose less to compression",
        where="appendix C",
        setting=f"{_LARGE}, {clients} and {words}",
        asks=AHEAD,
        table="csgm_cohorts",
        ours={**rates, "cohort_size": clients},
        other=_PLAIN,
        less=({**rates, "cohort_size": fewer}, _PLAIN),
    )


_CHEN2024 = (
    *(
        one
        for clients, figure in (("50", "Fig. 5"), ("100", "Fig. 2"), ("400", "Fig. 4"))
        for one in _rates(
            "csgm_cohorts",
            f"{_LARGE}, {clients} clients, ε=8",
            figure,
            cohort_size=clients,
        )
    ),
    *_rates("csgm_fig2", f"{_LARGE}, 100 clients, ε=2", "Fig. 2"),
    *(
        _points(
            "chen2024",
            f"L2-CSGM at {r[1:]}-fold is free",
            "",
            FREE,
            f"l2_csgm {r}",
            _GAUSSIAN,
        )
        for r in ("r10", "r100")
    ),
    *(
        other(
            _points(
                *("chen2024", "L2-CSGM at 10-fold is free", ""),
                *(FREE, "l2_csgm r10", _GAUSSIAN),
            )
        )
        for other in (_longer, _on_fashion)
    ),
    *_rates(
        *("csgm_fig6", f"{_FASHION}, one rate, ε=2, 4, 8 and 16", "Fig. 6"),
        chosen={"task": "fashion"},
    ),
    *(
        _points(
            *("chen2024", f"the L2 form is ahead of L∞: {r[1:]}-fold", "section 4.2"),
            *(AHEAD, f"l2_csgm {r}", f"linf_csgm {r}"),
        )
        for r in ("r10", "r100")
    ),
    *(_cohorts(clients, "50", "50 (smaller rate)") for clients in ("100", "400")),
    _cohorts("400", "100", "100"),
    *(
        one
        for figure, clip in ((7, "1"), (8, "0.03"))
        for one in _rates(
            f"sgmf_fig{figure}",
            f"{_LARGE}, ε=2 and 8, clip {clip}",
            f"section 1, Fig. {figure}",
            mechanism="SGMF",
            chosen={},
        )
    ),
    *_rates(
        *("sgmf_own", f"{_LARGE}, by epochs, ε=8, dpfl's clip", "section 1"),
        mechanism="SGMF",
        chosen={},
    ),
    *(
        dataclasses.replace(
            _points(
                *("chen2024", f"SGMF bears less than L2-CSGM: {r[1:]}-fold"),
                *("section 6", AHEAD, f"l2_csgm {r}", _GAUSSIAN),
            ),
            less=(_point(f"sgmf {r}"), _point("mf b32")),
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
    dataclasses.replace(_sketch("100", "fiftieth"), setting=f"{_LARGE}, a hundredth"),
    _points(
        *("chen2022", "a sketch of a tenth is free", ""),
        *(FREE, "sketched_ddg r10_b16", "ddg b16"),
    ),
    *(
        other(
            _points(
                *("chen2022", "seven bits of a tenth are free", ""),
                *(FREE, "sketched_ddg r10_b7", "ddg b8"),
            )
        )
        for other in (_longer, _on_fashion)
    ),
    Claim(
        paper="chen2022",
        claim="going without thresholding is free",
        where="appendix A.2",
        setting=f"{_SMALL}, z=1, a tenth, one deviation",
        asks=FREE,
        table="secagg_threshold",
        ours={"threshold": "none"},
        other={"threshold": "1"},
    ),
    *(
        _without_noise(r, z, f"{_SMALL}, {r}-fold, z={float(z):g}", "secagg_noise")
        for z in ("0.5", "1.0", "2.0")
        for r in ("10", "100")
    ),
    *(
        Claim(
            paper="chen2022",
            claim="with a sketch more privacy is free",
            where="Fig. 2, caption",
            setting=f"{_SMALL}, {r}-fold, z={float(z):g} against none",
            asks=FREE,
            table="secagg_noise",
            ours={"noise_multiplier": z},
            other={"noise_multiplier": "0.0"},
            chosen={"compression_rate": r},
        )
        for r in ("10", "100")
        for z in ("0.5", "1.0", "2.0")
    ),
    _without_noise("300", _Z["noise_multiplier"], f"{_LARGE}, 300-fold"),
    Claim(
        paper="chen2022",
        claim="without noise a tenth costs",
        where="Fig. 2, caption",
        setting=_LARGE,
        asks=AHEAD,
        table="secagg_fig2",
        ours=_PLAIN,
        other={"compression_rate": "10"},
        chosen={"noise_multiplier": "0.0", "task": "mnist"},
    ),
    _bits("six bits for 16 are free", "Table 1", "1", "6", "six bits, 100 clients"),
    _points("chen2022", "six bits for 16 are free", "", FREE, "ddg b6", "ddg b16"),
    _bits(
        "below 1.2 bits a parameter are free",
        "abstract",
        "10",
        "7",
        "seven bits, 0.7 without helpers'",
    ),
    _bits(
        "below 0.24 bits a parameter are free",
        "Fig. 3",
        "100",
        "10",
        "ten bits, 0.1 without helpers'",
    ),
    _bits(
        *("a higher rate for fewer bits is free", "Table 1", "100", "10"),
        *("0.2 bits and 12", "6"),
    ),
    _points(
        *("chen2022", "noise of sums is as good as central", "section 3.2"),
        *(FREE, "ddg b16", _GAUSSIAN),
    ),
    _points(
        *("chen2022", "noise of sketched sums is as good", "section 5"),
        *(FREE, "sketched_ddg r10_b16", "project_and_perturb r10"),
    ),
    *(
        Claim(
            paper="chen2022",
            claim=f"a large model, {how}, is ahead",
            where="Fig. 4a",
            setting=setting,
            asks=AHEAD,
            table="secagg_fig4",
            ours={"model": "default", "compression_rate": rate},
            other={"model": "small_cnn", "compression_rate": others},
        )
        for how, setting, rate, others in (
            ("compressed", "MNIST, 100-fold, small network without", "100", "1"),
            ("compressed more", "MNIST, two thirds of the message", "1000", "10"),
        )
    ),
    *(
        Claim(
            paper="chen2022",
            claim="larger models bear more compression",
            where="Fig. 4b",
            setting=f"MNIST, 2nn and small network, {rate}-fold",
            asks=AHEAD,
            table="secagg_fig4b",
            ours={"model": "2nn", "compression_rate": rate},
            other=_PLAIN,
            less=({"model": "small_cnn", "compression_rate": rate}, _PLAIN),
        )
        for rate in ("10", "100")
    ),
    Claim(
        paper="chen2022",
        claim="smaller cohorts bear more compression",
        where="Fig. 7",
        setting=f"{_LARGE}, z=1, 50 and 200",
        asks=AHEAD,
        table="secagg_fig7",
        ours={"compression_rate": "10|100", "cohort_size": "50"},
        other=_PLAIN,
        less=({"compression_rate": "10|100", "cohort_size": "200"}, _PLAIN),
    ),
    Claim(
        paper="chen2022",
        claim="a larger cohort, compressed, is ahead",
        where="Fig. 8",
        setting=f"{_LARGE}, ε=12.3 and 3.1",
        asks=AHEAD,
        table="secagg_fig8",
        ours={"cohort_size": "200", "compression_rate": "10"},
        other={"cohort_size": "50", "compression_rate": "1"},
    ),
    *(
        _together(figure, rate, words)
        for figure, words in (("9", "z=0.6"), ("10", "without noise"))
        for rate in ("10", "100")
    ),
)
_BEST = {"problem": "fashion", "mechanism": "optimal", "schedule": "cooldown"}
_NO_NOISE = {**_BEST, "mechanism": "no-noise"}
_FEWER = {"problem": "fashion, 12 clients"}
_DENISOV2022 = (
    *(
        one
        for tree in ("honaker-online", "honaker-full")
        for one in _solvers(
            f"the optimal matrix trains better than {tree}", "Fig. 2", "optimal", tree
        )
    ),
    *_solvers(
        *("optimal prefix sums train better than honaker-online", "Fig. 2"),
        *("optimal-prefix-sum", "honaker-online"),
    ),
    *_solvers(
        *("momentum in the matrix is ahead", "Fig. 6"),
        *("optimal", "optimal-prefix-sum"),
    ),
    Claim(
        paper="denisov2022",
        claim="halfway optimal prefix sums are ahead",
        where="Fig. 6",
        setting=f"{_FASHION}, 50 of 100 rounds",
        asks=AHEAD,
        table="mf_fig6_curves",
        ours={"mechanism": "optimal-prefix-sum"},
        other={"mechanism": "optimal"},
        chosen={"problem": "fashion", "schedule": "constant", "round": "50"},
        column="eval_accuracy",
    ),
    *_schedule("drop"),
    *_schedule("cooldown"),
    Claim(
        paper="denisov2022",
        claim="more clients a round help",
        where="section 5",
        setting=f"{_FASHION}, 20 clients for 12",
        asks=AHEAD,
        table="mf_fig3",
        ours={"problem": "fashion"},
        other=_FEWER,
        over=("epsilon", "schedule"),
        chosen={"mechanism": "optimal"},
    ),
    Claim(
        paper="denisov2022",
        claim="two thirds of the gap closed",
        where="section 5",
        setting=f"{_FASHION}, ε=8, gain less twice the rest",
        asks=AHEAD,
        table="mf_fig3",
        ours={**_BEST, "epsilon": "8.0"},
        other={**_FEWER, "mechanism": "honaker-online", "schedule": "constant"},
        less=({**_NO_NOISE, "epsilon": "inf"}, {**_BEST, "epsilon": "8.0"}),
        times=2,
    ),
)
_DOME2025 = (
    *(
        Claim(
            paper="dome2025",
            claim=claim,
            where=where,
            setting=f"{_SMALL}, both by Adam",
            asks=AHEAD,
            table="dome_compare",
            ours={"mechanism": ours},
            other={"mechanism": "sketched_ddg_adam"},
            chosen={"epsilon": "8.0"},
        )
        for claim, where, ours in (
            ("DOME is ahead of a random sketch", "section 4", "dome"),
            ("DOME without mean removal is ahead", "", "dome_whole"),
            ("DOME with one direction, 8 bits, is ahead", "", "dome_ddg_rank1"),
        )
    ),
    _points(
        *("dome2025", "taking the mean off helps", "section 3.1", AHEAD),
        *("dome k256", "dome_whole k256"),
    ),
    *(
        Claim(
            paper="dome2025",
            claim=claim,
            where=where,
            setting=_SMALL,
            asks=AHEAD,
            table="dome_ablations",
            ours={"mechanism": "dome_whole"},
            other={"mechanism": f"dome_whole_{without}"},
        )
        for claim, where, without in (
            ("probes help", "abstract", "no_probes"),
            ("debiasing the second moment helps", "section 3.3", "biased"),
        )
    ),
)
_SHORT_AND_LONG = (
    ("SGMF at 10-fold is free", FREE, "sgmf r10", "mf b32"),
    ("SGMF is ahead of CSGM: 10-fold", AHEAD, "sgmf r10", "l2_csgm r10"),
    ("SGMF with three bits costs nothing", FREE, "sgmf r10", _GAUSSIAN),
    ("one stream is ahead of independent noise", AHEAD, "mf b32", _GAUSSIAN),
)
_SHORT = (
    ("SGMF at 100-fold is free", FREE, "sgmf r100", "mf b32"),
    ("SGMF is ahead of CSGM: 100-fold", AHEAD, "sgmf r100", "l2_csgm r100"),
)
_OURS = (
    *(
        one
        for words in _SHORT_AND_LONG
        for short in [_points("ours", words[0], "", *words[1:])]
        for one in (short, _longer(short), _on_fashion(short))
    ),
    *(_points("ours", words[0], "", *words[1:]) for words in _SHORT),
    _points(
        *("ours", "seven bits of a sketch for 16", "", FREE),
        *("sketched_ddg r10_b7", "sketched_ddg r10_b16"),
    ),
    _way(
        "random allocation for Poisson sampling",
        FREE,
        "random allocation",
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

_MEAN = "means of vectors, 100 clients"
_SUMS = "prefix sums, 2048 rounds"
_LAST = {"rounds": "2048", "method": "optimal"}
_STEPS = {"momentum": "0.9", "method": "optimal"}
_DOME = {"mechanism": "dome", "epsilon": "8.0"}
_SGD = {"mechanism": "gaussian_sgd", "epsilon": "8.0"}
EXACT: tuple[Exact, ...] = (
    Exact(
        paper="chen2024",
        claim="noise comes to GM's for small coordinates",
        where="Fig. 1",
        setting="noise over GM's, smallest ratio",
        table="csgm_fig1",
        ours={"panel": "left", "linf_ratio": "0.0001"},
        column="noise_multiplier",
        other={"panel": "left", "linf_ratio": "0.0001"},
        by="gaussian",
        most=1.01,
    ),
    Exact(
        paper="chen2024",
        claim="the L2 form has less error than L∞",
        where="section 4.2",
        setting=f"{_MEAN}, 10-fold",
        table="mean_estimation",
        ours={"mechanism": "l2_csgm", "compression_rate": "10"},
        column="squared_error",
        other={"mechanism": "linf_csgm", "compression_rate": "10"},
        most=1.0,
    ),
    # In the paper's ε, which is 1 over the noise, n²ε² is 611; the sketch has 546.
    Exact(
        paper="chen2022",
        claim="a sketch of n²ε² keeps the error's order",
        where="Theorem 5.2",
        setting=f"{_MEAN}, 30-fold",
        table="secagg_mean",
        ours={"series": "shifts, 16 bits", "compression_rate": "30"},
        column="squared_error",
        other={"series": "Gaussian"},
        most=2.0,
    ),
    Exact(
        paper="chen2022",
        claim="sparse means take fewer bits",
        where="Theorem 6.1",
        setting="error over DDG's, a sixteenth the bits",
        table="secagg_sparse",
        ours={"mechanism": "sparse_recovery", "sparsity": "10"},
        column="squared_error",
        other={"mechanism": "distributed_discrete_gaussian", "sparsity": "10"},
        most=1.1,
    ),
    *(
        Exact(
            paper="denisov2022",
            claim=f"less error than {tree}",
            where="Table 2",
            setting=_SUMS,
            table="mf_table2",
            ours=_LAST,
            column="loss",
            other={**_LAST, "method": tree},
            most=1.0,
        )
        for tree in ("honaker-online", "honaker-full")
    ),
    Exact(
        paper="denisov2022",
        claim="less error with momentum in the matrix",
        where="Fig. 1",
        setting="sums with momentum, 2048 rounds",
        table="mf_fig1",
        ours=_STEPS,
        column="total",
        other={**_STEPS, "method": "optimal-prefix-sum"},
        most=1.0,
    ),
    *(
        Exact(
            paper="denisov2022",
            claim="a band with low rank nearly suffices",
            where="Table 2",
            setting=f"prefix sums, {rounds} rounds",
            table="mf_table2",
            ours={"rounds": rounds, "method": "band-low-rank"},
            column="loss",
            other={"rounds": rounds, "method": "optimal"},
            most=1.01,
        )
        for rounds in ("256", "2048")
    ),
    Exact(
        paper="denisov2022",
        claim="the fixed point is faster than descent",
        where="Fig. 4",
        setting="time over L-BFGS's, 256 rounds",
        table="mf_fig4",
        ours={},
        column="plain_seconds",
        other={},
        by="lbfgs_seconds",
        most=1.0,
    ),
    Exact(
        paper="denisov2022",
        claim="the optimal matrix takes under three minutes",
        where="section 3",
        setting="seconds, 2048 rounds",
        table="factorization_time",
        ours={"rounds": "2048"},
        column="plain_seconds",
        most=180.0,
    ),
    Exact(
        paper="dome2025",
        claim="messages have order k, not d",
        where="abstract",
        setting="bits up over uncompressed ones, k=256",
        table="dome_compare",
        ours=_DOME,
        column="uplink_bits_per_parameter",
        other=_SGD,
        most=0.1,
    ),
    Exact(
        paper="dome2025",
        claim="communication has order k, not d",
        where="abstract",
        setting="bits down over uncompressed ones",
        table="dome_compare",
        ours=_DOME,
        column="downlink_bits_per_parameter",
        other=_SGD,
        most=1.0,
    ),
    Exact(
        paper="dome2025",
        claim="the sketch follows a subspace that drifts",
        where="section 3.1",
        setting="made-up gradients, drift 0.03, share",
        table="dome_learning",
        ours={"study": "drift", "row": "0.03", "column": "probes"},
        column="overlap",
        least=0.9,
    ),
    Exact(
        paper="dome2025",
        claim="late gradients lie in the sketch",
        where="section 3.1",
        setting="small network, ε=8, share of energy",
        table="dome_energy_curves",
        ours={"mechanism": "dome_whole", "epsilon": "8.0", "round": "48"},
        column="aggregator_explained_energy",
        least=0.5,
    ),
)
_UNTESTED: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "chen2024": (
        ("more than 100-fold is free", "appendix C", "not run in training"),
        ("values can be quantized too", "section 7", "values are sent whole"),
    ),
    "chen2022": (
        ("fewer bits suffice at more noise", "Fig. 5", "one budget alone"),
        (
            "n²ε² bits are necessary too",
            "Corollary 5.4",
            "a proof, of unbiased schemes",
        ),
        ("more than 18 bits gain little", "section 7", "no run has so many"),
        ("a sketch of 15 rows is best", "appendix C", "other lengths were not run"),
        ("scaling rows down helps", "appendix D", "other scalings were not run"),
        ("DDG takes more bits at smaller ε", "section 5", "long messages missing"),
        ("sparsity lowers the error too", "Theorem 6.1", "too few repeats to tell"),
    ),
    "denisov2022": (
        ("a hundred times faster", "appendix E.4", "Yuan et al. not implemented"),
        ("it is private for adaptive streams", "Theorem 2.1", "proved here too"),
        ("structure costs no more than trees", "appendix H", "times not compared"),
        ("single precision does not suffice", "appendix E.4", "all is in double"),
    ),
    "dome2025": (
        ("its σ is (ε, δ)-private", "Theorem 3.3", "proved with less noise instead"),
        ("global moments are more stable", "section 1", "moments not measured"),
        ("gradients have low rank in time", "section 3", "spectra not measured"),
        ("the error comes to σ²k", "abstract", "no distance is named"),
    ),
}
UNTESTED = tuple(
    Untested(paper, *row) for paper, rows in _UNTESTED.items() for row in rows
)


def _target(
    claim: str,
    setting: str,
    row: str,
    most: float,
    other: Optional[str] = None,
    column: str = "seconds",
) -> Exact:
    """A claim on the cost of dpfl's own code: seconds, or a ratio to another row's."""
    return Exact(
        paper="costs",
        claim=claim,
        where="",
        setting=setting,
        table="benchmarks",
        ours={"row": row},
        column=column,
        other=None if other is None else {"row": other},
        ends=("low", "high") if column == "ratio" else ("least", "most"),
        most=most,
    )


_ROUND, _ROW = "50 clients, a million parameters", "a million numbers"
_BANDS, _PROGRAM = "noise: {} bands", "start_up: {}"
# A third of the 92 milliseconds that 64 bands took.
COSTS: tuple[Exact, ...] = (
    _target("a round of L2-CSGM over none's", _ROUND, "csgm", 1.05, column="ratio"),
    _target(
        "seconds of a secure sum, seven bits",
        "100 vectors of a million",
        "secure: discrete Gaussian, 7 bits",
        0.7,
    ),
    _target("seconds of noise of 64 bands", _ROW, _BANDS.format(64), 0.031),
    _target("256 bands over 64", _ROW, _BANDS.format(256), 4.0, _BANDS.format(64)),
    _target(
        "a thousand clients over ten rounds of a hundred",
        "a million parameters, one step a client",
        "cnn, n=1000",
        1.0,
        column="ratio",
    ),
    _target("seconds of dpfl-train", "a round", _PROGRAM.format("dpfl-train"), 5.5),
    _target("seconds of a refusal", "dpfl-train", _PROGRAM.format("a refusal"), 0.5),
    _target("seconds of an import", "dpfl", _PROGRAM.format("import of dpfl"), 0.3),
)


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
    every: tuple[Line, ...] = (*CLAIMS, *EXACT, *COSTS, *UNTESTED)
    return sorted((one for one in every if one.paper == paper), key=_place)


def _place(one: Line) -> int:
    words = [*DATA_SETS]
    return words.index(one.place(words)) if isinstance(one, Claim) else len(words)
