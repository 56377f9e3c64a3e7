# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""TFF's import as the binaries do it, in a program of its own."""

import subprocess
import sys

import pytest

from . import programs

PROGRAM = """
import gc, sys, weakref
from absl import flags
from experiments import start
flags.FLAGS(["start"])
start.import_tensorflow()
start.import_federated()
unused = sys.modules["tensorflow_probability"]

print("garbage", gc.isenabled(), gc.get_freeze_count() > 100_000)
frozen = gc.get_freeze_count()
class Node: pass
node = Node(); node.itself = node
seen = weakref.ref(node)
del node
gc.collect()
print("garbage", seen() is None)
start.import_tensorflow()
start.import_federated()
print("garbage", gc.get_freeze_count() <= frozen, len(sys.meta_path) < 10)

def loaded():
    return "tensorflow_probability.python" in sys.modules
print("unused", loaded(), unused.__file__.endswith("__init__.py"))
print("unused", hasattr(unused, "__path__"))
import tensorflow_probability
print("unused", loaded(), tensorflow_probability is unused)
print("unused", hasattr(unused, "__all__"), loaded())
print("unused", tensorflow_probability.distributions.Normal.__name__, loaded())
from tensorflow_probability import bijectors
print("unused", bijectors.Exp.__name__, unused.__spec__.loader is unused.__loader__)

print("jax", "jax" in sys.modules)
import numpy as np
import tensorflow_federated as tff
double = tff.jax.computation(lambda x: x + x, tff.TensorType(np.float32))
print("jax", "jax" in sys.modules, str(double.type_signature).replace(" ", ""))
import jax
print("jax", jax.__name__)
"""


@pytest.fixture(scope="module")
def said():
    """What the program prints, by its first words."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=programs.ROOT,
        env=programs.environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = {"garbage": [], "unused": [], "jax": []}
    for line in done.stdout.splitlines():
        about, *words = line.split()
        found[about] += words
    return found


def test_imports_are_frozen_and_garbage_is_collected(said):
    assert said["garbage"] == ["True"] * 5


def test_unused_modules_are_loaded_lazily(said):
    assert said["unused"] == [
        *("False", "True", "True"),
        *("False", "True", "False", "False"),
        *("Normal", "True"),
        *("Exp", "True"),
    ]


def test_jax_is_loaded_on_use(said):
    assert said["jax"] == ["False", "True", "(float32->float32)", "jax"]
