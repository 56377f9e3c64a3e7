# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""TFF's import as the binaries do it, in programs of their own."""

import subprocess
import sys

from . import programs

IMPORTS = """
import gc, sys
from absl import flags
from experiments import start
flags.FLAGS(["start"])
start.import_tensorflow()
start.import_federated()
unused = sys.modules["tensorflow_probability"]
"""


def said(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS + code],
        cwd=programs.ROOT,
        env=programs.environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_what_is_not_used_is_loaded_when_it_is():
    code = """
def loaded():
    return "tensorflow_probability.python" in sys.modules
print(loaded(), unused.__file__.endswith("__init__.py"), hasattr(unused, "__path__"))
import tensorflow_probability
print(loaded(), tensorflow_probability is unused, hasattr(unused, "__all__"), loaded())
print(tensorflow_probability.distributions.Normal.__name__, loaded())
from tensorflow_probability import bijectors
print(bijectors.Exp.__name__, unused.__spec__.loader is unused.__loader__)
"""
    assert said(code) == [
        *("False", "True", "True"),
        *("False", "True", "False", "False"),
        *("Normal", "True"),
        *("Exp", "True"),
    ]


def test_jax_is_there_for_those_who_use_it():
    code = """
print("jax" in sys.modules)
import numpy as np
import tensorflow_federated as tff
double = tff.jax.computation(lambda x: x + x, tff.TensorType(np.float32))
print("jax" in sys.modules, str(double.type_signature).replace(" ", ""))
import jax
print(jax.__name__)
"""
    assert said(code) == ["False", "True", "(float32->float32)", "jax"]


def test_what_was_imported_is_never_collected_and_garbage_is():
    code = """
import weakref
print(gc.isenabled(), gc.get_freeze_count() > 100_000)
frozen = gc.get_freeze_count()
class Node: pass
node = Node(); node.itself = node
seen = weakref.ref(node)
del node
gc.collect()
print(seen() is None)
start.import_tensorflow()
start.import_federated()
print(gc.get_freeze_count() <= frozen, len(sys.meta_path) < 10)
"""
    assert said(code) == ["True"] * 5
