# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The one table of mechanisms: configurations by name, and what runs them.

A codec is given as "module:Class", since it needs TensorFlow and a configuration does
not, or as the class itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from dpfl import plugins
from dpfl.mechanisms import (
    csgm,
    dome,
    gaussian,
    integer,
    matrix_factorization,
    none,
    sgmf,
    sketch,
)
from dpfl.mechanisms.mechanism import Mechanism


class Entry(NamedTuple):
    """What runs one mechanism; each is a class or "module:Class".

    Attributes:
      codec: From a configuration, the dimension d, and options of its own, to a
        `dpfl.aggregators.codec.Codec`.
      feeder: From a configuration and d to an object with `feed(state)`, to be called
        on the aggregator's state before each round if the factory was built with
        `noise_from_program`; None for a mechanism that has no such noise.
      weighted: From `measure` (see `CodecFactory`) to a factory that takes weights;
        None if there is none.
    """

    codec: Any
    feeder: Any = None
    weighted: Any = None


# The classes of the configurations, and a small configuration of each, by name.
MECHANISMS: dict[str, type[Mechanism]] = {}
EXAMPLES: dict[str, Mechanism] = {}
_ENTRIES: dict[type[Mechanism], Entry] = {}


def register(
    config: type[Mechanism],
    codec: Any,
    *,
    example: Optional[Mechanism] = None,
    feeder: Any = None,
    weighted: Any = None,
) -> None:
    """Adds a mechanism to the table, from which commands have their flags.

    Args:
      config: The class of its configuration.
      codec: Its codec; see `Entry`.
      example: A small configuration, for three clients, with which the soak and the
        tests run the mechanism; None leaves it out of them.
      feeder: See `Entry`.
      weighted: See `Entry`.

    Raises:
      TypeError: If `config` is not a class of configurations.
      ValueError: If another mechanism has its name.
    """
    if not (isinstance(config, type) and issubclass(config, Mechanism)):
        raise TypeError(f"config must be a subclass of Mechanism, found {config!r}")
    known = MECHANISMS.get(config.name, config)
    # A module that is imported again makes its class anew.
    if (known.__module__, known.__qualname__) != (
        config.__module__,
        config.__qualname__,
    ):
        raise ValueError(
            f"name must be one that no other mechanism has, found {config.name!r}, "
            f"which {known.__module__}.{known.__qualname__} has"
        )
    MECHANISMS[config.name] = config
    _ENTRIES[config] = Entry(codec, feeder, weighted)
    if example is not None:
        EXAMPLES[config.name] = example


def entry(config: type[Mechanism]) -> Optional[Entry]:
    """Returns what runs the mechanism of a configuration, its classes imported.

    By the class itself: a subclass may mean other noise than its base's codec adds.

    Args:
      config: The class of a configuration.

    Returns:
      The entry; None if the class is not in the table.
    """
    found = _ENTRIES.get(config)
    return None if found is None else Entry(*map(plugins.resolve, found))


_N = 3
_NOISED: dict[str, Any] = {"cohort_size": _N, "clip_norm": 1.0, "noise_multiplier": 0.3}
_EPOCH: dict[str, Any] = {
    **_NOISED,
    **{"rounds_per_epoch": 4, "matrix_method": "blt", "matrix_buffers": 2},
}
_SKETCH: dict[str, Any] = {**_NOISED, "compression_rate": 2.0, "sketch_length": 16}
_STREAM = {"feeder": "matrix_factorization:NoiseFeeder"}

# A small configuration, and what runs it, by the names in dpfl.aggregators.
_OWN: tuple[tuple[Mechanism, str, dict[str, str]], ...] = (
    (none.NoMechanism(_N), "none:MeanCodec", {"weighted": "none:FiniteMeanFactory"}),
    (gaussian.Gaussian(**_NOISED), "gaussian:GaussianCodec", {}),
    (csgm.L2Csgm(**_NOISED, keep_fraction=0.5), "csgm:CsgmCodec", {}),
    (csgm.LinfCsgm(**_NOISED, keep_fraction=0.5), "csgm:CsgmCodec", {}),
    (
        integer.DistributedDiscreteGaussian(**_NOISED, bits=20),
        "distributed:IntegerCodec",
        {},
    ),
    (integer.DistributedSkellam(**_NOISED, bits=20), "distributed:IntegerCodec", {}),
    (sketch.SketchedDdg(**_SKETCH, bits=20), "sketch:SketchedCodec", {}),
    (sketch.ProjectAndPerturb(**_SKETCH), "sketch:ProjectAndPerturbCodec", {}),
    (
        sketch.SparseRecovery(**_NOISED, bits=20, sparsity=1),
        "sketch:SparseRecoveryCodec",
        {},
    ),
    (dome.Dome(**_NOISED, sketch_size=8), "dome:DomeCodec", {}),
    (dome.DomeDdg(**_NOISED, sketch_size=8, bits=20), "dome:DomeCodec", {}),
    (
        matrix_factorization.MatrixFactorization(**_EPOCH),
        "matrix_factorization:MatrixFactorizationCodec",
        _STREAM,
    ),
    (sgmf.Sgmf(**_EPOCH, keep_fraction=0.5), "sgmf:SgmfCodec", _STREAM),
)

for _example, _codec, _more in _OWN:
    _others = {key: f"dpfl.aggregators.{value}" for key, value in _more.items()}
    register(type(_example), f"dpfl.aggregators.{_codec}", example=_example, **_others)
