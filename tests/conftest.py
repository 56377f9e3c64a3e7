# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The `slow` marker, and one TFF worker for the whole test session.

A test is slow if it uses the worker, or is in one of the folders, files, functions or
parametrisations that `slow.txt` lists. Every other test is in the fast tier.
"""

from __future__ import annotations

import enum
import gc
import importlib
import os
import signal
import sys
from pathlib import Path

import pytest

# Tests run side by side, and a thread of OpenBLAS that has to wait for its turn keeps a
# processor busy: with two threads in each process the matrices of tests take three times
# the processor time. Programs that tests start inherit this; numpy reads it once.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Most graphs of tests run once, and half of their time goes into preparing them. oneDNN
# looks each operation up in a list of all kernels: an eighth of the time, for nothing here.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
# Memory that is handed back is cleared again for the next array: a third of the time
# that the system takes.
os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(2**30))
os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", str(2**32))
# JAX compiles for much longer than tests compute. Programs are kept from run to run, each
# under a digest of itself, its flags and the version, beside JAX's environments.
_KEPT = Path(__file__).resolve().parents[1] / ".pythons/compiled"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_KEPT))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# Which would make the folder's path a part of the digest.
os.environ.setdefault("JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES", "none")
# Nothing that an earlier accountant said may answer for this one.
os.environ["DPFL_CACHE"] = "off"
# Graphs are hundreds of thousands of objects, of which the collector finds few to free.
gc.set_threshold(50_000, 50, 1000)

PASSES_FOR_SPEED = ["layout_optimizer", "constant_folding", "shape_optimization"]
PASSES_FOR_SPEED += ["remapping", "arithmetic_optimization", "loop_optimization"]
PASSES_FOR_SPEED += ["dependency_optimization", "function_optimization"]

TESTS = Path(__file__).resolve().parent
LISTED = (TESTS / "slow.txt").read_text(encoding="utf-8").splitlines()
SLOW = tuple(line for line in LISTED if not line.startswith("#"))


def pytest_configure():
    """Lets programs that tests start be interrupted, though this one was told not to be.

    A shell that starts the tests in the background has them ignore SIGINT, and what is
    ignored is inherited.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path, config):
    """Does not even import what the fast tier leaves out."""
    place = (
        collection_path.relative_to(TESTS) if TESTS in collection_path.parents else ""
    )
    is_left_out = config.option.markexpr == "not slow" and str(place) in SLOW
    # None, and not False, leaves the decision to pytest.
    return is_left_out or None


def pytest_collection_modifyitems(items):
    """Marks the slow tests, and has their files run first, the small ones fill up."""
    for item in items:
        place = item.path.relative_to(TESTS).as_posix()
        name = f"{place}::{item.nodeid.partition('::')[2]}"
        is_listed = any(
            name == x or name.startswith((f"{x}/", f"{x}::", f"{x}[")) for x in SLOW
        )
        if is_listed or "tff_worker" in item.fixturenames:
            item.add_marker(pytest.mark.slow)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    # The longest file begins first, or a process would wait for it at the end.
    longest = TESTS / "package/test_jax.py"
    items.sort(key=lambda item: (item.path not in slow, item.path != longest))


def pytest_make_parametrize_id(val, argname):
    """Returns short values and type names as ids, where pytest has numbers or pages."""
    shown = repr(val)
    if isinstance(val, (str, bytes)):
        return None if len(shown) < 100 else f"{shown[:20]}..."
    if isinstance(val, (list, tuple, dict)) and len(shown) < 50 and "0x" not in shown:
        return shown
    if getattr(val, "__name__", None) == "<lambda>":
        return argname
    named = (int, float, complex, type, type(None), enum.Enum)
    is_named = isinstance(val, named) or hasattr(val, "__name__")
    return None if is_named else type(val).__name__


def pytest_collection_finish():
    """Has graphs only pruned, and TFF's not even that: they run once and gain nothing.

    Programs that tests start optimize theirs.
    """
    # A collection need not look at what is imported and collected, which stays.
    gc.freeze()
    if tf := sys.modules.get("tensorflow"):
        tf.config.optimizer.set_experimental_options(
            dict.fromkeys(PASSES_FOR_SPEED, False)
        )
    if "tensorflow_federated" in sys.modules:
        folder = "tensorflow_federated.python.core.environments.tensorflow_backend"
        passes = importlib.import_module(f"{folder}.graph_optimizations")
        passes.optimize_graph_spec = lambda graph, config: graph


@pytest.fixture(scope="session")
def tff_worker():
    """The running `dpfl.engines.tff.local_worker.Worker`; TFF's default context is on it."""
    from dpfl.engines.tff import local_worker as worker_lib

    with worker_lib.start() as worker:
        yield worker


@pytest.fixture
def tff_context(tff_worker):
    """TFF's default context: the native one."""
    import tensorflow_federated as tff

    context = tff_worker.context()
    tff.framework.set_default_context(context)
    return context


@pytest.fixture
def tff_secure_context(tff_worker):
    """TFF's default context for one test: secure sums are replaced by plain ones."""
    import tensorflow_federated as tff

    tff.framework.set_default_context(tff_worker.context(secure_sums=True))
    yield
    tff.framework.set_default_context(tff_worker.context())
