# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The rows of docs/tff.md, each on a model of one weight, by hand.

The model is w x without a bias, w = 0 at first; all x are 1. One client has one example
y = 1, the other three with y = 3. A client's step of 0.1 on (w - y)^2 takes it to 0.2 y,
so that the mean of both is 0.4, and that by numbers of examples 0.5.
"""

import collections
import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from numpy.testing import assert_allclose

import dpfl
from dpfl import aggregators, mechanisms
from tests.refusals import refuses

N = 2
STILL = mechanisms.Gaussian(N, 100.0, 0.0)
SGD = tff.learning.optimizers.build_sgdm(0.1)
ONE = tff.learning.optimizers.build_sgdm(1.0)
SPEC = (tf.TensorSpec([None, 1]), tf.TensorSpec([None, 1]))
alg = tff.learning.algorithms
theirs = tff.aggregators


def keras_model():
    options = {"kernel_initializer": "zeros", "input_shape": [1]}
    return tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, **options)])


def model_fn():
    return tff.learning.models.from_keras_model(
        keras_model(), loss=tf.keras.losses.MeanSquaredError(), input_spec=SPEC
    )


def functional_model():
    return tff.learning.models.functional_model_from_keras(
        keras_model(), tf.keras.losses.MeanSquaredError(), input_spec=SPEC
    )


def recon_model_fn():
    keras = keras_model()
    return tff.learning.models.ReconstructionModel.from_keras_model_and_layers(
        keras, global_layers=keras.layers, local_layers=[], input_spec=SPEC
    )


def data():
    own = [(tf.ones([k, 1]), tf.fill([k, 1], float(k))) for k in (1, 3)]
    return [tf.data.Dataset.from_tensors(examples) for examples in own]


def private(**options):
    return aggregators.build(STILL, seed=1, **options)


def rate(number):
    return 0.1


PRIVATE = {"model_aggregator": private()}
MIME = {**PRIVATE, "full_gradient_aggregator": private()}
# The same, for algorithms that bring weights.
WEIGHTED, WEIGHTED_MIME = (
    {name: tff.aggregators.as_weighted_aggregator(each) for name, each in own.items()}
    for own in (PRIVATE, MIME)
)
SCHEDULED = (model_fn, rate, tff.learning.optimizers.build_sgdm, ONE)
RECON = {
    "loss_fn": tf.keras.losses.MeanSquaredError,
    "server_optimizer_fn": ONE,
    "client_optimizer_fn": SGD,
    "client_weighting": tff.learning.ClientWeighting.UNIFORM,
    "dataset_split_fn": tff.learning.models.ReconstructionModel.build_dataset_split_fn(),
    "model_aggregator_factory": private(),
}
ROWS = {
    "build_unweighted_fed_avg": ((model_fn, SGD), PRIVATE),
    "build_unweighted_fed_prox": ((model_fn, 1.0, SGD), PRIVATE),
    "build_unweighted_mime_lite": ((model_fn, SGD), MIME),
    "build_weighted_fed_avg": ((model_fn, SGD), WEIGHTED),
    "build_weighted_fed_prox": ((model_fn, 1.0, SGD), WEIGHTED),
    "build_weighted_mime_lite": ((model_fn, SGD), WEIGHTED_MIME),
    "build_weighted_fed_avg_with_optimizer_schedule": (SCHEDULED, WEIGHTED),
    "build_mime_lite_with_optimizer_schedule": ((model_fn, rate, SGD), WEIGHTED_MIME),
    "build_fed_sgd": ((model_fn, SGD), WEIGHTED),
    "build_fed_recon": ((recon_model_fn,), RECON),
}


@pytest.mark.parametrize("name", [*ROWS, "functional models"])
def test_algorithms(tff_context, name):
    if name == "functional models":
        process = alg.build_unweighted_fed_avg(functional_model(), SGD, **PRIVATE)
    else:
        arguments, options = ROWS[name]
        process = getattr(alg, name)(*arguments, **options)
    output = process.next(process.initialize(), data())
    weights = process.get_model_weights(output.state).trainable
    assert weights[0].item() == pytest.approx(0.4, rel=5e-5)


@pytest.mark.parametrize("more", [{}, {"metrics_aggregator": dpfl.no_metrics}])
def test_tff_reveals_training_metrics_unless_disabled(more):
    secure = dpfl.TEST_CONFIGS["distributed_discrete_gaussian"]
    aggregator = dpfl.aggregator(secure)
    process = alg.build_unweighted_fed_avg(
        model_fn, SGD, model_aggregator=aggregator, **more
    )
    tff.test.assert_contains_secure_aggregation(process.next)
    if more:
        tff.test.assert_not_contains_unsecure_aggregation(process.next)
    else:
        with pytest.raises(AssertionError):
            tff.test.assert_not_contains_unsecure_aggregation(process.next)


WRAPPED = {
    "zeroing_factory": lambda: theirs.zeroing_factory(5.0, private()),
    # The larger of the two values is clipped from 0.6 to 0.4.
    "clipping_factory": lambda: theirs.clipping_factory(0.4, private()),
    "concat_factory": lambda: theirs.concat_factory(private()),
    **{
        name: lambda name=name: getattr(theirs, name)(private(output="sum"))
        for name in ("UnweightedMeanFactory", "MeanFactory")
    },
}
VALUE_TYPE = tff.to_type(collections.OrderedDict(a=np.float32, b=(np.float32, [1])))


@pytest.mark.parametrize("name", WRAPPED)
def test_wrappers(tff_context, name):
    pairs = [np.float32([0, x]) for x in (0.2, 0.6)]
    values = [collections.OrderedDict(a=a, b=np.array([b])) for a, b in pairs]
    factory, weights = WRAPPED[name](), ()
    if isinstance(factory, tff.aggregators.WeightedAggregationFactory):
        process = factory.create(VALUE_TYPE, tff.TensorType(np.float32))
        weights = ([1.0, 3.0],)
    else:
        process = factory.create(VALUE_TYPE)
    output = process.next(process.initialize(), values, *weights)
    expected = {"clipping_factory": 0.3, "MeanFactory": 0.5}.get(name, 0.4)
    assert output.result["b"].item() == pytest.approx(expected, rel=5e-5)


def test_kmeans(tff_context):
    """By a sum it is TFF's own result; by a mean it is refused."""
    points = [
        tf.data.Dataset.from_tensor_slices(np.array(x, np.float32)[:, None])
        for x in ([-4.0, -5.0, -3.0], [4.0, 2.0])
    ]
    centres = []
    for aggregator in (None, private(output="sum")):
        process = alg.build_fed_kmeans(2, (1,), (3, 1), sum_aggregator=aggregator)
        output = process.next(process.initialize(), points)
        centres.append(process.get_model_weights(output.state))
    assert_allclose(centres[1], centres[0], rtol=1e-5)
    assert np.ptp(centres[0]) > 3
    with refuses(ValueError, "output", "mean"):
        alg.build_fed_kmeans(2, (1,), (3, 1), sum_aggregator=private())


class TestOutput:
    def test_sum_output_is_n_times_the_mean(self, tff_context):
        config = mechanisms.Gaussian(5, 1.0, 0.7)
        results = {}
        for output in ("mean", "sum"):
            factory = aggregators.build(config, seed=3, output=output)
            process = factory.create(tff.TensorType(np.float32, [20]))
            # Two of an expected five report.
            ones = [np.full(20, 0.1, np.float32)] * 2
            results[output] = process.next(process.initialize(), ones).result
        assert_allclose(results["sum"], 5 * results["mean"], rtol=1e-6)
        assert np.std(results["sum"]) == pytest.approx(0.7, rel=0.5)

    def test_non_private_sum_skips_non_finite_updates(self, tff_context):
        factory = aggregators.build(mechanisms.NoMechanism(7), output="sum")
        process = factory.create(tff.TensorType(np.float32, [1]))
        values = [np.array([x], np.float32) for x in (1, 2, np.nan)]
        assert process.next(process.initialize(), values).result == pytest.approx(3)

    @pytest.mark.parametrize(
        ("config", "options", "parts"),
        [
            (STILL, {"output": "total"}, ("total",)),
            (
                mechanisms.NoMechanism(2),
                {"output": "sum", "weighted": True},
                ("sum", "weights"),
            ),
            (mechanisms.Dome(2, 1.0, 0.0, 4), {"output": "sum"}, ("sum", "DomeCodec")),
        ],
    )
    def test_unsuitable_outputs_are_refused(self, config, options, parts):
        with refuses(ValueError, "output", *parts):
            factory = aggregators.build(config, **options)
            factory.create(tff.TensorType(np.float32, [20]))

    @pytest.mark.parametrize(
        "wrap",
        [
            theirs.UnweightedMeanFactory,
            lambda own: theirs.UnweightedMeanFactory(theirs.clipping_factory(1.0, own)),
            theirs.MeanFactory,
            lambda own: theirs.zeroing_factory(1.0, theirs.MeanFactory(own)),
        ],
        ids=["unweighted", "clipped", "weighted", "zeroed"],
    )
    def test_a_mean_in_a_mean_is_refused(self, wrap):
        factory = wrap(private())
        weight = (tff.TensorType(np.float32),)
        is_weighted = isinstance(factory, tff.aggregators.WeightedAggregationFactory)
        with refuses(ValueError, "output", "mean"):
            factory.create(VALUE_TYPE, *(weight if is_weighted else ()))

    def test_counts_are_refused(self):
        factory = tff.aggregators.UnweightedMeanFactory(
            count_sum_factory=private(output="sum")
        )
        with refuses(TypeError, "value_type", "int32"):
            factory.create(VALUE_TYPE)


def test_docs_list_every_algorithm():
    page = pathlib.Path(__file__).parents[2].joinpath("docs/tff.md").read_text()
    names = [*ROWS, "functional models", *WRAPPED, "build_fed_kmeans"]
    assert [name for name in names if name not in page] == []
