# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The table of mechanisms: configurations by name, with their codecs.

A codec is given as "module:Class", since it needs TensorFlow and a configuration does
not, or as the class itself:

    register(MyConfig, "my_package.codec:MyCodec", example=MyConfig(3))
"""

from __future__ import annotations

import inspect
from typing import Any, Optional

from dpfl import checks, plugins
from dpfl.mechanisms.csgm import L2Csgm, LinfCsgm
from dpfl.mechanisms.dome import Dome, DomeDdg
from dpfl.mechanisms.gaussian import Gaussian, NoMechanism
from dpfl.mechanisms.integer import DistributedDiscreteGaussian, DistributedSkellam
from dpfl.mechanisms.matrix_factorization import MatrixFactorization
from dpfl.mechanisms.mechanism import Mechanism
from dpfl.mechanisms.sgmf import Sgmf
from dpfl.mechanisms.sketch import ProjectAndPerturb, SketchedDdg, SparseRecovery

# The classes below are names of `dpfl.mechanisms` and of `dpfl`.
__all__ = ["MECHANISMS", "TEST_CONFIGS", "register"]
__all__ += ["NoMechanism", "Gaussian", "L2Csgm", "LinfCsgm"]
__all__ += ["DistributedDiscreteGaussian", "DistributedSkellam", "SketchedDdg"]
__all__ += ["ProjectAndPerturb", "SparseRecovery", "Dome", "DomeDdg"]
__all__ += ["MatrixFactorization", "Sgmf"]


# The classes of the configurations, and a small configuration of each, by name.
MECHANISMS: dict[str, type[Mechanism]] = {}
TEST_CONFIGS: dict[str, Mechanism] = {}
_CODECS: dict[type[Mechanism], Any] = {}


def register(
    config: type[Mechanism],
    codec: Any,
    *,
    example: Optional[Mechanism] = None,
) -> None:
    """Registers a mechanism, so that commands have flags for it.

    Args:
      config: The configuration, a frozen dataclass.
      codec: A class or "module:Class", which maps a configuration, the dimension d, the
        module of an array library (see `dpfl.arrays`), and options of its own, to a
        `dpfl.codecs.Codec`.
      example: A small configuration, for three clients, with which the soak and the
        tests run the mechanism; None leaves it out of them.

    Raises:
      TypeError: If `config` is not a class of configurations, or an argument or a field
        has a wrong type.
      ValueError: If another mechanism has its name, or commands cannot have flags for
        it; see `dpfl.plugins.check`.
    """
    if not (isinstance(config, type) and issubclass(config, Mechanism)):
        raise TypeError(f"config must be a subclass of Mechanism, found {config!r}")
    name = plugins.check_name(getattr(config, "name", None))
    known = MECHANISMS.get(name, config)
    where, own = (f"{each.__module__}.{each.__qualname__}" for each in (known, config))
    # A module that is imported again creates its class anew.
    if where != own:
        raise ValueError(f"name must be unique, found {name!r} of {where}")
    if inspect.isabstract(config):
        missing = ", ".join(sorted(config.__abstractmethods__))
        raise TypeError(f"config must implement {missing}, found {config!r}")
    if example is not None and type(example) is not config:
        raise TypeError(checks.message("example", f"one of {config!r}", example))
    plugins.check(config)
    MECHANISMS[name] = config
    _CODECS[config] = codec
    if example is not None:
        TEST_CONFIGS[name] = example


def load_plugins() -> None:
    """Adds the mechanisms of installed packages."""
    plugins.load(plugins.MECHANISMS)


def codec(config: type[Mechanism]) -> Any:
    """The codec of a configuration's class, imported now; None if it has none.

    A subclass needs a codec of its own, as it may mean other noise than its base's
    codec adds.
    """
    return plugins.resolve(_CODECS.get(config))


_NOISED: dict[str, Any] = {"cohort_size": 3, "clip_norm": 1.0, "noise_multiplier": 0.3}
_INTEGER = {**_NOISED, "bits": 20}
_EPOCH = {**_NOISED, "rounds_per_epoch": 4, "matrix_method": "blt", "matrix_buffers": 2}
_RATE: dict[str, Any] = {"compression_rate": 2.0, "sketch_length": 16}


def _register_own(example: Mechanism, codec: str) -> None:
    """Registers one of dpfl's own mechanisms, by the codec's name in dpfl.codecs."""
    register(type(example), f"dpfl.codecs.{codec}", example=example)


_register_own(NoMechanism(3), "none:MeanCodec")
_register_own(Gaussian(**_NOISED), "gaussian:GaussianCodec")
for _kind in (L2Csgm, LinfCsgm):
    _register_own(_kind(**_NOISED, keep_fraction=0.5), "csgm:CsgmCodec")
for _noise in (DistributedDiscreteGaussian, DistributedSkellam):
    _register_own(_noise(**_INTEGER), "distributed:IntegerCodec")
_register_own(SketchedDdg(**_INTEGER, **_RATE), "sketch:SketchedCodec")
_register_own(ProjectAndPerturb(**_NOISED, **_RATE), "sketch:ProjectAndPerturbCodec")
_register_own(SparseRecovery(**_INTEGER, sparsity=1), "sketch:SparseRecoveryCodec")
_register_own(Dome(**_NOISED, sketch_size=8), "dome:DomeCodec")
_register_own(DomeDdg(**_INTEGER, sketch_size=8), "dome:DomeCodec")
_STREAMED = "matrix_factorization:MatrixFactorizationCodec"
_register_own(MatrixFactorization(**_EPOCH), _STREAMED)
_register_own(Sgmf(**_EPOCH, keep_fraction=0.5), "sgmf:SgmfCodec")
