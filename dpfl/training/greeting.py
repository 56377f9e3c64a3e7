# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Which versions compute in a worker, as it tells those that are about to use it.

TFF's worker is a program without Python, so that nobody can ask it. Whoever starts it
puts the versions into its environment, of which the worker itself picks out these words
alone: the rest is nobody's business.
"""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf
import tensorflow_federated as tff

import dpfl

VARIABLE = "DPFL_WORKER_VERSIONS"


def versions_text() -> str:
    """Returns the versions that a worker's results depend on, with spaces between."""
    found = {
        "dpfl": dpfl.__version__,
        "tensorflow": tf.__version__,
        "tensorflow-federated": tff.__version__,
    }
    return " ".join(f"{name}={version}" for name, version in found.items())


def versions() -> tff.Computation:
    """Returns the computation of the text that its worker was started with.

    It is "" for a worker that dpfl did not start.
    """

    @tff.tensorflow.computation
    def told() -> Any:
        # Line by line, since files of /proc say that they have no length.
        lines = tf.data.TextLineDataset("/proc/self/environ")
        text = lines.reduce("", lambda text, line: text + "\n" + line)
        # Variables end in NUL, which a pattern cannot hold.
        words = tf.strings.split(text, "\0")
        own = tf.strings.regex_full_match(words, f"(?s)\n?{VARIABLE}=.*")
        found = tf.strings.reduce_join(tf.boolean_mask(words, own))
        return tf.strings.regex_replace(found, f"\n?{VARIABLE}=", "")

    return told


def difference(address: Any, told: bytes) -> Optional[str]:
    """Returns why a worker with such versions cannot be used; None if it can.

    Args:
      address: Where it is, for people.
      told: What `versions` gave.
    """
    theirs, ours = told.decode(errors="replace"), versions_text()
    if not theirs:
        return f"the worker at {address} was not started by dpfl-worker"
    pairs = dict(word.partition("=")[::2] for word in theirs.split())
    for word in ours.split():
        name, _, version = word.partition("=")
        found = pairs.get(name, "of no version")
        if found != version:
            return f"the worker at {address} has {name} {found}, not {version}"
    return None
