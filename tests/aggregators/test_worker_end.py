# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import subprocess
import sys

from tests import forks

# One worker is older than dpfl's import, and the other is of a later context.
PROGRAM = """
import numpy as np, psutil, sys
import tensorflow_federated as tff

@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def total(values):
    return tff.federated_sum(values)

older = tff.backends.native.create_sync_local_cpp_execution_context()
tff.framework.set_default_context(older)
total([1])
import dpfl

process = dpfl.aggregator(dpfl.Gaussian(3, 1.0, 0.3)).create(tff.to_type(np.float32))
tff.backends.native.set_sync_local_cpp_execution_context()
process.next(process.initialize(), [1.0] * 3)
print(*[c.pid for c in psutil.Process().children() if c.name() == "worker_binary"])
sys.exit(3)
"""


def test_programs_with_piped_output_end(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    # Returns when nobody holds the pipes any more.
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=forks.ROOT,
        env={**forks.os.environ, "PYTHONPATH": str(forks.ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 3, done.stderr
    older, later = map(int, done.stdout.split())
    assert older != later
    for pid in (older, later):
        forks.until(lambda pid=pid: forks.has_ended(pid))
