# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Mean estimation: squared error of each mechanism against its theory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpfl import accounting, mechanisms
from experiments import figures

EPSILON, DELTA = 4.0, 1e-5
COMPRESSION_RATES = (1, 3, 10, 30, 100, 300, 1000)
# Number of clients, dimension and repeats. A power of two, so that nothing is padded.
SIZES = {"small": (100, 2**14, 20), "paper": (1000, 2**20, 10)}
SEED = 7


def configured(name: str, rate: float, n: int, dimension: int) -> mechanisms.Mechanism:
    """A mechanism by its name, with the noise that one release costs."""
    keep = {} if name == mechanisms.Gaussian.name else {"keep_fraction": 1 / rate}
    config = mechanisms.MECHANISMS[name].config(
        cohort_size=n, clip_norm=1.0, noise_multiplier=1.0, **keep
    )
    noise_multiplier = accounting.calibrate_noise_multiplier(
        lambda z: config.with_noise_multiplier(z).round_dp_event(dimension, 1.0),
        EPSILON,
        DELTA,
    )
    return config.with_noise_multiplier(noise_multiplier)


def measured_errors(
    config: mechanisms.Mechanism, dimension: int, repeats: int
) -> np.ndarray:
    """Squared errors of the mean of n unit vectors, by the aggregator's own codec.

    The vectors share a direction, as updates in training do, and differ besides.

    Returns:
      float64[repeats].
    """
    import tensorflow as tf

    from dpfl.aggregators import base, csgm, gaussian
    from dpfl.compression import randomness

    is_gaussian = isinstance(config, mechanisms.Gaussian)
    codec = (gaussian.GaussianCodec if is_gaussian else csgm.CsgmCodec)(
        config, dimension
    )

    @tf.function
    def client(seed, shared, total):
        common = randomness.standard_normal(tf.constant([SEED, 0], tf.int64), dimension)
        vector = common + randomness.standard_normal(seed, dimension)
        vector /= tf.norm(vector)
        client_seed = randomness.fold_in(seed, base.Purpose.CLIENT)
        encoded = codec.encode(vector, shared, client_seed)
        return codec.accumulate(total, encoded.message), vector

    @tf.function
    def squared_error(seed):
        state = codec.initial_state()
        shared = codec.expand(codec.broadcast(state, randomness.fold_in(seed, 0)))
        total, exact = codec.zero(), tf.zeros([dimension])
        for i in tf.range(1, config.cohort_size + 1):
            total, vector = client(randomness.fold_in(seed, i), shared, total)
            exact += vector
        sums = dict.fromkeys(("clients", "l2_clipped", "linf_clipped", "kept"), 1.0)
        sums = {name: tf.constant(value, tf.float64) for name, value in sums.items()}
        decoded = codec.decode(state, total, sums, shared, randomness.fold_in(seed, -1))
        return tf.reduce_sum(tf.square(decoded.mean - exact / config.cohort_size))

    seeds = (tf.constant([SEED, i], tf.int64) for i in range(1, repeats + 1))
    return np.array([squared_error(seed).numpy() for seed in seeds], np.float64)


def _work(name: str, rate: int, scale: str) -> figures.Work:
    n, dimension, repeats = SIZES[scale]

    def compute(folder: Path) -> Mapping[str, Any]:
        del folder
        config = configured(name, rate, n, dimension)
        errors = measured_errors(config, dimension, repeats)
        return {
            "noise_multiplier": config.noise_multiplier,
            "squared_error": errors.mean(),
            "standard_error": errors.std(ddof=1) / np.sqrt(repeats),
            "theory": config.mean_squared_error(dimension),
            "bits_per_parameter": config.uplink_bits(dimension) / dimension,
        }

    labels = {"mechanism": name, "compression_rate": rate}
    settings = {
        "clients": n,
        "dimension": dimension,
        "repeats": repeats,
        "epsilon": EPSILON,
        "delta": DELTA,
        "seed": SEED,
    }
    return figures.Work(labels, settings, compute)


def _grid(setting: figures.Setting) -> list[figures.Work]:
    sparsified = (mechanisms.L2Csgm.name, mechanisms.LinfCsgm.name)
    return [
        _work(mechanisms.Gaussian.name, 1, setting.scale),
        *(
            _work(name, rate, setting.scale)
            for name in sparsified
            for rate in COMPRESSION_RATES
        ),
    ]


TITLES = {"gaussian": "Gaussian", "l2_csgm": "L2-CSGM", "linf_csgm": "L-inf-CSGM"}


def _draw(rows: Sequence[Mapping[str, str]], scale: str):
    import matplotlib.pyplot as plt

    n, dimension, repeats = SIZES[scale]
    picture, axis = plt.subplots(figsize=(6, 4))
    for color, (name, title) in zip(("k", "C0", "C1"), TITLES.items()):
        chosen = [row for row in rows if row["mechanism"] == name]
        if not chosen:
            continue
        rates = [float(row["compression_rate"]) for row in chosen]
        theory = [float(row["theory"]) for row in chosen]
        if len(rates) == 1:
            axis.axhline(theory[0], color=color, ls="--", lw=1)
        else:
            axis.plot(rates, theory, color=color, ls="--", lw=1)
        axis.errorbar(
            rates,
            [float(row["squared_error"]) for row in chosen],
            yerr=[2 * float(row["standard_error"]) for row in chosen],
            color=color,
            fmt="o",
            ms=4,
            label=title,
        )
    axis.set(
        xscale="log",
        yscale="log",
        xlabel=r"compression rate $1/\gamma$",
        ylabel="squared error of the mean",
        title=rf"$\varepsilon={EPSILON:g}$, $\delta=10^{{-5}}$, n={n}, d={dimension}; "
        f"dashes: theory, dots: mean of {repeats}",
    )
    axis.title.set_fontsize(9)
    axis.grid(alpha=0.3)
    axis.legend()
    return picture


FIGURES = [
    figures.Figure(
        "mean_estimation",
        "Squared error of the mean against compression: GM, L2-CSGM, L-inf-CSGM",
        _grid,
        _draw,
    )
]
