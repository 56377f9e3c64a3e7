# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fixed-point iteration for the optimal factorization, with its certificate.

With X = C^T C the problem is to minimise tr(A^T A X^-1) over diag(X) <= 1 (Denisov et
al. 2022, Equations 3-8). Write G = A^T A, D = diag(v) for a vector v > 0, and

  R(v)   = (D^1/2 G D^1/2)^1/2            symmetric root, eigenvalues floored at zero
  phi(v) = diag(R(v))
  X(v)   = D^-1/2 R(v) D^-1/2

The optimum is at the fixed point v = phi(v). For every v > 0 it is at least
2 tr R(v) - sum(v). R(c v) = sqrt(c) R(v), so the best multiple of v gives

  bound(v) = (tr R(v))^2 / sum(v),

which is the bound used: a multiple of v costs nothing. With x = sqrt(diag X(v)), the
normalised X(v) / (x x^T) is feasible, so its loss bounds the optimum from above; both
bounds have an error of second order in phi(v) - v, which is why the gap closes much
sooner than the iterates.

Plain iteration: v <- phi(v). Here: u = log v, f = log phi(v) - u, and

  u <- u + 2 f, with Anderson mixing over the last few pairs (u, f).

Reason for a step of 2. Let R = V diag(s) V^T. The derivative J of phi, with respect to
u, is the quadratic form w^T J w = sum_ab P_ab [V^T diag(w) V]_ab^2 with
P_ab = (s_a^2 + s_b^2) / (2 (s_a + s_b)), and (s_a + s_b)/4 <= P_ab <= (s_a + s_b)/2.
The two limits give w^T diag(phi) w times 1/2 and 1. At the fixed point J is thus
self-adjoint in the inner product weighted by phi, with spectrum in [1/2, 1]: every
error is multiplied by a factor from 1/2 to 1 in a plain step. A step of 2 maps each
eigenvalue j to 2 j - 1 in [0, 1], which is below j and still not negative.
`prolong` makes a start of the solution of a problem with fewer rounds.
"""

from __future__ import annotations

import dataclasses
import math
import time

import numpy as np
from scipy import linalg

_HISTORY = 6  # Pairs kept by Anderson mixing.
_STEP = 2.0


class ConvergenceError(RuntimeError):
    """The requested gap was not reached in the allowed iterations."""


@dataclasses.dataclass(frozen=True)
class IterationProgress:
    """One iteration, of one symmetric eigendecomposition: its cost and certificate.

    Attributes:
      seconds: Wall-clock time since the solver was called.
      loss: Least loss of a feasible X seen so far.
      bound: Greatest lower bound on the optimal loss seen so far.
    """

    seconds: float
    loss: float
    bound: float

    @property
    def gap(self) -> float:
        """(loss - bound) / loss."""
        return (self.loss - self.bound) / self.loss


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """The dual vector found, with its certificate.

    Attributes:
      v: float64 of shape (T,), positive.
      gram: X = C^T C with unit diagonal, float64 of shape (T, T).
      history: One entry an iteration (at the finest level).
    """

    v: np.ndarray
    gram: np.ndarray
    history: tuple[IterationProgress, ...]

    @property
    def bound(self) -> float:
        """A lower bound on the loss of every factorization."""
        return self.history[-1].bound


@dataclasses.dataclass(frozen=True, eq=False)
class Root:
    """R(v) = vectors diag(values) vectors^T, and functions of it."""

    v: np.ndarray
    values: np.ndarray
    vectors: np.ndarray

    @classmethod
    def of(cls, gram: np.ndarray, v: np.ndarray) -> Root:
        """The symmetric root of D^1/2 G D^1/2, by an eigendecomposition."""
        half = np.sqrt(v)
        scaled = gram * half[:, None]
        scaled *= half
        # 'evd' needs the lower triangle in Fortran order; the transpose of a symmetric
        # matrix in C order is that, without a copy.
        driver = "evd" if len(v) > 1 else "ev"  # scipy's workspace query fails for 1.
        values, vectors = linalg.eigh(
            scaled.T, driver=driver, overwrite_a=True, check_finite=False
        )
        return cls(v, np.sqrt(np.maximum(values, 0.0)), vectors)

    @property
    def phi(self) -> np.ndarray:
        """The diagonal of R, shape (T,): Denisov et al. 2022, (5)."""
        return np.einsum("ij,ij,j->i", self.vectors, self.vectors, self.values)

    @property
    def bound(self) -> float:
        """(tr R(v))^2 / sum(v), a lower bound on the optimal loss for every v > 0."""
        return float(np.sum(self.values)) ** 2 / float(np.sum(self.v))

    def normalised_loss(self, gram: np.ndarray) -> float:
        """tr(G X^-1) for X(v) scaled to unit diagonal.

        X^-1 = diag(y) R^-1 diag(y) with y = sqrt(v) sqrt(phi / v) = sqrt(phi), so
        the loss is sum_ij y_i G_ij (R^-1)_ij y_j.
        """
        if self.values[0] <= 0:
            return math.inf
        half = self.vectors / np.sqrt(self.values)
        inverse = half @ half.T
        inverse *= gram
        y = np.sqrt(self.phi)
        return float(y @ inverse @ y)

    def normalised_gram(self) -> np.ndarray:
        """X(v) scaled to unit diagonal: R_ij / sqrt(phi_i phi_j)."""
        half = self.vectors * np.sqrt(self.values)
        half /= np.sqrt(np.einsum("ij,ij->i", half, half))[:, None]
        result = half @ half.T
        np.fill_diagonal(result, 1.0)
        return result


class AndersonUpdate:
    """u <- u + 2 f mixed over the last pairs; restarts from the best when worse."""

    def __init__(self) -> None:
        self._u: list[np.ndarray] = []
        self._f: list[np.ndarray] = []
        self._best = (-math.inf, np.empty(0))

    def __call__(self, v: np.ndarray, phi_v: np.ndarray, bound: float) -> np.ndarray:
        """The next v, after one with this phi and this lower bound on the loss.

        Args:
          v: The current v, shape (T,).
          phi_v: phi(v), shape (T,).
          bound: The lower bound at v.
        """
        u = np.log(v)
        f = np.log(phi_v) - u
        best_bound, best_phi = self._best
        mixed = len(self._u) > 1
        if mixed and not bound >= best_bound:
            # The mixed step made the bound worse: forget the history and take a plain
            # step from the best point, which contracts.
            self._u.clear()
            self._f.clear()
            return best_phi
        if not bound < best_bound:
            self._best = (bound, phi_v)
        self._u = [*self._u, u][-_HISTORY - 1 :]
        self._f = [*self._f, f][-_HISTORY - 1 :]
        step = u + _STEP * f
        if len(self._u) > 1:
            df = np.diff(np.array(self._f), axis=0).T
            du = np.diff(np.array(self._u), axis=0).T
            # The natural norm is weighted by phi: see the module's docstring.
            weight = np.sqrt(phi_v)
            mix = np.linalg.lstsq(df * weight[:, None], f * weight, rcond=1e-12)[0]
            step -= (du + _STEP * df) @ mix
        return np.exp(step)


def prolong(v: np.ndarray, rounds: int) -> np.ndarray:
    """A start for T rounds, shape (T,), from the solution for t of them, shape (t,).

    The first and last quarter of v are boundary layers: their shape in steps, not in
    shares of the run, hardly depends on T. They are copied, and scaled to join the
    middle, which is stretched (interpolation in log v).
    """
    log = np.log(v)
    edge = max(1, len(v) // 4)
    where = (np.arange(rounds) + 0.5) * len(v) / rounds - 0.5
    result = np.interp(where, np.arange(len(v)), log)
    left, right = result[edge - 1], result[-edge]
    result[:edge] = left + log[:edge] - log[edge - 1]
    result[-edge:] = right + log[-edge:] - log[-edge]
    return np.exp(result)


def solve(
    gram: np.ndarray,
    *,
    rtol: float = 1e-6,
    max_iterations: int = 500,
    accelerated: bool = True,
    start: np.ndarray | None = None,
) -> Solution:
    """The minimiser of tr(G X^-1) over diag(X) <= 1, with its certificate.

    Args:
      gram: G, float64 of shape (T, T), symmetric positive definite.
      rtol: Relative duality gap to reach, positive.
      max_iterations: Iterations allowed.
      accelerated: Whether to take steps of 2 with Anderson mixing; else the plain fixed
        point.
      start: First v; None starts at diag(G^1/2).

    Raises:
      ConvergenceError: If the gap is not reached.
    """
    begin = time.perf_counter()
    v = Root.of(gram, np.ones(len(gram))).phi if start is None else start
    update = AndersonUpdate()
    history: list[IterationProgress] = []
    loss, bound = math.inf, 0.0
    for _ in range(max_iterations):
        root = Root.of(gram, v)
        at_v = root.normalised_loss(gram)
        loss, bound = min(loss, at_v), max(bound, root.bound)
        history.append(IterationProgress(time.perf_counter() - begin, loss, bound))
        if history[-1].gap <= rtol and at_v <= loss:
            return Solution(v, root.normalised_gram(), tuple(history))
        v = update(v, root.phi, root.bound) if accelerated else root.phi
        del root
    raise ConvergenceError(
        f"rtol {rtol:g} was not reached in {max_iterations} iterations: the relative "
        f"gap is {history[-1].gap:g}"
    )
