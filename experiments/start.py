# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""TensorFlow, imported after the flags were checked."""

from __future__ import annotations

import os
from unittest import mock

from absl import app, flags, logging

from dpfl import interrupts


def import_tensorflow() -> None:
    """Imports TensorFlow inside of absl's `app.run`, as if it were outside.

    TensorFlow gives absl a callback that starts its eager runtime, to be run once the
    flags are parsed. When that has been, absl runs it in the middle of the import, and
    no Keras model can be built in a graph any more. The callback only counts GPUs for
    TensorFlow's own tests, so it is dropped.
    """
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
    # Missing GPUs are reported as errors otherwise.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    without_callback = mock.patch.object(app, "call_after_init", lambda callback: None)
    with interrupts.at_once(), without_callback:
        import tensorflow  # noqa: F401
