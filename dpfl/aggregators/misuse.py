# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What is silently wrong with a factory in a TFF program, said when it is built."""

from __future__ import annotations

import sys
import weakref
from typing import Any, Optional

import numpy as np
import tensorflow_federated as tff

# Who asks a factory for a sum: the module and the function that calls `create`.
_DIVIDES_ITSELF = {
    ("tensorflow_federated.python.aggregators.mean", "create"),
    (
        "tensorflow_federated.python.learning.algorithms.kmeans_clustering",
        "build_fed_kmeans",
    ),
}

_can_sum_securely: Any = weakref.WeakKeyDictionary()


def check_output(output: str) -> None:
    """Raises ValueError if a mean is about to be divided a second time.

    A factory is told the type of a value and nothing else, so who asks is read from the
    stack: TFF's mean factories and its k-means, in whatever wrapping.

    Args:
      output: What the factory gives, "mean" or "sum".
    """
    caller = _caller_that_divides()
    if output == "mean" and caller:
        raise ValueError(
            f"output must be 'sum' inside of TFF's {caller}, which divides by itself, "
            f"found {output!r}"
        )


def check_secure_sums() -> None:
    """Raises RuntimeError if TFF's current context cannot sum securely.

    The context compiles a secure sum, once in its life, and runs nothing: what its
    compiler leaves as it is no worker can run. A context without a compiler of its own
    is not judged.
    """
    context = tff.framework.get_context_stack().current
    if context not in _can_sum_securely:
        _can_sum_securely[context] = _compiles_secure_sums(context)
    if not _can_sum_securely[context]:
        raise RuntimeError(
            "TFF's default context must be one that can sum securely before a "
            "mechanism with integer noise is built, by "
            "`tff.framework.set_default_context(worker.context(secure_sums=True))` "
            "with `worker = dpfl.training.worker.start()` or by "
            "`tff.backends.test.set_sync_test_cpp_execution_context()`, found one "
            "that cannot"
        )


def _caller_that_divides() -> Optional[str]:
    frame = sys._getframe(1)
    while frame is not None:
        place = (frame.f_globals.get("__name__"), frame.f_code.co_name)
        if place in _DIVIDES_ITSELF:
            owner = frame.f_locals.get("self")
            return place[1] if owner is None else type(owner).__name__
        frame = frame.f_back  # type: ignore[assignment]
    return None


@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def _secure_sum(value: tff.Value) -> tff.Value:
    return tff.backends.mapreduce.federated_secure_modular_sum(value, 2)


def _compiles_secure_sums(context: Any) -> bool:
    # TFF's contexts have no name for their compiler that is not private.
    inner = getattr(context, "_async_context", context)
    pipeline = getattr(inner, "_compiler_pipeline", None)
    if pipeline is None:
        return True
    try:
        compiled = pipeline.compile(_secure_sum).to_building_block()
    except Exception:  # Of whatever compiler it is.
        return False
    return "federated_secure_modular_sum" not in str(compiled)
