# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Workloads: the linear map A from round sums to the server's releases.

    Workload(rounds=1000, momentum=0.9, schedule=LinearCooldown())

Momentum SGD with rates eta is x_t = x_0 - sum_{s<=t} eta_s m_s with
m_s = beta m_{s-1} + g_s, so its iterates are x_0 - M G for
M = S diag(eta) M_beta, where S is the prefix sum (ones on and below the diagonal)
and M_beta[i, j] = beta^(i-j) for i >= j (Denisov et al. 2022, Proposition 4.2).
Every workload of this package is such an M; the prefix sum is beta = 0, eta = 1.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from scipy import signal

from dpfl import checks
from dpfl.fields import Checked, option, required

# Largest T of a stream that stores vectors alone, and of one with matrices of T by T:
# at the latter's end one takes half a GiB, and the optimal factorization a quarter of
# an hour.
MOST_ROUNDS = 10**6
MOST_DENSE_ROUNDS = 8192
_MOST_PRODUCTS = 2**30
# Range of rates: with rates further apart the smaller ones would vanish in float64
# sums.
RATE_RANGE = (1e-9, 1e9)


def check_dense(rounds: int) -> None:
    """Raises ValueError if matrices of T by T would exceed a machine's memory."""
    wanted = f"at most {MOST_DENSE_ROUNDS} for a dense matrix"
    checks.require(rounds <= MOST_DENSE_ROUNDS, "rounds", wanted, rounds)


def check_products(name: str, value: int, rounds: int) -> None:
    """Raises ValueError if a sum of `value` terms in each round takes too long.

    Args:
      name: The argument's name, for the message.
      value: The number of terms in each round.
      rounds: T.
    """
    most = max(1, _MOST_PRODUCTS // rounds)
    checks.integer(name, value, None, most, f"for {rounds} rounds")


class Schedule(Checked, abc.ABC):
    """A data-independent learning-rate schedule, relative to the base rate."""

    name: str
    checked_arguments: ClassVar[Mapping[str, checks.Check]] = {"rounds": checks.integer}

    @abc.abstractmethod
    def rates(self, rounds: int) -> np.ndarray:
        """The rates eta, float64 of shape (rounds,), all positive."""

    def as_dict(self) -> dict[str, Any]:
        """A JSON value from which `Workload.from_dict` restores this schedule."""
        return {"name": self.name, **dataclasses.asdict(self)}  # type: ignore[call-overload]


@dataclasses.dataclass(frozen=True)
class ConstantRate(Schedule):
    """eta_t = 1."""

    name = "constant"

    def rates(self, rounds: int) -> np.ndarray:
        """See base class."""
        return np.ones(rounds)


def _rate(name: str, value: Any) -> float:
    least, most = RATE_RANGE
    return checks.real(name, value, at_least=least, at_most=most)


def _ones_and_tail(rounds: int, fraction: float) -> tuple[np.ndarray, int]:
    """Rates of 1, and the number of them, at least one, in a fraction at the end."""
    rates = np.ones(rounds)
    return rates, max(1, round(rounds * fraction))


@dataclasses.dataclass(frozen=True)
class DropRate(Schedule):
    """eta_t = 1, then `factor` over the last `fraction` of the rounds.

    Attributes:
      factor: The rate after the drop over the rate before it, positive.
      fraction: Share of the rounds after the drop, in (0, 1].
    """

    factor: float = option(0.1, None, check=_rate)
    fraction: float = option(0.25, None, check=checks.fraction)
    name = "drop"

    def rates(self, rounds: int) -> np.ndarray:
        """See base class."""
        rates, tail = _ones_and_tail(rounds, self.fraction)
        rates[rounds - tail :] = self.factor
        return rates


@dataclasses.dataclass(frozen=True)
class LinearCooldown(Schedule):
    """eta_t = 1, then linear to `final` over the last `fraction` of the rounds.

    With w rounds in the tail, its i-th rate (from 1) is 1 - (1 - final) i / w: the
    last round's is `final` exactly. The defaults are the cooldown of Denisov et al.
    2022, Figure 3.

    Attributes:
      final: The last round's rate, positive.
      fraction: Share of the rounds in the tail, in (0, 1].
    """

    final: float = option(0.05, None, check=_rate)
    fraction: float = option(0.25, None, check=checks.fraction)
    name = "cooldown"

    def rates(self, rounds: int) -> np.ndarray:
        """See base class."""
        rates, tail = _ones_and_tail(rounds, self.fraction)
        rates[rounds - tail :] -= (1 - self.final) * np.arange(1, tail + 1) / tail
        return rates


_KINDS: list[type[Schedule]] = [ConstantRate, DropRate, LinearCooldown]
_SCHEDULES = {kind.name: kind for kind in _KINDS}


@dataclasses.dataclass(frozen=True)
class Workload(Checked):
    """M = S diag(eta) M_beta over T rounds.

    Attributes:
      rounds: T, the number of rounds in one stream.
      momentum: beta in [0, 1).
      schedule: The rates eta, relative to the server's base rate.
    """

    rounds: int = required(None, at_least=1, at_most=MOST_ROUNDS)
    momentum: float = option(0.0, None, at_least=0, below=1)
    schedule: Schedule = ConstantRate()

    def __post_init__(self) -> None:
        super().__post_init__()
        least = float(np.min(self.schedule.rates(self.rounds)))
        checks.require(least > 0, "rates", "positive", least)

    @property
    def rates(self) -> np.ndarray:
        """eta, float64 of shape (T,)."""
        return self.schedule.rates(self.rounds)

    @property
    def is_toeplitz(self) -> bool:
        """Whether A[i, j] depends on i - j alone: a constant rate."""
        return isinstance(self.schedule, ConstantRate)

    @property
    def is_prefix_sum(self) -> bool:
        """Whether A is the prefix sum S."""
        return self.is_toeplitz and self.momentum == 0

    def apply(self, x: np.ndarray) -> np.ndarray:
        """A x without forming A, in O(size of x); x has shape (T, ...)."""
        x = np.asarray(x, dtype=np.float64)
        moment = x
        if self.momentum:
            moment = signal.lfilter([1.0], [1.0, -self.momentum], x, axis=0)
        rates = self.rates.reshape((-1,) + (1,) * (x.ndim - 1))
        return np.cumsum(rates * moment, axis=0)

    def solve(self, y: np.ndarray) -> np.ndarray:
        """A^-1 y in O(size of y): A^-1 has three diagonals; y is (T, ...)."""
        y = np.asarray(y, dtype=np.float64)
        moment = np.diff(y, axis=0, prepend=np.zeros_like(y[:1]))
        moment /= self.rates.reshape((-1,) + (1,) * (y.ndim - 1))
        result = moment.copy()
        result[1:] -= self.momentum * moment[:-1]
        return result

    def matrix(self) -> np.ndarray:
        """A, float64 of shape (T, T), lower triangular.

        Raises:
          ValueError: If T is above `MOST_DENSE_ROUNDS`.
        """
        check_dense(self.rounds)
        return self.apply(np.eye(self.rounds))

    def as_dict(self) -> dict[str, Any]:
        """A JSON value from which `from_dict` restores an equal workload."""
        return {
            "rounds": self.rounds,
            "momentum": self.momentum,
            "schedule": self.schedule.as_dict(),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Workload:
        """The workload that `as_dict` described.

        Raises:
          KeyError, TypeError, ValueError: If a field is missing or does not fit.
        """
        fields = dict(value["schedule"])
        schedule = _SCHEDULES[fields.pop("name")](**fields)
        return cls(value["rounds"], value["momentum"], schedule)

    def __str__(self) -> str:
        kind = "prefix sum" if self.momentum == 0 else f"momentum {self.momentum:g}"
        return f"{kind}, {self.schedule.name} rate, T={self.rounds}"


def prefix_sum(rounds: int) -> Workload:
    """S: ones on and below the diagonal."""
    return Workload(rounds)
