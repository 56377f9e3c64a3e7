# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from dpfl.engines.tff import keras_models
from dpfl.tasks import configs, models, networks, text
from dpfl.tasks.metrics import Objective
from dpfl.tasks.registry import load_task
from dpfl.tasks.task import KerasParts


@pytest.mark.parametrize(
    "name, num_classes, count",
    [
        ("cnn", 62, 1_018_174),
        ("cnn", 10, 1_011_466),
        ("2nn", 62, 209_662),
        ("2nn", 10, 199_210),
        ("small_cnn", 10, 15_994),
        ("tiny_cnn", 10, 3_340),
    ],
)
def test_parameter_count(name, num_classes, count):
    network = models.IMAGE_MODELS[name](num_classes)
    assert network.dimension == count
    model = keras_models.build(network, 0)
    assert sum(int(np.prod(v.shape)) for v in model.trainable_variables) == count
    assert not any(v.dtype.is_floating for v in model.non_trainable_variables)


SMALL = {
    "small_cnn": models.small_cnn(10),
    "2nn": models.two_layer(10),
    "lstm": models.lstm(30, 5, 4, 6),
}


@pytest.mark.parametrize("name", SMALL)
def test_models_are_functions_of_the_seed(name):
    first, again, other = (
        np.concatenate([part.ravel() for part in SMALL[name].initial_weights(seed)])
        for seed in (3, 3, 4)
    )
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    model = keras_models.build(SMALL[name], 3)
    weights = [weight.numpy().ravel() for weight in model.trainable_variables]
    assert np.array_equal(np.concatenate(weights), first)
    # No layer of these models is random.
    x = tf.ones([2, *model.input_shape[1:]], model.inputs[0].dtype)
    assert np.array_equal(model(x, training=True), model(x, training=True))


def test_initial_weights_are_those_of_keras_s_defaults():
    """Bit for bit, but for recurrent kernels, whose orthonormal rows are others."""
    initial = tf.keras.initializers
    seeds = itertools.count(3001)
    weights = models.lstm(30, 5, 4, 6).initial_weights(3)
    words = initial.RandomUniform(seed=next(seeds))([30, 4])
    kernel = initial.GlorotUniform(next(seeds))([4, 24])
    assert np.array_equal(weights[0], words) and np.array_equal(weights[1], kernel)
    recurrent = weights[2]
    assert np.allclose(recurrent @ recurrent.T, np.eye(6), atol=1e-6)
    assert weights[3].tolist() == [0.0] * 6 + [1.0] * 6 + [0.0] * 12
    convolution = initial.GlorotUniform(1)([5, 5, 1, 24])
    assert np.array_equal(models.small_cnn(10).initial_weights(0)[0], convolution)


def test_orthogonal_kernels_are_uniform_over_signs():
    drawn = np.array([networks.orthogonal((2, 8), seed)[0] for seed in range(400)])
    # Means of coordinates of a uniform unit vector: standard deviation 1 / sqrt(8 n).
    assert np.all(np.abs(drawn.mean(0)) < 5 / np.sqrt(8 * 400))
    assert np.allclose((drawn**2).mean(0), 1 / 8, atol=0.04)


def test_cnn_has_dropout_in_training_only():
    model = keras_models.build(models.cnn(10), 0)
    assert models.cnn(10).draws_in_training
    x = tf.ones([2, 28, 28, 1])
    assert not np.array_equal(model(x, training=True), model(x, training=True))
    assert np.array_equal(model(x), model(x))


def test_masked_loss_averages_over_unmasked_tokens():
    y = tf.constant([[3, 1, 0], [2, 0, 0]])
    logits = tf.random.stateless_normal([2, 3, 5], [0, 1])
    log_p = tf.nn.log_softmax(logits).numpy()
    expected = -(log_p[0, 0, 3] + log_p[0, 1, 1] + log_p[1, 0, 2]) / 3
    objective = Objective(unlearned=(0,))
    loss = keras_models.Crossentropy(objective)(y, logits)
    assert float(loss) == pytest.approx(expected, 1e-5)
    metric, _ = keras_models.metrics(objective)
    metric.update_state(y, logits)
    assert float(metric.result()) == pytest.approx(expected, 1e-5)


def test_no_gradient_flows_from_padding():
    for y, flows in ([3, 0], True), ([0, 0], False):
        logits = tf.Variable(tf.random.stateless_normal([1, 2, 5], [0, 1]))
        with tf.GradientTape() as tape:
            objective = Objective(unlearned=(0,))
            loss = keras_models.Crossentropy(objective)(tf.constant([y]), logits)
        gradient = tape.gradient(loss, logits).numpy()
        assert np.any(gradient[0, 0]) == (loss != 0) == flows
        assert not np.any(gradient[0, 1])


def test_next_word_accuracy_counts_known_words_only():
    tokens = text.Tokens(vocab_size=3)
    assert (tokens.unknown, tokens.begin, tokens.end, tokens.total) == (4, 5, 6, 7)
    # Known and right, known and wrong, unknown, end, padding: one of two counts.
    y = tf.constant([[1, 2, 4, 6, 0]])
    guess = tf.one_hot([[1, 3, 4, 6, 0]], tokens.total)
    config = configs.StackOverflowConfig(vocab_size=3)
    objective = text.next_word_pieces(config)["objective"]
    loss, accuracy = keras_models.metrics(objective)
    accuracy.update_state(y, guess)
    assert accuracy.name == "accuracy" and loss.name == "loss"
    assert float(accuracy.result()) == pytest.approx(0.5)


def test_functional_lstm_agrees_with_keras():
    """Training by the others is held by the engine's tests."""
    task = load_task("synthetic", model="lstm", num_clients=2, examples_per_client=2)
    task = dataclasses.replace(task, network=models.lstm(10_004, 20, 4, 6))
    functional, keras_model = task.functional_model(5), task.build_keras_model(5)
    x, y = task.clients.read(np.array([1]))
    expected = keras_model(x, training=False)
    loss_expected = float(task.loss()(y, expected))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        weights = tf.nest.map_structure(tf.constant, functional.initial_weights)
        logits = functional.predict_on_batch(weights, tf.constant(x), training=False)
        loss = functional.loss(logits, tf.constant(y))
        slopes = map(tf.convert_to_tensor, tf.gradients(loss, list(weights[0])))
        found, value, slopes = session.run([logits, loss, list(slopes)])
    assert np.allclose(found, expected, atol=1e-4)
    assert value == pytest.approx(loss_expected, rel=1e-4)
    assert all(np.any(slope) for slope in slopes)


def test_a_fresh_keras_model_works_after_a_trace():
    task = load_task("synthetic", model="small_cnn", num_clients=2)
    task.functional_model(0)
    with tf.Graph().as_default():
        task.build_keras_model(0)
    assert task.build_keras_model(0)(tf.ones([1, 28, 28, 1])).shape == [1, 10]


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_layer_is_random_only_with_nonzero_dropout(dropout):
    """Within a loop, too."""

    def build(seed):
        lstm = tf.keras.layers.LSTM(3, dropout=dropout)
        return tf.keras.Sequential([tf.keras.layers.Reshape([28, 28]), lstm])

    task = load_task("synthetic", model="small_cnn", num_clients=2)
    own = KerasParts(build, task.loss, task.metrics)
    found = dataclasses.replace(
        task, network=None, keras=own, input_spec=((28, 28, 1), np.float32)
    )
    assert found.draws_in_training == (dropout > 0)
