# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A client's training on each table of a network, to be the same in both engines.

python -m tests.arrays.alike FILE    # in the environment with JAX
"""

import dataclasses
import os
import sys

import numpy as np

from dpfl.tasks import models, text
from dpfl.tasks.configs import DocsConfig
from dpfl.tasks.metrics import Objective
from dpfl.tasks.networks import Dropout

# Examples of the client, of a batch, and the learning rate.
EXAMPLES, BATCH, CLIENT_LR = 5, 3, 0.5
SIDE, CLASSES = 14, 10
# Networks that have every layer between them, in float64 too.
IN_FLOAT64 = ("cnn", "lstm")
WORDS = DocsConfig(vocab_size=8, sequence_length=5, embedding_size=4, lstm_size=6)


def networks():
    """Networks of small inputs and without dropout, with their objectives, by name."""
    found = {
        name: (dataclasses.replace(made(CLASSES), input_shape=(SIDE, SIDE, 1)), None)
        for name, made in models.IMAGE_MODELS.items()
        if name != "tiny_cnn"  # The table of small_cnn.
    }
    pieces = text.next_word_pieces(WORDS)
    found["lstm"] = pieces["network"], pieces["objective"]
    return {
        name: (_without_dropout(network), objective or Objective())
        for name, (network, objective) in found.items()
    }


def dtypes(name):
    """The dtypes in which a network is trained."""
    return ("float32", "float64") if name in IN_FLOAT64 else ("float32",)


def _without_dropout(network):
    kept = (layer for layer in network.layers if not isinstance(layer, Dropout))
    return dataclasses.replace(network, layers=tuple(kept))


def examples(network):
    """The client's inputs and labels; sentences are padded."""
    rng = np.random.default_rng(0)
    if network.input_dtype == np.int32:
        tokens = rng.integers(1, text.Tokens(WORDS.vocab_size).total, [EXAMPLES, 6])
        tokens[np.arange(6) > np.arange(2, 7)[:, np.newaxis]] = 0
        return tokens[:, :-1].astype(np.int32), tokens[:, 1:].astype(np.int32)
    x = rng.uniform(size=[EXAMPLES, *network.input_shape]).astype(np.float32)
    return x, rng.integers(CLASSES, size=EXAMPLES).astype(np.int32)


def in_jax(network, objective, dtype):
    """The update, and the metrics of training, in JAX."""
    import jax
    import jax.numpy as jnp

    from dpfl.engines.jax import evaluation, local_training
    from dpfl.engines.jax import networks as jax_networks

    x, y = examples(network)
    padded = [np.zeros([2 * BATCH, *part.shape[1:]], part.dtype) for part in (x, y)]
    for part, whole in zip((x, y), padded):
        whole[:EXAMPLES] = part
    if np.issubdtype(x.dtype, np.floating):
        padded[0] = padded[0].astype(dtype)
    # Steps, one client, and the rows of a batch.
    x, y, there = (
        jnp.asarray(part.reshape([2, 1, BATCH, *part.shape[1:]]))
        for part in (*padded, np.arange(2 * BATCH) < EXAMPLES)
    )
    params = [jnp.asarray(w, dtype) for w in network.initial_weights(3)]
    made = jax.jit(
        lambda params: local_training.train(
            jax_networks.model(network),
            objective,
            params,
            lambda step: local_training.Batch(x[step], y[step], there[step]),
            jnp.int32(2),
            client_lr=CLIENT_LR,
            keys=jax.random.split(jax.random.key(0), 1),
        )
    )(params)
    update, sums = made
    sums = jax.tree.map(jnp.sum, sums)
    return [part[0] for part in update], evaluation.metrics(objective, sums)


def main(path):
    """Writes the results of all networks."""
    # Optimized programs take longer to compile than they save.
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    import jax

    jax.config.update("jax_enable_x64", True)
    found = {}
    for name, (network, objective) in networks().items():
        for dtype in dtypes(name):
            update, measured = in_jax(network, objective, dtype)
            found |= {f"{name} {dtype} {i}": each for i, each in enumerate(update)}
            found |= {f"{name} {key}": each for key, each in measured.items()}
    np.savez(path, **found)


if __name__ == "__main__":
    main(sys.argv[1])
