# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0


import grpc
import pytest

from dpfl import machine
from dpfl.engines.tff import connection, engine
from dpfl.training.engine import NotEnoughMemoryError
from tests.refusals import refuses
from tests.training import fakes


class Failure(grpc.RpcError, grpc.Call):
    """A call that gRPC gave up, as its own errors are made."""

    def __init__(self, code, details):
        self._code, self._details = code, details

    def code(self):
        return self._code

    def details(self):
        return self._details

    add_callback = cancel = initial_metadata = is_active = None
    time_remaining = trailing_metadata = None


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (
            Failure(grpc.StatusCode.UNKNOWN, "Unexpected error in RPC handling\nmore"),
            ("Unexpected error in RPC handling", "memory"),
        ),
        (Failure(grpc.StatusCode.INTERNAL, None), ()),
    ],
)
def test_grpc_failures_become_one_line_errors(error, parts):
    with refuses(connection.WorkerDiedError, *parts) as caught:
        with connection.failures_told():
            raise error
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is error


def test_groups_that_exceed_the_memory_are_refused_before_the_worker(monkeypatch):
    plan = fakes.make_plan(monkeypatch, noise_multiplier=1.0, concurrency=5)
    monkeypatch.setattr(machine, "free_memory", lambda: plan.about.memory - 1)
    with refuses(NotEnoughMemoryError, "5 groups", "--concurrency"):
        with engine.opened(plan, None):
            pass
