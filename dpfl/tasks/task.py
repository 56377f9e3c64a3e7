# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Tasks: client data, model, objective and an evaluation set.

    x, y = task.clients.read(np.array([0]))
    weights = task.network.initial_weights(seed=0)

TensorFlow is imported by the methods that return parts of it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Optional

import numpy as np

from dpfl import checks, missing
from dpfl.arrays import Array
from dpfl.tasks.clients import Clients
from dpfl.tasks.configs import TaskConfig
from dpfl.tasks.metrics import Objective
from dpfl.tasks.networks import Network

if TYPE_CHECKING:
    import tensorflow as tf

# Around imports of what returns parts of TensorFlow.
_IN_TFF = functools.partial(
    missing.explained,
    "this part of a task",
    "the task's clients, network and objective are in numpy",
)


@dataclasses.dataclass(frozen=True)
class TrainingDefaults:
    """Settings that train a task well, under the names of their flags."""

    client_lr: float
    server_lr: float
    clip_norm: float
    cohort_size: int
    rounds: int
    server_momentum: float = 0.9


@dataclasses.dataclass(frozen=True)
class KerasParts:
    """A model of Keras's in place of a network, with its loss and metrics.

    Only the engine of TFF trains it.

    Attributes:
      model: Function of an integer seed to an uncompiled model from x to logits; equal
        seeds give equal weights.
      loss: Function of no argument to the loss, a mean over examples or tokens.
      metrics: Function of no argument to the metrics, of distinct names; 'loss' and the
        metric of the task's row in the table are always among them.
    """

    model: Callable[[int], tf.keras.Model]
    loss: Callable[[], tf.keras.losses.Loss]
    metrics: Callable[[], list[tf.keras.metrics.Metric]]


@dataclasses.dataclass(frozen=True)
class JaxParts:
    """A model of JAX's in place of a network, as Flax's modules have it.

    Only the engine of JAX trains it, for the task's objective.

    Attributes:
      init: Function of an integer seed to the parameters, a pytree of float32 arrays.
      apply: Function of parameters, a batch of one client, and a key of `jax.random` in
        training or None in evaluation, to logits [batch, ..., classes]. A row of the
        batch must not depend on the others, some of which may be padding.
    """

    init: Callable[[int], Any]
    apply: Callable[[Any, Array, Optional[Array]], Array]


@dataclasses.dataclass(frozen=True)
class Task:
    """A federated learning problem, ready to train on.

    A client is identified by its index in `client_ids`. The order of a client's
    examples is a function of `config.shuffle_seed`, the client, the round and the pass,
    and of nothing else.

    Attributes:
      client_ids: Identifiers of the clients, in sorted order.
      clients: Examples of the clients.
      test_examples: Function of no argument to the central test set: inputs and labels.
      network: The model, from inputs to logits; None for one of `keras` or `jax`.
      objective: The labels that are learned and scored.
      test_owners: Function of no argument to the name of the client that each of
        `test_examples` belongs to, in their order, whether it is trained on or not;
        None if they belong to none.
      label_shape: Shape of an example's label.
      fingerprint: Hexadecimal SHA-256 of the data and its split, which identifies the
        data when a run resumes.
      clients_hold_test_examples: Whether examples of the test set may belong to a
        client, so that metrics on it are exact values of that client's data.
      to_input: Function from inputs as they are stored to the network's, over arrays of
        any library; None for the identity.
      keras: A model of Keras's in place of the network.
      jax: A model of JAX's in place of the network.
      input_spec: Shape and dtype of an example's input; by default the network's.
      benchmark_only: Whether the examples are made up, so that no accuracy means
        anything.
    """

    name: str
    description: str
    client_ids: tuple[str, ...]
    clients: Clients
    test_examples: Callable[[], tuple[np.ndarray, np.ndarray]]
    network: Optional[Network]
    defaults: TrainingDefaults
    config: TaskConfig
    fingerprint: str
    clients_hold_test_examples: bool
    objective: Objective = Objective()
    test_owners: Optional[Callable[[], np.ndarray]] = None
    label_shape: tuple[int, ...] = ()
    to_input: Optional[Callable[[Array], Array]] = None
    keras: Optional[KerasParts] = None
    jax: Optional[JaxParts] = None
    input_spec: Optional[tuple[tuple[int, ...], Any]] = None
    benchmark_only: bool = False

    def __post_init__(self) -> None:
        given = [name for name in _MODELS if getattr(self, name) is not None]
        wanted = "one of them; the others must be None"
        checks.require(len(given) == 1, ", ".join(_MODELS), wanted, given)

    @property
    def engines(self) -> tuple[str, ...]:
        """The names of the engines that train the model."""
        [model] = [name for name in _MODELS if getattr(self, name) is not None]
        return _MODELS[model]

    @property
    def population(self) -> int:
        """Number of clients, N."""
        return len(self.client_ids)

    def client_index(self, client_id: str) -> int:
        """The index of a client in `client_ids`, for `dataset_from_index`.

        Raises:
          ValueError: If there is no such client.
        """
        wanted = f"one of the {self.population} client_ids of the task {self.name}"
        checks.require(client_id in self.client_ids, "client_id", wanted, client_id)
        return self.client_ids.index(client_id)

    @property
    def element_spec(self) -> tuple[tf.TensorSpec, tf.TensorSpec]:
        """The pair (x, y) of `tf.TensorSpec` of a batch, whose length is not known."""
        with _IN_TFF():
            import tensorflow as tf

        shape, dtype = self.input_spec or _input_spec(self.network)
        return (
            tf.TensorSpec([None, *shape], dtype),
            tf.TensorSpec([None, *self.label_shape], np.int32),
        )

    @functools.cached_property
    def dataset_from_index(self) -> Callable[..., tf.data.Dataset]:
        """The function of (index, round_index), int64 scalars, to a client's batches.

        It can be traced into any graph, so that a worker is sent no more than integers.
        """
        with _IN_TFF():
            from dpfl.engines.tff import datasets

        return datasets.from_index(self)

    def client_dataset(self, client_id: str, round_index: int = 0) -> tf.data.Dataset:
        """The batches (x, y) that a client trains on in a round.

        Only the order of the examples depends on the round.

        Raises:
          ValueError: If there is no such client.
        """
        return self.dataset_from_index(self.client_index(client_id), round_index)

    def evaluation_dataset(self) -> tf.data.Dataset:
        """The batches (x, y) of the central test set."""
        with _IN_TFF():
            from dpfl.engines.tff import datasets

        return datasets.evaluation(self)

    @property
    def keras_parts(self) -> KerasParts:
        """The model, loss and metrics of Keras's."""
        with _IN_TFF():
            from dpfl.engines.tff import keras_models

        if self.keras is not None:
            return self.keras
        if self.network is None:
            wanted = "a network or a model of Keras's"
            raise ValueError(checks.message(f"the model of {self.name}", wanted, "jax"))
        return keras_models.parts(self.network, self.objective)

    def loss(self) -> tf.keras.losses.Loss:
        """Keras's loss, a mean over examples or tokens."""
        return self.keras_parts.loss()

    def metrics(self) -> list[tf.keras.metrics.Metric]:
        """Keras's metrics, of distinct names."""
        return self.keras_parts.metrics()

    @property
    def metric_names(self) -> list[str]:
        """The names of the metrics."""
        if self.keras is not None:
            return [metric.name for metric in self.keras.metrics()]
        return [metric.name for metric in self.objective.metrics]

    def build_keras_model(self, seed: int = 0) -> tf.keras.Model:
        """Builds an uncompiled Keras model from x to logits, with weights from `seed`.

        Build it where it is used: TFF traces models in graphs of TensorFlow 1, after
        which Keras refuses every model built before ('invalid state').
        """
        return self.keras_parts.model(seed)

    def functional_model(self, seed: int = 0) -> Any:
        """The model of `build_keras_model(seed)` as TFF's `FunctionalModel`.

        It includes loss and metrics, and can be used inside a graph only.
        """
        with _IN_TFF():
            from dpfl.engines.tff import keras_models

        return keras_models.functional_model(self, seed)

    @functools.cached_property
    def dimension(self) -> int:
        """Number of trainable parameters, d."""
        if self.network is not None:
            return self.network.dimension
        if self.jax is not None:
            from dpfl.engines.jax import networks

            return networks.dimension(self.jax)
        variables = self.build_keras_model(0).trainable_variables
        return sum(int(np.prod(v.shape)) for v in variables)

    @functools.cached_property
    def sample_digest(self) -> str:
        """The SHA-256 of the first examples of some clients, in hex.

        It detects changed data that the fingerprint does not cover.
        """
        hasher = hashlib.sha256()
        last = self.population - 1
        for index in sorted({last * i // _SAMPLED for i in range(_SAMPLED + 1)}):
            for part in self.clients.read(np.array([index])):
                hasher.update(f"{part.dtype.str} {part.shape[1:]}".encode())
                sample = part[:_EXAMPLES_SAMPLED]
                content = sample.tobytes()
                if sample.dtype.hasobject:
                    # Bytes of objects are addresses in memory.
                    content = repr(sample.tolist()).encode()
                hasher.update(content)
        return hasher.hexdigest()

    @functools.cached_property
    def draws_in_training(self) -> bool:
        """Whether the model draws random numbers in training, as dropout does.

        A model of JAX's is assumed to.
        """
        if self.network is not None:
            return self.network.draws_in_training
        if self.jax is not None:
            return True
        with _IN_TFF():
            from dpfl.engines.tff import keras_models

        return keras_models.draws_in_training(self)


# The engines that train a model, by the field that has it.
_MODELS = {"network": ("tff", "jax"), "keras": ("tff",), "jax": ("jax",)}
# Clients, and examples of each, that `sample_digest` reads.
_SAMPLED, _EXAMPLES_SAMPLED = 8, 128


def _input_spec(network: Optional[Network]) -> tuple[tuple[int, ...], Any]:
    if network is None:
        raise ValueError("input_spec must be given beside keras, found None")
    return network.input_shape, network.input_dtype


def fingerprint(name: str, *arrays: np.ndarray, with_shapes: bool = True) -> str:
    """The SHA-256 of a task's name and arrays, in hex.

    Args:
      name: Name of the task.
      *arrays: The arrays.
      with_shapes: Whether it says their dtypes and shapes, too.
    """
    hasher = hashlib.sha256(f"{name} 1".encode())
    for array in arrays:
        hasher.update(f"{array.dtype.str} {array.shape}".encode() * with_shapes)
        hasher.update(array.tobytes())
    return hasher.hexdigest()


def client_names(count: int) -> tuple[str, ...]:
    """Client identifiers whose sorted order is their numerical order."""
    digits = len(str(count - 1))
    return tuple(f"client_{i:0{digits}d}" for i in range(count))


def check_split(name: str, fraction: Any, training: int, testing: int) -> None:
    """Raises ValueError if an option leaves one of two parts empty.

    Args:
      name: Name of the option.
      fraction: Its value, as the share that is held out.
      training: Number of examples, or clients, to train on.
      testing: Number of examples, or clients, held out.
    """
    for number, purpose in ((training, "train"), (testing, "test")):
        wanted = f"a share that leaves examples to {purpose} on"
        checks.require(number, name, wanted, fraction)
