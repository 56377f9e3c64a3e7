# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Every numbered figure and table of the papers, its reproduction, and quotations.

    print(coverage.lines("denisov2022", Path("docs/results")))
    print(coverage.words("denisov2022"))

The available text of Denisov et al. lacks captions: the contents of Figs. 2 and 5 are
taken from the references to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dpfl import files

from .. import tables
from .index import FIGURES
from .sweep import SCALES


class Numbered(NamedTuple):
    """A figure or table of a paper.

    Attributes:
      number: The paper's number, with the panel if only some panels are reproduced.
      shows: Its content.
      figure: Names of dpfl's figures that reproduce it, if any.
      why: The reason if there is none.
    """

    number: str
    shows: str
    figure: str = ""
    why: str = ""


_DIAGRAM = {"why": "a diagram, no result"}
_SETTINGS = {"why": "settings of the paper's runs"}
NUMBERED: Mapping[str, tuple[Numbered, ...]] = {
    "chen2024": (
        Numbered("Fig. 1", "noise of L2-CSGM and GM", "csgm_fig1"),
        Numbered("Fig. 2", "accuracy of GM and L2-CSGM", "csgm_fig2 csgm_cohorts"),
        Numbered("Fig. 3", "accuracy of MF and SGMF", "sgmf_fig3"),
        Numbered("Fig. 4", "L2-CSGM, 1000 clients", "csgm_fig4 csgm_cohorts"),
        Numbered("Fig. 5", "L2-CSGM, 100 clients", "csgm_fig5 csgm_cohorts"),
        Numbered("Fig. 6", "L2-CSGM, Stack Overflow, over budgets", "csgm_fig6"),
        Numbered("Fig. 7", "MF and SGMF, clip 1.0", "sgmf_fig7"),
        Numbered("Fig. 8", "MF and SGMF, clip 0.03", "sgmf_fig8"),
    ),
    "chen2022": (
        Numbered("Fig. 1", "mean estimation by secure aggregation", **_DIAGRAM),
        Numbered("Fig. 2", "compression rates over noise, both tasks", "secagg_fig2"),
        Numbered("Fig. 3", "bits and compression rates, z=0.5", "secagg_fig3"),
        Numbered("Fig. 4a", "large model compressed against small one", "secagg_fig4"),
        Numbered("Fig. 4b", "compression over model sizes", "secagg_fig4b"),
        Numbered("Fig. 5", "bits and rates, here at one budget", "secagg_fig3"),
        Numbered("Fig. 6", "all bits and compression rates", "secagg_fig3"),
        Numbered("Fig. 7", "compression rates over cohort sizes", "secagg_fig7"),
        Numbered("Fig. 8", "larger cohorts at equal time", "secagg_fig8"),
        Numbered("Fig. 9", "layers sketched apart, with noise", "secagg_fig9"),
        Numbered("Fig. 10", "layers sketched apart, without noise", "secagg_fig10"),
        Numbered("Fig. 11", "large model", why="an architecture: `--model=cnn`"),
        Numbered("Fig. 12", "small model", why="an architecture: `--model=2nn`"),
        Numbered("Fig. 13", "LSTM", why="an architecture: `--task=stackoverflow`"),
        Numbered("Fig. 14", "sparse private aggregation", **_DIAGRAM),
        Numbered("Table 1", "fewest bits by compression rate", "secagg_table1"),
    ),
    "denisov2022": (
        Numbered("Fig. 1", "squared error of each step", "mf_fig1"),
        Numbered("Fig. 2", "accuracy over budgets, constant rates", "mf_fig3"),
        Numbered("Fig. 3", "accuracy over budgets, schedules", "mf_fig3"),
        Numbered("Fig. 4", "loss over time of solvers", "mf_fig4"),
        Numbered("Fig. 5", "optimal matrices", why="a picture of matrices, no result"),
        Numbered("Fig. 6", "accuracy late in training", "mf_fig6"),
        Numbered("Table 1", "four mechanisms", why="definitions, no result"),
        Numbered("Table 2", "losses of structured matrices", "mf_table2"),
        Numbered("Table 3", "grid of rates and noise", **_SETTINGS),
        Numbered("Table 4", "rates of each mechanism and budget", **_SETTINGS),
    ),
    "dome2025": (),
}

# Quotations from the papers by their place; ... marks omissions.
WORDS: Mapping[str, Mapping[str, str]] = {
    "chen2022": {
        "Fig. 2": (
            "Higher privacy requirements lead to higher attained compression rates"
        ),
        "Fig. 2, caption": (
            "Without DP, we cannot significantly compress. ... A higher (fixed) "
            "compression rate can also attain tighter privacy at no cost"
        ),
        "Fig. 3": (
            "Optimizing both r and b can further decrease communication, to 0.24 bits "
            "per parameter"
        ),
        "Fig. 4a": (
            "A large model, compressed to the same latent dimension as a small model, "
            "outperforms it."
        ),
        "Fig. 4b": (
            "Impact of the number of parameters on the privacy-utility-communication "
            "tradeoff. ... Large models with compression outperform small models."
        ),
        "Fig. 5": (
            "Lowest communication of 1.2 bits per parameter at z=0.1 ... Lowest "
            "communication of 0.7 bits per parameter at z=0.3"
        ),
        "Fig. 7": (
            "Increasing n leads to an increase in communication shown by the "
            "decreasing compression rates."
        ),
        "Fig. 8": (
            "With z sufficiently large, increasing ... can attain higher model "
            "performance even for increased r."
        ),
        "Fig. 9": (
            "Separate sketching does not significantly improve the final model "
            "performance."
        ),
        "Fig. 10": (
            "Separate sketching does not significantly improve the final model "
            "performance."
        ),
        "Table 1": (
            "We find that increasing r instead of b achieves the highest total "
            "compression in all cases."
        ),
        "Theorem 5.2": (
            "we can reduce the dimensionality from d to O(n²ε²) without increasing "
            "the MSE too much. ... we combine random projection with the DDG "
            "mechanism"
        ),
        "Theorem 6.1": (
            "Observe that under sparsity, both the accuracy and the communication "
            "cost depend on d logarithmically."
        ),
        "Corollary 5.4": ("bits of communication are necessary for unbiased schemes"),
        "abstract": (
            "we can reduce the communication cost significantly to under 1.2 bits per "
            "parameter in realistic privacy settings without decreasing test-time "
            "performance"
        ),
        "appendix A.2": (
            "We tried several threshold values and we found that this as well led to "
            "no significant performance gains."
        ),
        "appendix C": "find that 15 leads to optimal final test performance",
        "appendix D": (
            "We find that normalizing (Line 6) in the encoding step improves "
            "performance by reducing the norm of the sketch."
        ),
        "section 3.2": (
            "a scheme based on the discrete Gaussian mechanism (denoted as DDG) which "
            "achieves the best mean square error (MSE)"
        ),
        "section 5": (
            "needed to achieve the same accuracy (up to a constant factor) of the "
            "centralized setting ... Note that the communication cost scales up with "
            "1/ε"
        ),
        "section 7": (
            "a marginal increase in test performance with increasing b in some cases "
            "... we do not find that we can significantly increase r"
        ),
    },
    "chen2024": {
        "Fig. 1": (
            "as the ratio decreases, the noise multiplier of CSGM converges to that "
            "of the GM"
        ),
        "Fig. 2": (
            "we report the accuracy of L2-CSGM (Algorithm 1) as well as the "
            "uncompressed Gaussian mechanism."
        ),
        "Fig. 4": (
            "on the whole, we can achieve compression exceeding 100x without a "
            "significant compromise in accuracy"
        ),
        "Fig. 5": (
            "on the whole, we can achieve compression exceeding 100x without a "
            "significant compromise in accuracy"
        ),
        "Fig. 6": "Similarly, in Figure 6, we delineate the accuracy outcomes",
        "Fig. 7": (
            "we report the accuracy of SGMF (Algorithm 2) and the uncompressed matrix "
            "mechanism. ... the compression rates are generally less than DP-FedAvg"
        ),
        "Fig. 8": (
            "we report the accuracy of SGMF (Algorithm 2) and the uncompressed matrix "
            "mechanism. ... the compression rates are generally less than DP-FedAvg"
        ),
        "appendix C": (
            "compression exceeding 100x without a significant compromise in accuracy. "
            "Furthermore, as the cohort size ... increases, the impact of compression "
            "on utility diminishes."
        ),
        "section 1": (
            "sparsified Gaussian matrix factorization. Our results demonstrate a 100× "
            "improvement in compression rates in various FL tasks"
        ),
        "section 4.2": (
            "The sub-optimality gap between L∞-CSGM and the (uncompressed) Gaussian "
            "mechanism makes it undesirable in practical FL tasks, emphasizing the "
            "necessity of L2-CSGM."
        ),
        "section 6": (
            "for the matrix mechanism, the compression rates are ... less than "
            "DP-FedAvg, and ... the performance is more sensitive to server learning "
            "rates and L2 clip norms."
        ),
        "section 7": (
            "it can potentially be combined with other gradient quantization or "
            "compression techniques"
        ),
    },
    "denisov2022": {
        "Fig. 1": (
            "which indeed leads to improved performance. ... Fig. 1 compares the "
            "per-step squared error of the DP momentum iterates for these methods"
        ),
        "Fig. 2": (
            "even with constant learning rates, our matrix factorization approaches "
            "significantly outperform the previous state-of-the-art across a range of "
            "privacy"
        ),
        "Fig. 3": (
            "applying learning rate decay ... and learning rate cooldown ... show "
            "added improvements."
        ),
        "Fig. 4": (
            "In all situations we tested, the fixed-point method was significantly "
            "faster than either of the other two"
        ),
        "Fig. 6": (
            "the momentum matrix factorization performs worse than the prefix-sum "
            "matrix during the body of training, but catches up and overtakes towards "
            "the end"
        ),
        "Theorem 2.1": (
            "every matrix mechanism with Gaussian noise addition that is ... DP in the "
            "nonadaptive model is also private in the adaptive setting"
        ),
        "Table 2": (
            "this approximation recovers almost all of the accuracy improvement ... "
            "at comparable computational efficiency to tree aggregation with the "
            "Honaker estimator"
        ),
        "appendix E.4": (
            "performing all computations in float64 precision was crucial ... the "
            "fixed-point method was significantly faster ... up to two orders of "
            "magnitude in some cases."
        ),
        "appendix H": (
            "approximated by structured matrices in such a way as to be competitive "
            "with the tree-aggregation approach in terms of computation and memory"
        ),
        "section 3": (
            "computing a lower-loss matrix for the larger problem in less than 3 "
            "minutes than either alternative found in over 80 minutes."
        ),
        "section 5": (
            "increasing this to 167 ... provides additional accuracy. In combination, "
            "these techniques close more than 2/3rds of the gap between private and "
            "non-private training."
        ),
    },
    "dome2025": {
        "Theorem 3.3": (
            "Theorem 3.3 establishes that Algorithm 1 satisfies (ϵ,δ)-DP, with the "
            "detailed proof provided in Appendix A.2."
        ),
        "abstract": (
            "reduces per-round communication from order d to order k and moves "
            "towards a ... mean-squared error of σ²k ... we augment it with random "
            "probes"
        ),
        "section 1": (
            "our approach applies global variance reduction across clients, leading "
            "to more stable first- and second-moment estimates."
        ),
        "section 3": (
            "empirically demonstrate that the sequence of gradients ... in fact "
            "evolves within a low-dimensional linear subspace of the full gradient "
            "space"
        ),
        "section 3.1": (
            "we expect gradients to become more and more correlated ... To isolate "
            "novel information, we first remove the running mean ... sketch that "
            "adapts to subspace drift"
        ),
        "section 3.3": (
            "Naive noise addition adds bias to the moments of interest. ... can "
            "relate biased statistics to unbiased ones"
        ),
        "section 4": (
            "random sketching combined with Secure Aggregation to compress client "
            "updates before noise addition (Chen et al., 2022), reducing "
            "communication cost while degrading utility."
        ),
    },
}


def kept(names: Sequence[str], folder: Path) -> str:
    """The scales with results in a folder, and whether these are exact."""
    paths = (f / f"{n}.csv" for n in names for f in (folder, folder / "small"))
    rows = (row for path in paths if path.exists() for row in files.read_csv(path))
    scales = {row["scale"] for row in rows}
    words = [scale for scale in SCALES if scale in scales]
    is_exact = all(FIGURES[name].source.endswith("exact") for name in names)
    return ", ".join(words + ["exact"] * is_exact)


def lines(paper: str, folder: Path) -> str:
    """A Markdown table of a paper's figures, or a sentence if it numbers none."""
    if not NUMBERED[paper]:
        return "The paper has no figure and no table.\n"
    heads = ("in the paper", "what it shows", "here (`--figure`)", "scales kept")
    text = []
    for number, shows, figure, why in NUMBERED[paper]:
        names = figure.split()
        shown = ", ".join(f"`{name}`" for name in names)
        here = (shown, kept(names, folder)) if names else ("", "")
        text.append((number, shows, *here, why))
    return tables.markdown((*heads, "not reproduced because"), text)


def words(paper: str) -> str:
    """A Markdown table of quotations from a paper."""
    text = [(place, f"“{said}”") for place, said in WORDS[paper].items()]
    return tables.markdown(("in the paper", "its own words"), text)
