# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from dpfl.tasks import metrics, models, text
from dpfl.tasks.registry import load_task


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
    model = models.IMAGE_MODELS[name](num_classes, 0)
    assert sum(int(np.prod(v.shape)) for v in model.trainable_variables) == count
    assert not any(v.dtype.is_floating for v in model.non_trainable_variables)


def _weights(model):
    return np.concatenate([w.numpy().ravel() for w in model.trainable_variables])


SMALL = {
    "small_cnn": lambda seed: models.small_cnn(10, seed),
    "2nn": lambda seed: models.two_layer(10, seed),
    "lstm": lambda seed: models.lstm(30, 5, 4, 6, seed),
}


@pytest.mark.parametrize("name", SMALL)
def test_weights_are_a_function_of_the_seed(name):
    build = SMALL[name]
    assert np.array_equal(_weights(build(3)), _weights(build(3)))
    assert not np.array_equal(_weights(build(3)), _weights(build(4)))


def test_layers_of_a_model_start_differently():
    hidden, _ = models.two_layer(200, 0).get_weights()[2:5:2]
    other = models.two_layer(200, 0).get_weights()[4]
    assert hidden.shape == other.shape
    assert not np.allclose(hidden, other)


@pytest.mark.parametrize("name", SMALL)
def test_models_of_the_default_tasks_have_no_random_layer(name):
    model = SMALL[name](0)
    x = tf.ones([2, *model.input_shape[1:]], model.inputs[0].dtype)
    assert np.array_equal(model(x, training=True), model(x, training=True))


def test_cnn_has_dropout_in_training_only():
    model = models.cnn(10, 0)
    x = tf.ones([2, 28, 28, 1])
    assert not np.array_equal(model(x, training=True), model(x, training=True))
    assert np.array_equal(model(x), model(x))


def test_saved_model_loads_without_dpfl(tmp_path):
    model = models.lstm(30, 5, 4, 6, 0)
    model.save(path := tmp_path / "model.keras")
    x = tf.constant([[1, 2, 3, 0, 0]])
    assert np.allclose(tf.keras.models.load_model(path)(x), model(x), atol=1e-6)


def test_padding_does_not_affect_earlier_words():
    model = SMALL["lstm"](0)
    whole, padded = (model(tf.constant([[1, 2, 3, *end]])) for end in ([4, 5], [0, 0]))
    assert np.allclose(whole[:, :3], padded[:, :3], atol=1e-6)


def test_masked_loss_averages_over_unmasked_tokens():
    y = tf.constant([[3, 1, 0], [2, 0, 0]])
    logits = tf.random.stateless_normal([2, 3, 5], [0, 1])
    log_p = tf.nn.log_softmax(logits).numpy()
    expected = -(log_p[0, 0, 3] + log_p[0, 1, 1] + log_p[1, 0, 2]) / 3
    loss = models.MaskedCrossentropy([0])(y, logits)
    assert float(loss) == pytest.approx(expected, 1e-5)
    metric = models.MaskedLoss([0], "loss")
    metric.update_state(y, logits)
    assert float(metric.result()) == pytest.approx(expected, 1e-5)


def test_padding_only_batch_has_zero_loss_and_gradient():
    logits = tf.Variable(tf.ones([1, 2, 5]))
    with tf.GradientTape() as tape:
        loss = models.MaskedCrossentropy([0])(tf.zeros([1, 2], tf.int32), logits)
    assert loss == 0.0
    assert not np.any(tape.gradient(loss, logits))


def test_no_gradient_flows_from_padding():
    y = tf.constant([[3, 0]])
    logits = tf.Variable(tf.random.stateless_normal([1, 2, 5], [0, 1]))
    with tf.GradientTape() as tape:
        loss = models.MaskedCrossentropy([0])(y, logits)
    gradient = tape.gradient(loss, logits).numpy()
    assert np.any(gradient[0, 0])
    assert not np.any(gradient[0, 1])


def test_next_word_accuracy_counts_known_words_only():
    tokens = text.Tokens(vocab_size=3)
    assert (tokens.unknown, tokens.begin, tokens.end, tokens.total) == (4, 5, 6, 7)
    # Known and right, known and wrong, unknown, end, padding: one of two counts.
    y = tf.constant([[1, 2, 4, 6, 0]])
    guess = tf.one_hot([[1, 3, 4, 6, 0]], tokens.total)
    loss, accuracy = metrics.next_word_metrics(tokens)
    accuracy.update_state(y, guess)
    assert accuracy.name == "accuracy" and loss.name == "loss"
    assert float(accuracy.result()) == pytest.approx(0.5)


@pytest.mark.parametrize("model", ["cnn", "2nn", "lstm", "small_cnn"])
def test_functional_model_agrees_with_keras(model):
    from tensorflow_federated import learning

    task = load_task(
        "synthetic", model=model, num_clients=2, examples_per_client=2, batch_size=2
    )
    if model == "lstm":
        # Narrow layers: the shapes are what matters here, and tracing takes long.
        task = dataclasses.replace(
            task, model_builder=lambda seed: models.lstm(10_004, 20, 4, 6, seed)
        )
    functional = task.functional_model(5)
    keras_model = task.build_keras_model(5)
    x, y = next(iter(task.client_dataset(task.client_ids[1])))
    expected = keras_model(x, training=False)
    expected_loss = float(task.loss()(y, expected))
    trainable, other = functional.initial_weights
    assert sum(w.size for w in trainable) == task.dimension
    for ours, theirs in zip(trainable, keras_model.trainable_variables):
        assert np.array_equal(ours, theirs.numpy())
    assert isinstance(
        tf.function(functional.initialize_metrics_state)(), collections.OrderedDict
    )
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        inputs = tf.constant(x.numpy()), tf.constant(y.numpy())
        weights = tf.nest.map_structure(tf.constant, (trainable, other))
        logits = functional.predict_on_batch(weights, inputs[0], training=False)
        loss = functional.loss(logits, inputs[1])
        gradients = tf.gradients(loss, list(weights[0]))
        state = functional.initialize_metrics_state()
        output = learning.models.BatchOutput(None, logits, None)
        state = functional.update_metrics_state(state, inputs[1], output, None)
        metrics = functional.finalize_metrics(state)
        session.run(tf.compat.v1.global_variables_initializer())
        found, value, slopes, measured = session.run(
            [logits, loss, [tf.convert_to_tensor(g) for g in gradients], metrics]
        )
    assert np.allclose(found, expected, atol=1e-4)
    assert value == pytest.approx(expected_loss, rel=1e-4)
    assert measured["loss"] == pytest.approx(value, rel=1e-4)
    assert set(measured) == {"loss", "accuracy"}
    assert all(np.any(slope) for slope in slopes)


def test_a_fresh_keras_model_works_after_a_trace():
    task = load_task("synthetic", model="small_cnn", num_clients=2)
    task.functional_model(0)
    with tf.Graph().as_default():
        task.build_keras_model(0)
    assert task.build_keras_model(0)(tf.ones([1, 28, 28, 1])).shape == [1, 10]
