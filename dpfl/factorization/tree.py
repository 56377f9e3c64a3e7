# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""The binary tree and Honaker's two estimators.

C = T has one row a dyadic interval of rounds inside [0, n), ordered by the step at
which it is complete: T_1 = [1], T_2k = [[T_k, 0], [0, T_k], [1 ... 1]] (Denisov et al.
2022, Appendix C). For n that is no power of two, the intervals that end after the last
round are left out. Row i of B weighs the nodes so that B T = S:

  full:   B = S T^+, the least-norm weights on all nodes; not causal, which Gaussian
          noise permits (Denisov et al. 2022, Theorem 2.1);
  online: the least-norm weights on nodes complete by step i.

Online in closed form. The prefix [0, i] is a disjoint union of maximal dyadic
intervals, and every node complete by step i lies in one of them, so each is estimated
separately. An interval of height h is estimated with weight a on its own node and
1 - a on its halves' estimates, with variance a^2 + 2 (1 - a)^2 N_{h-1} at its least for

  a_h = N_h = 2 N_{h-1} / (1 + 2 N_{h-1}) = 2^h / (2^{h+1} - 1),  N_0 = 1

(Honaker 2015). For a workload M that is not the prefix sum, B is M S^-1 times that.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import linalg

from dpfl.factorization.factorization import Factorization
from dpfl.factorization.factors import TreeFactors, tree_encoder
from dpfl.factorization.workloads import Workload, check_dense


def intervals(rounds: int) -> np.ndarray:
    """The nodes: int64 of shape (m, 2) with rows (first round, height).

    Node (a, h) sums the rounds a, ..., a + 2^h - 1 and is complete at the last of
    them; nodes are ordered by that, then by height.
    """
    nodes = []
    for end in range(1, rounds + 1):
        height = 0
        while end % (1 << height) == 0:
            nodes.append((end - (1 << height), height))
            height += 1
    return np.array(nodes, dtype=np.int64)


def full_decoder(rounds: int) -> np.ndarray:
    """S T^+ = S (T^T T)^-1 T^T, float64 of shape (n, m)."""
    tree = tree_encoder(intervals(rounds), rounds)
    solved = linalg.cho_solve(linalg.cho_factor(tree.T @ tree), tree.T)
    return np.cumsum(solved, axis=0)


def online_decoder(rounds: int) -> np.ndarray:
    """Honaker's estimator from below, float64 of shape (n, m)."""
    nodes = [(int(first), int(height)) for first, height in intervals(rounds)]
    index = {node: row for row, node in enumerate(nodes)}
    # Row j estimates node j online from the nodes below.
    weights = np.zeros((len(nodes), len(nodes)))
    for row, (first, height) in enumerate(nodes):
        own = 2.0**height / (2.0 ** (height + 1) - 1)
        weights[row, row] = own
        if height:
            for start in (first, first + (1 << (height - 1))):
                weights[row] += (1 - own) * weights[index[start, height - 1]]
    result = np.zeros((rounds, len(nodes)))
    for step in range(rounds):
        start, length = 0, step + 1
        while length:
            height = length.bit_length() - 1
            result[step] += weights[index[start, height]]
            start += 1 << height
            length -= 1 << height
    return result


def _build(
    workload: Workload, method: str, decode: Callable[[int], np.ndarray]
) -> Factorization:
    check_dense(workload.rounds)
    decoder = decode(workload.rounds)
    if not workload.is_prefix_sum:
        decoder = workload.apply(Workload(workload.rounds).solve(decoder))
    factors = TreeFactors(decoder, intervals(workload.rounds))
    return Factorization(workload, method, {}, factors)


def honaker_full(workload: Workload) -> Factorization:
    """The tree with the least-norm decoder B = S T^+ (M S^-1 of it for M)."""
    return _build(workload, "honaker-full", full_decoder)


def honaker_online(workload: Workload) -> Factorization:
    """The tree with the causal decoder: DP-FTRL (Kairouz et al. 2021)."""
    return _build(workload, "honaker-online", online_decoder)
