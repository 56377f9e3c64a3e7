# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""One round as a row of metrics.csv."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Optional

import numpy as np

from dpfl import covered
from dpfl.training import plan as plan_lib
from dpfl.training import provenance
from dpfl.training.appended import DamagedRecordError

Row = dict[str, Any]

_TOTAL_UP, _TOTAL_DOWN = (
    f"{covered.MARK}total_{way}link_bits" for way in ("up", "down")
)


class Tally(NamedTuple):
    """What the rows of all rounds so far come to; as large after one as after many.

    Attributes:
      rounds: How many there are.
      clients: Clients of all rounds.
      last: The last row, None if there is none.
      evaluated: The last row of a model that was evaluated, None if there is none.
    """

    rounds: int = 0
    clients: int = 0
    last: Optional[Row] = None
    evaluated: Optional[Row] = None

    def plus(self, row: Row) -> Tally:
        """Returns the tally with one row more, its exact columns among them."""
        was_evaluated = covered.value(row, "eval_accuracy") is not None
        return Tally(
            row["round"],
            self.clients + row["exact_clients"],
            row,
            row if was_evaluated else self.evaluated,
        )


def plain_number(value: Any) -> Any:
    """Returns a scalar as a Python number, float32 in its shortest decimal form."""
    array = np.asarray(value)
    if array.dtype == np.float32:
        return float(str(array[()]))
    return array.item()


def round_row(
    plan: plan_lib.Plan,
    before: Tally,
    clients: int,
    train: Mapping[str, Any],
    evaluated: Mapping[str, Any],
    epsilon: float,
    measurements: Any,
) -> Row:
    """Returns the row of a round; the name of what is exact says so, see `covered`.

    Args:
      plan: The run's plan, for the bits that are not measured.
      before: Of the rounds before.
      clients: How many took part.
      train: The clients' metrics, name to scalar.
      evaluated: Metrics on the evaluation set; name to None if it was not due.
      epsilon: Of all rounds so far.
      measurements: Of the aggregator, nested; what is no scalar is left out.
    """
    row: Row = {"round": before.rounds + 1, "exact_clients": clients}
    row.update(_prefixed("exact_train_", train))
    mark = covered.MARK if plan.task.clients_hold_test_examples else ""
    row.update(_prefixed(f"{mark}eval_", evaluated))
    row["epsilon"] = epsilon
    row["noise_multiplier"] = provenance.noise_multiplier(plan)
    measured = {
        covered.measured_column(name): value
        for name, value in _prefixed("", flat_scalars(measurements)).items()
    }
    row.update(_bit_columns(plan, before, clients, measured))
    row.update(measured)
    return row


def check_noise(plan: plan_lib.Plan, rows: Iterable[Row]) -> None:
    """Makes sure that the plan's epsilon is that of the noise which rounds really had.

    Args:
      plan: The run's plan, with which it goes on.
      rows: Of rounds that were done.

    Raises:
      DamagedRecordError: If a round had another noise multiplier than the plan's.
    """
    planned = provenance.noise_multiplier(plan)
    for row in rows:
        if row["noise_multiplier"] != planned:
            raise DamagedRecordError(
                f"noise_multiplier must be the {row['noise_multiplier']} that round "
                f"{row['round']} of this run had, found {planned}; choose another "
                "output_dir"
            )


def flat_scalars(measurements: Any, prefix: str = "") -> dict[str, Any]:
    """Returns nested measurements as one level; what is no scalar is left out."""
    flat: dict[str, Any] = {}
    if isinstance(measurements, Mapping):
        for name, part in measurements.items():
            flat.update(flat_scalars(part, f"{prefix}_{name}" if prefix else name))
    elif np.ndim(measurements) == 0 and not isinstance(
        measurements, (str, bytes, tuple)
    ):
        flat[prefix] = measurements
    return flat


def bits_per_client(plan: plan_lib.Plan, tally: Tally) -> dict[str, Any]:
    """Returns bits per client and round, as measured; as expected without any client.

    Args:
      plan: The run's plan.
      tally: Of all rounds so far.
    """
    clients, dimension = tally.clients, plan.dimension
    up = plan.mechanism.uplink_bits(dimension)
    down = plan.mechanism.downlink_bits(dimension)
    if clients and tally.last is not None:
        up = tally.last[_TOTAL_UP] / clients
        down = tally.last[_TOTAL_DOWN] / clients
    return {
        "uplink_bits_per_client": up,
        "uplink_bits_per_parameter": up / dimension,
        "downlink_bits_per_client": down,
        "downlink_bits_per_parameter": down / dimension,
        "compression_rate": 32 * dimension / up,
        "total_uplink_bits": up * clients,
        "total_downlink_bits": down * clients,
    }


def _bit_columns(
    plan: plan_lib.Plan,
    before: Tally,
    clients: int,
    measured: Mapping[str, Any],
) -> Row:
    """Returns the bits of a client in this round, and of all clients so far.

    Bits up are exact where they are measured, and else those of the formula.
    """
    mechanism, dimension = plan.mechanism, plan.dimension
    name = f"{covered.MARK}uplink_bits"
    up = measured.get(covered.measured_column("uplink_bits"))
    if up is None:
        name, up = "uplink_bits", mechanism.uplink_bits(dimension)
    column = covered.measured_column("downlink_bits")
    down = measured.get(column, mechanism.downlink_bits(dimension))
    last = before.last or {_TOTAL_UP: 0, _TOTAL_DOWN: 0}
    return {
        name: up,
        "downlink_bits": down,
        _TOTAL_UP: last[_TOTAL_UP] + clients * up,
        _TOTAL_DOWN: last[_TOTAL_DOWN] + clients * down,
    }


def _prefixed(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{prefix}{name}": None if value is None else plain_number(value)
        for name, value in values.items()
    }
