# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import socket

from tests.experiments import programs


def test_a_port_that_is_taken_is_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = programs.run("worker", f"--port={port}")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: --port must be one that is free, found {port} (Address already in "
        "use)\n"
    )
