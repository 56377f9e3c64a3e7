# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""TensorFlow and TFF, imported after the flags were checked, and faster than usual.

A garbage collection looks at all that there is, and imports make hundreds of thousands
of objects that stay: those that Python begins during the imports and the tracing after
them took an eighth of a short run's start. So none is begun meanwhile, and later ones
leave out what was imported.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib.abc
import importlib.machinery
import os
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any, Optional

from absl import app, flags, logging

from dpfl import files, interrupts, machine

# What dp_accounting and TFF import, and dpfl uses seldom or never, by `import NAME` or
# as a module of a package.
_OF_ACCOUNTING = ("scipy.signal", "scipy.stats")
_OF_FEDERATED = (
    "tensorflow_probability",
    "tensorflow_federated.python.core.environments.jax",
)


def accounting_when_used() -> contextlib.AbstractContextManager[None]:
    """For a block that imports dpfl's accounting: a quarter of its time less.

    A command that is refused, or asks for help, has then hardly begun.
    """
    return _loaded_when_used(_OF_ACCOUNTING)


def import_tensorflow() -> None:
    """Imports TensorFlow inside of absl's `app.run`, as if it were outside.

    TensorFlow gives absl a callback that starts its eager runtime, to be run once the
    flags are parsed. When that has been, absl runs it in the middle of the import, and
    no Keras model can be built in a graph any more. The callback only counts GPUs for
    TensorFlow's own tests, so it is dropped.

    Raises:
      MemoryError: If the limit of memory is too small for it.
    """
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
    if "tensorflow" in sys.modules:
        return
    machine.check_limit(machine.LEAST_FOR_TENSORFLOW)
    # Missing GPUs are reported as errors otherwise.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if files.expanded("~") is None:
        # Where there is no home, Keras makes a folder named ~ for its settings.
        os.environ.setdefault("KERAS_HOME", os.devnull)
    without_jax = _not_installed("jax")
    with interrupts.at_once(), _without_callback(), without_jax, _never_collected():
        import tensorflow  # noqa: F401
    atexit.register(_drop_default_context)


def import_federated() -> None:
    """Imports TFF, and of what it imports only what is used."""
    if "tensorflow_federated" in sys.modules:
        return
    unused = _loaded_when_used(_OF_FEDERATED)
    with interrupts.at_once(), unused, _never_collected():
        import tensorflow_federated  # noqa: F401


def _drop_default_context() -> None:
    """Drops the context that TFF made, which at the end would look for lost modules."""
    if "tensorflow_federated" not in sys.modules:
        return
    import tensorflow_federated as tff

    class NoContext(tff.framework.SyncContext):
        def invoke(self, comp: Any, arg: Any) -> Any:
            raise RuntimeError("the program has ended")

    tff.framework.set_default_context(NoContext())


@contextlib.contextmanager
def _without_callback() -> Iterator[None]:
    """Drops what is given to absl to be called once the flags are parsed."""
    call_after_init = app.call_after_init
    app.call_after_init = lambda callback: None
    try:
        yield
    finally:
        app.call_after_init = call_after_init


@contextlib.contextmanager
def _not_installed(name: str) -> Iterator[None]:
    """Makes a package seem missing, for those who import it only where it is there.

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
    """Begins no garbage collection, and keeps later ones from all that there is now."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def _loaded_when_used(names: Sequence[str]) -> Iterator[None]:
    """In the block, modules of these names are loaded with their first name."""
    finder = _LoadedWhenUsed(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _LoadedWhenUsed:
    """Finds some modules as such that are loaded with their first name."""

    def __init__(self, names: Sequence[str]):
        self._names = names

    def find_spec(
        self, name: str, path: Optional[Sequence[str]], target: Any = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        """The spec of one of them, None for every other module."""
        if name not in self._names:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Later(spec.loader)
        return spec


class _Later(importlib.abc.Loader):
    """Loads nothing yet.

    `importlib.util.LazyLoader` loads when `__file__` is read, and AutoGraph reads that
    of every module there is.
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
