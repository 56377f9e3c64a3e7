# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""TFF's import as the binaries do it, in a program of its own."""

from . import programs

IMPORTED = """
import gc, sys, weakref
from absl import flags
from experiments import start
flags.FLAGS(["start"])
start.import_tensorflow()
start.import_federated()
"""
# What is imported is frozen, once, and later garbage is collected.
GARBAGE = """
frozen = gc.get_freeze_count()
class Node: pass
node = Node(); node.itself = node
seen = weakref.ref(node)
del node
gc.collect()
assert gc.isenabled() and frozen > 100_000 and seen() is None
start.import_tensorflow()
start.import_federated()
assert gc.get_freeze_count() <= frozen and len(sys.meta_path) < 10
"""
# What TFF does not use is loaded with the first of its names, and so is JAX.
LAZY = """
unused = sys.modules["tensorflow_probability"]
import tensorflow_probability
assert tensorflow_probability is unused and unused.__file__.endswith("__init__.py")
assert hasattr(unused, "__path__") and not hasattr(unused, "__all__")
assert "tensorflow_probability.python" not in sys.modules
assert unused.distributions.Normal.__name__ == "Normal"
assert "tensorflow_probability.python" in sys.modules
from tensorflow_probability import bijectors
assert bijectors.Exp and unused.__spec__.loader is unused.__loader__
import numpy as np
import tensorflow_federated as tff
assert "jax" not in sys.modules
double = tff.jax.computation(lambda x: x + x, tff.TensorType(np.float32))
assert "jax" in sys.modules
assert str(double.type_signature).replace(" ", "") == "(float32->float32)"
"""


def test_imports_are_frozen_and_unused_modules_are_loaded_on_use():
    done = programs.python("-c", IMPORTED + GARBAGE + LAZY)
    assert done.returncode == 0, done.stderr
