# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Optimal factorization for clients that return every b rounds.

With G = A^T A and X = C^T C, E(X) = tr(G X^-1) is minimised subject to, for each j < b,

  sum_{m, n} |X[j + m b, j + n b]| <= 1,

the squared sensitivity of a client in rounds j, j + b, ... (Choquette-Choo et al.
2023a). Let W have the blocks v_j S_j on these rounds, with v_j > 0, ones on the
diagonal of S_j and entries of it in [-1, 1]: sum_ij W_ij X_ij <= sum_j v_j for every
feasible X. So for every such W that is positive definite E is at least

  min_X tr(G X^-1) + tr(W X) - sum_j v_j = 2 tr M^(1/2) - sum_j v_j,
  M = G^(1/2) W G^(1/2),

and with the best multiple of W at least (tr M^(1/2))^2 / sum_j v_j. The minimising X
there, G^(1/2) M^(-1/2) G^(1/2), has E = tr M^(1/2), and over its sensitivity squared it
is feasible: the two bounds enclose the optimum. L-BFGS raises the lower one over log v
and the entries of S, from v alone; momentum makes it slow. (At the optimum no entry of
S was at its bound in any of the cases tried: X is zero between the rounds of a client.)
"""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np

from dpfl import checks
from dpfl.factorization.factorization import Factorization
from dpfl.factorization.iteration import ConvergenceError
from dpfl.factorization.optimal import dense_factors, lower_encoder
from dpfl.factorization.toeplitz import minimized
from dpfl.factorization.workloads import Workload, check_dense

# Parts of the start's least eigenvalue of M, below which the root continues as its
# tangent, and of its sum of roots, below which the logarithm does, so that a step too
# far has a value.
_FLOOR, _LEAST = 1e-3, 0.1


@dataclasses.dataclass(frozen=True)
class EpochsSolution:
    """Gram matrix X of the optimal encoder, with its loss and a lower bound.

    Attributes:
      gram: X, its sensitivity 1; shape (T, T).
      loss: tr(G X^-1), the total squared error.
      bound: A lower bound on the loss of every X.
    """

    gram: np.ndarray
    loss: float
    bound: float

    @property
    def gap(self) -> float:
        """(loss - bound) / loss."""
        return (self.loss - self.bound) / self.loss


class _ReachedError(Exception):
    """The gap is small enough: ends the search."""


class Dual:
    """The lower bound as a function of log v and the entries of S."""

    def __init__(self, gram: np.ndarray, separation: int):
        values, vectors = np.linalg.eigh(gram)
        self._root = (vectors * np.sqrt(values)) @ vectors.T
        self._rounds = [
            np.arange(first, len(gram), separation) for first in range(separation)
        ]
        self._pairs = [np.triu_indices(len(own), 1) for own in self._rounds]
        self._ends = np.cumsum([separation] + [len(pair[0]) for pair in self._pairs])
        scale = [np.mean(np.diag(self._root)[own]) for own in self._rounds]
        self.start = np.zeros(self._ends[-1])
        self.start[:separation] = np.log(scale)
        entries = self._ends[-1] - separation
        self.bounds = [(None, None)] * separation + [(-1.0, 1.0)] * entries
        self._floor = 0.0
        _, values, roots, _ = self._eigen(self.start)
        self._floor, self._least = _FLOOR * values[0], _LEAST * float(np.sum(roots))

    def _blocks(self, params: np.ndarray) -> list[np.ndarray]:
        """S_j of every j."""
        blocks = []
        for own, pair, start, end in zip(
            self._rounds, self._pairs, self._ends, self._ends[1:]
        ):
            block = np.zeros((len(own), len(own)))
            block[pair] = params[start:end]
            blocks.append(block + block.T + np.eye(len(own)))
        return blocks

    def _eigen(
        self, params: np.ndarray
    ) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
        """The S_j, and M's eigenvalues, their roots and the vectors."""
        blocks = self._blocks(params)
        weights = np.exp(params[: len(blocks)])
        product = np.zeros_like(self._root)
        for own, block, weight in zip(self._rounds, blocks, weights):
            columns = self._root[:, own]
            product += weight * (columns @ block @ columns.T)
        values, vectors = np.linalg.eigh(product)
        return blocks, values, self._roots(values), vectors

    def _roots(self, values: np.ndarray) -> np.ndarray:
        if not self._floor:
            return np.sqrt(values)
        least = np.sqrt(self._floor)
        tangent = least + (values - self._floor) / (2 * least)
        return np.where(values > self._floor, np.sqrt(np.abs(values)), tangent)

    def _gram(self, values: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """G^(1/2) M^(-1/2) G^(1/2)."""
        turned = self._root @ vectors
        return (turned / np.sqrt(np.maximum(values, self._floor))) @ turned.T

    def __call__(self, params: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the log of the lower bound, and the gradient."""
        blocks, values, roots, vectors = self._eigen(params)
        gram = self._gram(values, vectors)
        weights = np.exp(params[: len(blocks)])
        trace = float(np.sum(roots))
        at = max(trace, self._least)
        log_trace = np.log(at) + (trace - at) / at
        gradient = np.empty_like(params)
        gradient[: len(blocks)] = -weights / np.sum(weights)
        for j, (own, pair) in enumerate(zip(self._rounds, self._pairs)):
            part = gram[np.ix_(own, own)] * weights[j] / at
            gradient[j] += np.sum(part * blocks[j])
            gradient[self._ends[j] : self._ends[j + 1]] = 2 * part[pair]
        value = 2 * log_trace - np.log(np.sum(weights))
        return -float(value), -gradient

    def solution(self, params: np.ndarray) -> EpochsSolution:
        """X at some parameters, with both bounds."""
        blocks, values, roots, vectors = self._eigen(params)
        gram = self._gram(values, vectors)
        squared = max(np.abs(gram[np.ix_(own, own)]).sum() for own in self._rounds)
        bound = 0.0
        if values[0] > self._floor:
            weights = np.exp(params[: len(blocks)])
            bound = float(np.sum(roots)) ** 2 / float(np.sum(weights))
        kept = np.maximum(values, self._floor)
        loss = float(np.sum(np.sqrt(kept)) * squared)
        return EpochsSolution(gram / squared, loss, bound)


def solve_epochs(
    workload: Workload,
    separation: int,
    *,
    rtol: float = 1e-3,
    max_iterations: int = 1000,
) -> EpochsSolution:
    """The X of least error for rounds j, j + b, j + 2 b, ... of each client.

    Args:
      workload: A.
      separation: b, in [1, T].
      rtol: Relative gap between error and lower bound to reach; its effect on standard
        deviations is half.
      max_iterations: L-BFGS iterations.

    Raises:
      ConvergenceError: The gap is not reached.
      ValueError: An argument is out of range.
    """
    separation = checks.integer("separation", separation, at_most=workload.rounds)
    check_dense(workload.rounds)
    matrix = workload.matrix()
    dual = Dual(matrix.T @ matrix, separation)
    best = dual.solution(dual.start)
    done = 0

    def stop(params: np.ndarray) -> None:
        nonlocal best, done
        done += 1
        if done % 5 == 0:
            best = min(best, dual.solution(params), key=lambda solution: solution.gap)
            if best.gap <= rtol:
                raise _ReachedError

    options = {"maxiter": max_iterations, "ftol": 0.0, "gtol": 0.0}
    with contextlib.suppress(_ReachedError):
        optimum = minimized(dual, dual.start, dual.bounds, stop, **options)
        best = min(best, dual.solution(optimum), key=lambda solution: solution.gap)
    if not best.gap <= rtol:
        raise ConvergenceError(
            f"rtol {rtol:g} was not reached in {max_iterations} iterations: the "
            f"relative gap is {best.gap:g}"
        )
    return best


def factorize_epochs(
    workload: Workload, *, separation: int | None = None, rtol: float = 1e-3
) -> Factorization:
    """The optimal factorization for clients that return every b rounds.

    Its error is that under `FixedEpochs(ceil(T / b), b)`, for which its sensitivity is
    1. C is lower triangular, dense.

    Args:
      workload: A.
      separation: b; None is T, with which no client returns.
      rtol: See `solve_epochs`.

    Raises:
      ConvergenceError: The gap is not reached.
    """
    b = workload.rounds if separation is None else separation
    encoder = lower_encoder(solve_epochs(workload, b, rtol=rtol).gram)
    factors = dense_factors(workload, encoder)
    params = {"separation": b, "rtol": rtol}
    return Factorization(workload, "optimal-epochs", params, factors)
