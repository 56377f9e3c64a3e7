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
from unittest import mock

from absl import app, flags, logging

from dpfl import interrupts

# What TFF imports and dpfl does not use, by `import NAME` or as a module of a package.
_LOADED_WHEN_USED = (
    "tensorflow_probability",
    "tensorflow_federated.python.core.environments.jax",
)


def import_tensorflow() -> None:
    """Imports TensorFlow inside of absl's `app.run`, as if it were outside.

    TensorFlow gives absl a callback that starts its eager runtime, to be run once the
    flags are parsed. When that has been, absl runs it in the middle of the import, and
    no Keras model can be built in a graph any more. The callback only counts GPUs for
    TensorFlow's own tests, so it is dropped.
    """
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
    if "tensorflow" in sys.modules:
        return
    # Missing GPUs are reported as errors otherwise.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    without_callback = mock.patch.object(app, "call_after_init", lambda callback: None)
    without_jax = _not_installed("jax")
    with interrupts.at_once(), without_callback, without_jax, _never_collected():
        import tensorflow  # noqa: F401
    atexit.register(_drop_default_context)


def import_federated() -> None:
    """Imports TFF, and of what it imports only what is used."""
    if "tensorflow_federated" in sys.modules:
        return
    finder = _LoadedWhenUsed()
    sys.meta_path.insert(0, finder)
    try:
        with interrupts.at_once(), _never_collected():
            import tensorflow_federated  # noqa: F401
    finally:
        sys.meta_path.remove(finder)


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


class _LoadedWhenUsed:
    """Finds `_LOADED_WHEN_USED` as modules that are loaded with their first name."""

    def find_spec(
        self, name: str, path: Optional[Sequence[str]], target: Any = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        """The spec of one of them, None for every other module."""
        if name not in _LOADED_WHEN_USED:
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
