# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Works on clients for a dpfl-train of another machine.

  dpfl-worker --port=8001
  dpfl-train --workers=127.0.0.1:8001,127.0.0.1:8002

Starts TFF's worker and ends with it; Ctrl-C ends both. Whoever reaches the port
computes, reads and writes files as you. By default that is every user of this machine
and nobody else, for a port that is forwarded through ssh; in a network that is yours
alone --isolation=anyone_can_connect lets other machines in.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from dpfl import checks
from dpfl.engines.tff import isolation

from . import cli, start

_PORT = flags.DEFINE_integer("port", None, "TCP port to listen on.")
_CONCURRENCY = flags.DEFINE_integer(
    "concurrency",
    None,
    "Client groups that run concurrently; default: number of CPUs. It should equal "
    "dpfl-train's, since at most four times as many groups run concurrently.",
)
_ISOLATION = flags.DEFINE_enum(
    "isolation",
    "loopback",
    ["loopback", "anyone_can_connect"],
    "Hosts that may connect: this machine only, or any that reaches the port.",
)
_LOG = flags.DEFINE_string("log", None, "File for the output of TFF's worker.")

cli.check_flag("port", checks.integer, at_most=65535)
cli.check_flag("concurrency", checks.integer, at_most=1000)


def _end(*unused: Any) -> None:
    # No failure, even while the worker starts.
    cli.work_begins()
    sys.exit(0)


def main(argv: Sequence[str]) -> None:
    """Starts the worker and waits for its end."""
    cli.no_arguments(argv)
    if _PORT.value is None:
        raise ValueError("--port must be given, found none")
    cli.check_outputs({"log": ()})
    start.import_tensorflow()
    from dpfl.engines.tff import local_worker as worker_lib

    # Schedulers end jobs by SIGTERM; the worker then ends with this process.
    signal.signal(signal.SIGTERM, _end)
    try:
        worker = worker_lib.start(
            concurrency=_CONCURRENCY.value,
            groups=True,
            isolation=_ISOLATION.value,
            port=_PORT.value,
            log_path=_LOG.value,
        )
    except isolation.IsolationError as error:
        cli.fail(str(error))
    except OSError as error:
        where = f"{_PORT.value} ({error.strerror})"
        raise ValueError(f"--port must be free, found {where}") from error
    except worker_lib.WorkerDiedError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(cli.FAULT_EXIT_CODE)
    with worker:
        cli.work_begins()
        print(f"port {worker.port}: {worker.meaning}", flush=True)
        status = worker.wait()
    print(f"error: TFF's worker ended with status {status}", file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    cli.run(main)
