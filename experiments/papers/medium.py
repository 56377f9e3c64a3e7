# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Settings of the medium scale: real data, three seeds or more, one machine.

    cells = [({"task": medium.MNIST}, medium.FLAGS[medium.MNIST])]
    runs = medium.seeded("secagg_fig2", cells)

MNIST by its 836 writers with the papers' network, and Fashion-MNIST dealt to 2000
clients with the small one. A run on MNIST with 100 clients a round takes three minutes
of a processor, and one on Fashion-MNIST less than one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from .sweep import Cell, axis, cross

SEEDS = (1, 2, 3)
# Labels of cells with more seeds, by figure.
_MORE_SEEDS: Mapping[str, tuple[tuple[Mapping[str, Any], int], ...]] = {
    **dict.fromkeys(("equal_bits", "equal_bits_long"), (({}, 10),)),
    **dict.fromkeys(("secagg_noise", "secagg_threshold"), (({}, 10),)),
    **dict.fromkeys(("equal_bits_fashion", "secagg_fig4", "sgmf_own"), (({}, 6),)),
    "secagg_fig2": tuple(
        ({"budget": 8.0, "compression_rate": rate}, 6) for rate in (1, 10, 100)
    ),
    **dict.fromkeys(
        ("secagg_fig3", "secagg_table1"),
        (
            *(({"compression_rate": rate}, 6) for rate in (10, 100)),
            *(({"compression_rate": 1, "bits": bits}, 6) for bits in (6, 16)),
        ),
    ),
    "secagg_fig9": (
        *(({"embedding": rate, "rest": rate}, 6) for rate in (10, 100)),
        ({"rest": "together"}, 6),
    ),
    "dome_compare": tuple(
        ({"mechanism": name, "epsilon": 8.0}, 10)
        for name in ("dome_ddg_rank1", "sketched_ddg_adam")
    ),
    "stream_training": (({"mechanism": "GM"}, 6),),
}
MNIST = "mnist"
FASHION = "fashion"
# The flags that all runs share, by task, at any compression. Rates come from a few
# trials on the validation set (docs/results/medium_validation.csv). Cohorts and budgets
# are each figure's.
FLAGS: Mapping[str, Mapping[str, Any]] = {
    MNIST: {
        **{"task": MNIST, "model": "cnn", "participation": "poisson", "rounds": 48},
        **{"client_lr": 0.1, "server_lr": 0.5, "clip_norm": 0.3},
        **{"server_momentum": 0.9, "delta": 1e-4},
        **{"eval_every": 6, "checkpoint_every": 24},
    },
    FASHION: {
        **{"flagfile": "tasks/fashion.flags", "cohort_size": 100, "rounds": 100},
        **{"client_lr": 0.1, "server_lr": 0.5, "clip_norm": 0.3},
        **{"server_momentum": 0.9, "eval_every": 20, "checkpoint_every": 100},
    },
}
# The server's rate on MNIST where there is more noise than with 100 clients a round at
# epsilon 8. In trials it was two and a half points better with 50 clients and L2-CSGM,
# and half a point at epsilon 2.
CAREFUL = {"server_lr": 0.2}


def seeded(
    figure: str, cells: Iterable[Cell], seeds: Optional[Sequence[int]] = None
) -> list[Cell]:
    """The runs of a figure's cells, one for each seed.

    Args:
      figure: Name of the figure.
      cells: The cells.
      seeds: The seeds; None for those of this scale.
    """
    more, runs = _MORE_SEEDS.get(figure, ()), []
    for cell in cells:
        counts = [n for labels, n in more if labels.items() <= cell[0].items()]
        own = seeds or range(1, max([len(SEEDS), *counts]) + 1)
        runs += cross([cell], axis("seed", own))
    return runs
