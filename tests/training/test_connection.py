# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import grpc
import pytest

from dpfl.training import connection


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
    ("error", "said"),
    [
        (
            Failure(grpc.StatusCode.UNKNOWN, "Unexpected error in RPC handling\nmore"),
            "call: UNKNOWN (Unexpected error in RPC handling), as happens where memory",
        ),
        (Failure(grpc.StatusCode.INTERNAL, None), "did not finish a call: INTERNAL"),
        (grpc.RpcError(), "did not finish a call (RpcError)"),
    ],
)
def test_what_grpc_gives_up_is_one_sentence(error, said):
    with pytest.raises(connection.WorkerDiedError) as caught:
        with connection.failures_told():
            raise error
    message = str(caught.value)
    assert said in message and "\n" not in message
    assert caught.value.__cause__ is error


def test_other_errors_stay_what_they_are():
    with pytest.raises(ZeroDivisionError), connection.failures_told():
        raise ZeroDivisionError
