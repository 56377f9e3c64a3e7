# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs the tests of arrays in environments with JAX and without TensorFlow."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from dpfl.engines.tff import keras_models
from tests import forks
from tests.arrays import alike

ROOT = Path(__file__).resolve().parent.parent.parent
# A codec of each library, without TensorFlow.
CODECS = """
import importlib.util, dpfl
from dpfl import arrays
assert importlib.util.find_spec("tensorflow") is None
made = [dpfl.make_codec(dpfl.TEST_CONFIGS["l2_csgm"], 8, arrays=x) for x in ("numpy", "jax")]
assert [codec.nx for codec in made] == [arrays.named("numpy"), arrays.named("jax")]
"""
# What its user calls where it does not run, and whether that is for want of JAX alone.
WITHOUT = {
    "dpfl.aggregator": False,
    "dpfl.host_noise_aggregator": False,
    "dpfl.no_metrics": False,
    "dpfl.query": False,
    "dpfl.CodecFactory": False,
    "dpfl.PrivateProgram": False,
    "dpfl.start_worker": False,
    "dpfl.make_codec(mechanism, 8, 'tensorflow')": False,
    "task.client_dataset(task.client_ids[0])": False,
    "task.element_spec": False,
    "task.build_keras_model()": False,
    "engine.of('tff')": False,
    "dpfl.make_codec(mechanism, 8, 'jax')": True,
    "dpfl.jax_aggregator": True,
    "engine.of('jax')": True,
}
REFUSALS = """
import json, re, sys
import dpfl
from dpfl.training import engine
mechanism, task = dpfl.TEST_CONFIGS["l2_csgm"], dpfl.load_task("digits")
found = {}
for is_there in (True, False):
    if not is_there:
        for name in [each for each in sys.modules if each.split(".")[0] == "jax"]:
            sys.modules[name] = None
        sys.modules["jax"] = None
        for name in [each for each in sys.modules if "jax" in each and "dpfl" in each]:
            del sys.modules[name]
        dpfl.arrays.named.cache_clear()
    for call, needs_jax in json.loads(sys.argv[1]).items():
        if needs_jax and is_there:
            continue
        try:
            raise SystemExit(f"{call} is {eval(call)}")
        except (ImportError, ValueError) as error:
            said = str(error)
        named = re.findall(r"dpfl\\.(\\w+)", said.rpartition("; ")[2])
        assert "'jax' here" not in said or is_there
        assert named or "engine" in said or "task" in said, said
        for name in named:
            getattr(dpfl, name)
"""
# Each compilation takes seconds, so that the later release has a part of the tests.
CHOSEN = {
    "jax": "",
    "jax-newest": "million or precision or vectors or loops",
}


@pytest.mark.parametrize("name", CHOSEN)
def test_array_tests_pass_in_jax(name):
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]
    run(name, "-c", CODECS)
    run(name, "-m", "pytest", *options, "-k", CHOSEN[name], "tests/arrays")


def test_refusals_name_what_runs_there():
    run("jax-newest", "-c", REFUSALS, json.dumps(WITHOUT))


def test_killed_runs_in_jax_end_with_equal_results():
    """A small part of `python -m tools.soak` there, which compiles once."""
    words = ["-m", "tools.soak", "--seed=3", "--only", "--kills=1"]
    words += ["--mechanisms=gaussian"]
    quick = "--xla_backend_optimization_level=0"
    assert "| 1 | 0 |" in run("jax-newest", *words, XLA_FLAGS=quick)


def run(name, *arguments, **more):
    """Runs Python in an environment, which must end well; else skips the test."""
    python = forks.other_python(name)
    done = subprocess.run(
        [str(python), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **more},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Greatest distance of updates, as a share of their norm.
DISTANCES = {"float32": 1e-5, "float64": 1e-10}


def test_a_client_trains_alike_in_both_engines(tmp_path):
    run("jax", "-m", "tests.arrays.alike", str(tmp_path / "of_jax.npz"))
    of_jax = np.load(tmp_path / "of_jax.npz")
    for name, (network, objective) in alike.networks().items():
        for dtype in alike.dtypes(name):
            update, measured = in_keras(network, objective, dtype)
            norm = np.linalg.norm(np.concatenate([part.ravel() for part in update]))
            for place, own in enumerate(update):
                distance = np.linalg.norm(own - of_jax[f"{name} {dtype} {place}"])
                assert distance <= DISTANCES[dtype] * norm, (name, dtype, place)
        assert list(measured) == ["loss", "accuracy"]
        for metric, value in measured.items():
            assert of_jax[f"{name} {metric}"] == pytest.approx(value, rel=1e-5)


def in_keras(network, objective, dtype):
    """The update of a client, and the metrics of training, in Keras."""
    x, y = alike.examples(network)
    tf.keras.backend.set_floatx(dtype)
    try:
        model = keras_models.build(network, 3)
    finally:
        tf.keras.backend.set_floatx("float32")
    metrics = keras_models.metrics(objective)
    first = model.get_weights()
    for begin in range(0, alike.EXAMPLES, alike.BATCH):
        labels = y[begin : begin + alike.BATCH]
        learned = tf.constant(~np.isin(labels, objective.unlearned), dtype)
        with tf.GradientTape() as tape:
            logits = model(x[begin : begin + alike.BATCH], training=True)
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_sum(each * learned) / tf.reduce_sum(learned)
        slopes = tape.gradient(loss, model.trainable_variables)
        for variable, slope in zip(model.trainable_variables, slopes):
            variable.assign_sub(alike.CLIENT_LR * tf.convert_to_tensor(slope))
        for metric in metrics:
            metric.update_state(labels, tf.cast(logits, tf.float32))
    update = [old - new for old, new in zip(first, model.get_weights())]
    return update, {each.name: float(each.result()) for each in metrics}
