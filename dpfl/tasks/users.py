# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Tasks of one's own users: an npz of examples with the user that each belongs to.

    data = users.read("users.npz")
    task = users.load("mine", data, network, defaults, users.UsersConfig())

`dpfl-new-task` writes a package that does so.
"""

from __future__ import annotations

import dataclasses
from typing import Optional

import numpy as np

from dpfl import arrays, checks, reading
from dpfl.arrays import Array
from dpfl.fields import option
from dpfl.tasks import configs
from dpfl.tasks import task as task_lib
from dpfl.tasks.clients import ArrayClients
from dpfl.tasks.networks import Network


@dataclasses.dataclass(frozen=True)
class UsersConfig(configs.SplitConfig):
    """Options of a task whose data are those of users."""

    test_fraction: float = option(
        0.1,
        "Share of each user's examples held out, where no test set is given.",
        above=0,
        below=1,
    )


@dataclasses.dataclass(frozen=True)
class Data:
    """Examples of users, sorted by user.

    Attributes:
      x: Inputs [examples, ...]: float32, or uint8 that stand for 0 to 1. Pictures have
        channels, as the last axis.
      y: int32 [examples], labels from 0 on.
      names: Names of the users, sorted.
      sizes: int64 [users], the number of examples of each.
      test: Inputs and labels that belong to no user; None if the file has none.
    """

    x: np.ndarray
    y: np.ndarray
    names: tuple[str, ...]
    sizes: np.ndarray
    test: Optional[tuple[np.ndarray, np.ndarray]] = None

    @property
    def num_classes(self) -> int:
        """The number of labels."""
        labels = [self.y] if self.test is None else [self.y, self.test[1]]
        return 1 + max(int(y.max()) for y in labels)


def read(path: reading.PathLike) -> Data:
    """Reads the examples of users from what `numpy.savez` wrote.

    The arrays are `x`, `y` and `users`, the user of each example. A test set that
    belongs to no user is `x_test` and `y_test`.

    Raises:
      OSError: If the file cannot be read.
      ValueError: If it is no such file.
    """
    with reading.opened(path) as file:
        try:
            parts = reading.arrays_in(file)
        except ValueError as error:
            wanted = "an archive of numpy.savez"
            raise ValueError(f"{path} must be {wanted} ({error})") from error
    has_test = "x_test" in parts or "y_test" in parts
    needed = {"x", "y", "users", *(["x_test", "y_test"] if has_test else [])}
    wanted = "x, y, users, and x_test with y_test or neither"
    found = ", ".join(sorted(parts)) or "no array"
    checks.require(parts.keys() == needed, f"arrays of {path}", wanted, found)
    x, y = _examples(parts["x"], parts["y"], "")
    owners = parts["users"]
    is_right = owners.dtype.kind in "iuUS" and owners.shape == (len(x),)
    wanted = f"a number or a text for each of {len(x)} examples"
    found = f"{owners.dtype} {list(owners.shape)}"
    checks.require(is_right, "users", wanted, found)
    names, places = np.unique(owners, return_inverse=True)
    # By name, and each user's in the order of the file.
    order = np.argsort(places, kind="stable")
    test = None
    if has_test:
        test = _examples(parts["x_test"], parts["y_test"], "_test")
        is_alike = (test[0].dtype, test[0].shape[1:]) == (x.dtype, x.shape[1:])
        checks.require(is_alike, "x_test", f"as x, {x.shape[1:]}", test[0].shape[1:])
    texts = tuple(map(str, names))
    return Data(x[order], y[order], texts, np.bincount(places), test)


def _examples(
    x: np.ndarray, y: np.ndarray, ending: str
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels of a file as they are kept.

    Args:
      x: Inputs.
      y: Labels.
      ending: Ending of their names.
    """
    # Pictures without channels have one.
    x = x[..., np.newaxis] if x.ndim == 3 else x
    found = f"{x.dtype} {list(x.shape)}"
    is_right = x.ndim > 1 and x.size and x.dtype.kind in "buif"
    if is_right and x.dtype != np.uint8:
        # A number beyond float32 becomes infinite.
        with np.errstate(over="ignore"):
            x = x.astype(np.float32)
    is_right = is_right and bool(np.isfinite(x).all())
    wanted = "finite numbers [examples, ...], with one example or more"
    checks.require(is_right, f"x{ending}", wanted, found)
    is_right = y.dtype.kind in "biu" and y.shape == x.shape[:1]
    is_right = is_right and y.min() >= 0 and y.max() < 10**6
    wanted = f"a whole number from 0 to 999999 for each of {len(x)} examples"
    checks.require(is_right, f"y{ending}", wanted, f"{y.dtype} {list(y.shape)}")
    return x, y.astype(np.int32)


def _held_out(
    sizes: np.ndarray, fraction: float, rng: np.random.RandomState
) -> np.ndarray:
    """Whether each example is held out: a share of each user's, rounded, never all.

    Args:
      sizes: The number of examples of each user.
      fraction: The share.
      rng: Generator of the choice.
    """
    parts = []
    for size in sizes:
        count = min(int(round(fraction * size)), max(0, size - 1))
        parts.append(rng.permutation(size) < count)
    return np.concatenate(parts)


def _from_bytes(x: Array) -> Array:
    return arrays.of(x).asarray(x, np.float32) / np.float32(255)


def load(
    name: str,
    data: Data,
    network: Network,
    defaults: task_lib.TrainingDefaults,
    config: UsersConfig,
) -> task_lib.Task:
    """The task of users' data, whose test set is theirs unless the data have one.

    Args:
      name: Name of the task.
      data: The data.
      network: The model, for inputs of shape `data.x.shape[1:]`.
      defaults: Settings to train with.
      config: Options of the task.

    Raises:
      ValueError: If no example is left to train or to test on.
    """
    rng = np.random.RandomState(config.partition_seed)
    owners = np.repeat(np.arange(len(data.sizes)), data.sizes)
    kept, test = np.ones(len(owners), bool), np.zeros(len(owners), bool)
    used = ["test_fraction"] if data.test is None else []
    used += ["validation_fraction"] if config.validation_fraction else []
    for part in used:
        sizes = np.bincount(owners[kept], minlength=len(data.sizes))
        test = np.zeros(len(owners), bool)
        test[kept] = _held_out(sizes, getattr(config, part), rng)
        kept &= ~test
        counts = int(kept.sum()), int(test.sum())
        task_lib.check_split(part, getattr(config, part), *counts)
    held = (data.x[test], data.y[test]) if used else data.test
    assert held is not None
    sizes = np.bincount(owners[kept], minlength=len(data.sizes))
    of_users = (data.x[kept], data.y[kept], sizes.astype(np.int64), *held)
    return task_lib.Task(
        name=name,
        description=f"{len(data.names)} users with {len(data.y)} examples.",
        client_ids=data.names,
        clients=ArrayClients(data.x[kept], data.y[kept], sizes),
        test_examples=lambda: held,
        test_owners=(lambda: np.array(data.names)[owners[test]]) if used else None,
        network=network,
        to_input=_from_bytes if data.x.dtype == np.uint8 else None,
        defaults=defaults,
        config=config,
        fingerprint=task_lib.fingerprint("users", *of_users),
        clients_hold_test_examples=bool(used),
    )
