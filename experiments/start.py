# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Imports of TensorFlow, TFF and JAX, after the flags are checked, and faster.

    start.import_engine("tff")
    start.import_federated()
    start.keep_programs()

A garbage collection visits all objects, and imports make hundreds of thousands of
lasting ones: collections during the imports and the tracing after them took an eighth
of a short run's start. So none is started meanwhile, and later ones skip the imported
objects.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import hashlib
import importlib.abc
import importlib.machinery
import logging as standard_logging
import os
import platform
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any, Optional

from absl import app, flags, logging

from dpfl import cache_folder

# Modules that dp_accounting and TFF import, and dpfl uses rarely or never, by `import
# NAME` or as a module of a package.
_OF_ACCOUNTING = ("scipy.signal", "scipy.stats")
_OF_FEDERATED = (
    "tensorflow_probability",
    "tensorflow_federated.python.core.environments.jax",
)


def accounting_when_used() -> contextlib.AbstractContextManager[None]:
    """Imports dpfl's accounting lazily in the block, in three quarters of the time.

    It serves commands that are refused, or ask for help.
    """
    return _loaded_when_used(_OF_ACCOUNTING)


def import_engine(name: str) -> None:
    """Imports the library of an engine: TensorFlow or JAX."""
    if name == "tff":
        import_tensorflow()
    elif "jax" not in sys.modules:
        # A card that JAX does not see is told of by the run.
        standard_logging.getLogger("jax._src.xla_bridge").setLevel("ERROR")
        with _never_collected():
            import jax  # noqa: F401


def import_tensorflow() -> None:
    """Imports TensorFlow inside of absl's `app.run` as if it were outside.

    TensorFlow gives absl a callback that starts its eager runtime, to be run once the
    flags are parsed. If that is past, absl runs it in the middle of the import, and no
    Keras model can be built in a graph any more. The callback only counts GPUs for
    TensorFlow's own tests, so it is dropped.
    """
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
    if "tensorflow" in sys.modules:
        return
    # Missing GPUs are reported as errors otherwise.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with _without_callback(), _not_installed("jax"), _never_collected():
        import tensorflow  # noqa: F401
    atexit.register(_drop_default_context)


def import_federated() -> None:
    """Imports TFF, with only the used parts of its dependencies."""
    if "tensorflow_federated" in sys.modules:
        return
    with _loaded_when_used(_OF_FEDERATED), _never_collected():
        import tensorflow_federated  # noqa: F401


def keep_programs() -> None:
    """Lets JAX keep what it compiles in dpfl's cache, if nobody else can write there.

    A program is of a kind of processor, which is not in JAX's own keys.
    """
    import jax

    kind = platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        kind += next((line for line in file if line.startswith("flags")), "")
    name = f"jax-{hashlib.sha256(kind.encode()).hexdigest()[:16]}"
    if jax.config.jax_compilation_cache_dir is None:
        place = cache_folder.subfolder(name)
        if place is not None:
            jax.config.update("jax_compilation_cache_dir", str(place))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def _drop_default_context() -> None:
    """Drops TFF's default context, which at exit would look for missing modules."""
    if "tensorflow_federated" not in sys.modules:
        return
    import tensorflow_federated as tff

    class NoContext(tff.framework.SyncContext):
        def invoke(self, comp: Any, arg: Any) -> Any:
            raise RuntimeError("the program has ended")

    tff.framework.set_default_context(NoContext())


@contextlib.contextmanager
def _without_callback() -> Iterator[None]:
    """Drops callbacks given to absl to be called once the flags are parsed."""
    call_after_init = app.call_after_init
    app.call_after_init = lambda callback: None
    try:
        yield
    finally:
        app.call_after_init = call_after_init


@contextlib.contextmanager
def _not_installed(name: str) -> Iterator[None]:
    """Hides a package from code that imports it only if it is installed.

    TensorFlow imports JAX to convert its functions to TensorFlow Lite's.
    """
    missing = {} if name in sys.modules else {name: None}
    sys.modules.update(missing)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for each in missing:
            del sys.modules[each]


@contextlib.contextmanager
def _never_collected() -> Iterator[None]:
    """Starts no garbage collection, and exempts current objects from later ones."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def _loaded_when_used(names: Sequence[str]) -> Iterator[None]:
    """Loads modules of these names lazily in the block, at their first use."""
    finder = _LoadedWhenUsed(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _LoadedWhenUsed:
    """Finds some modules, which are loaded at their first use."""

    def __init__(self, names: Sequence[str]):
        self._names = names

    def find_spec(
        self, name: str, path: Optional[Sequence[str]], target: Any = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        """The spec of a lazily loaded module; None for every other module.

        Args:
          name: Dotted name of the module.
          path: Path of its package; None at the top.
          target: As for `importlib.abc.MetaPathFinder`.
        """
        if name not in self._names:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Later(spec.loader)
        return spec


class _Later(importlib.abc.Loader):
    """A loader that defers loading.

    `importlib.util.LazyLoader` loads when `__file__` is read, which AutoGraph reads of
    every module.
    """

    def __init__(self, loader: Any):
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _NotLoaded(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader


class _NotLoaded(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.__spec__ is None:
            raise AttributeError(name)
        self.__class__ = types.ModuleType  # type: ignore[assignment]
        loader: Any = self.__spec__.loader
        loader.exec_module(self)
        return getattr(self, name)
