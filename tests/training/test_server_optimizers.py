# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import arrays, mechanisms
from dpfl.tasks import configs
from dpfl.training import config as config_lib
from dpfl.training import plan, server_optimizers
from tests.refusals import refuses

LR = 0.1
SHAPES = ((3,), (2, 2))


@pytest.fixture(params=["numpy", "tensorflow"])
def nx(request):
    return arrays.named(request.param)


def steps(nx, optimizer, gradients):
    """Sum of all steps, for a list of lists of gradients."""
    weights = [nx.zeros(shape, np.float32) for shape in SHAPES]
    state = optimizer.initialize(nx, SHAPES)
    for gradient in gradients:
        given = [nx.asarray(part, np.float32) for part in gradient]
        state, weights = optimizer.next(state, weights, given)
    return np.concatenate([np.ravel(weight) for weight in weights])


def tff_steps(optimizer, gradients):
    """Sum of all steps of an optimizer of TFF's, in a graph."""

    @tf.function
    def total():
        weights = tuple(tf.zeros(shape) for shape in SHAPES)
        specs = tuple(tf.TensorSpec(shape, tf.float32) for shape in SHAPES)
        state = optimizer.initialize(specs)
        for gradient in gradients:
            given = tuple(tf.constant(part) for part in gradient)
            state, weights = optimizer.next(state, weights, given)
        return weights

    return np.concatenate([np.ravel(weight) for weight in total()])


def gradients(rounds=5):
    generator = np.random.default_rng(1)
    return [
        [generator.normal(size=shape).astype(np.float32) for shape in SHAPES]
        for _ in range(rounds)
    ]


@pytest.mark.parametrize("name", ["adam", "sgd", "sgd_without_momentum"])
def test_steps_equal_tff_optimizers(nx, name):
    theirs, ours = {
        "adam": (
            tff.learning.optimizers.build_adam(LR, beta_1=0.8),
            server_optimizers.build_server_optimizer("adam", LR, 0.8),
        ),
        "sgd": (
            tff.learning.optimizers.build_sgdm(LR, 0.8),
            server_optimizers.build_server_optimizer("sgd", LR, 0.8),
        ),
        "sgd_without_momentum": (
            tff.learning.optimizers.build_sgdm(LR),
            server_optimizers.build_server_optimizer("sgd", LR),
        ),
    }[name]
    given = gradients()
    expected = tff_steps(theirs, given)
    np.testing.assert_allclose(steps(nx, ours, given), expected, rtol=1e-4)


def test_first_step_without_bias_correction_follows_betas(nx):
    given = gradients(1)
    found = steps(nx, server_optimizers.Adam(LR, corrects_start=False), given)
    signs = np.sign(np.concatenate([np.ravel(g) for g in given[0]]))
    np.testing.assert_allclose(found, -LR * signs * 0.1 / np.sqrt(0.001), rtol=1e-4)


def test_noise_variance_is_subtracted_from_second_moment_and_bounds_step(nx):
    variance = 4.0
    optimizer = server_optimizers.Adam(LR, beta_1=0.0, noise_variance=variance)
    one = [np.array([3.0, 1.0, 5.0]), np.zeros([2, 2])]
    # 9 - 4 is above the floor of 4; 1 - 4 is not.
    expected = -LR * np.array([3 / np.sqrt(5), 1 / 2, 5 / np.sqrt(21)])
    np.testing.assert_allclose(steps(nx, optimizer, [one])[:3], expected, rtol=1e-4)
    assert not steps(nx, optimizer, [one])[3:].any()


def test_debiased_second_moment_recovers_a_noised_constant(nx):
    generator = np.random.default_rng(2)
    stddev, constant = 2.0, 4.0
    optimizer = server_optimizers.Adam(1.0, beta_1=0.0, noise_variance=stddev**2)
    state = optimizer.initialize(nx, [(1000,)])
    weights = [nx.zeros([1000], np.float32)]
    for _ in range(100):
        noised = constant + stddev * generator.normal(size=1000)
        state, _ = optimizer.next(state, weights, [nx.asarray(noised, np.float32)])
    second = np.mean(state["second_moment"]) / (1 - 0.999**100)
    assert second == pytest.approx(constant**2, rel=0.02)


@pytest.mark.parametrize(
    "name, value",
    [
        ("learning_rate", 0.0),
        ("beta_1", 1.0),
        ("noise_variance", -1.0),
    ],
)
def test_bad_values_are_named(name, value):
    with refuses(ValueError, name, value):
        server_optimizers.Adam(**{"learning_rate": LR, name: value})


def test_every_optimizer_of_a_run_can_be_built():
    for name in config_lib.SERVER_OPTIMIZERS:
        more = {"noise_variance": 1.0} if name == "adam_debiased" else {}
        assert server_optimizers.build_server_optimizer(name, LR, **more)


def config(mechanism, **options):
    return config_lib.RunConfig(
        task="synthetic",
        task_config=configs.SyntheticConfig(),
        mechanism=mechanism.name,
        mechanism_options=options,
        output_dir="nowhere",
        server_optimizer="adam_debiased",
    )


def test_noise_variance_comes_from_the_mechanism():
    gaussian = mechanisms.Gaussian(cohort_size=10, clip_norm=0.5, noise_multiplier=4.0)
    found = plan.noise_variance(config(gaussian), gaussian, 123)
    assert found == pytest.approx(0.04)


@pytest.mark.parametrize(
    "mechanism",
    [
        mechanisms.Gaussian(10, 0.5, 4.0, adaptive_clipping=True),
        mechanisms.L2Csgm(10, 0.5, 4.0, keep_fraction=0.1),
    ],
)
def test_mechanism_without_known_noise_variance_is_refused(mechanism):
    with refuses(ValueError, "server_optimizer", "adam_debiased"):
        plan.noise_variance(config(mechanism), mechanism, 123)
