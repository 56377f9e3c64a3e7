# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import json
import os
import shutil
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import dpfl
from dpfl import cache_folder, disk_cache
from dpfl import factorization as fact
from dpfl.accounting import balls_in_bins, secret_participation
from dpfl.factorization import methods
from dpfl.factorization.workloads import ConstantRate

EVENT = balls_in_bins.BallsInBinsDpEvent(1.0, np.eye(16) + 0.1, 16)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder of kept results, of computations however short."""
    place = tmp_path / "kept"
    monkeypatch.setenv("DPFL_CACHE", str(place))
    monkeypatch.setattr(disk_cache, "LEAST_SECONDS", 0.0)
    return place


@pytest.fixture
def asked(monkeypatch):
    """The calls of a kept function that answers three times its argument."""
    calls = []

    def triple(number):
        calls.append(number)
        return 3 * number

    triple.__module__, triple.__qualname__ = "dpfl.accounting.made_up", "triple"
    triple.ask = disk_cache.kept(
        lambda found: ({"found": found}, {}), lambda header, _: header["found"]
    )(triple)
    triple.calls = calls
    return triple


def names(folder):
    return sorted(os.listdir(folder)) if folder.exists() else []


def test_tests_use_no_cache():
    assert cache_folder.folder() is None


def test_cached_monte_carlo_epsilon_is_bit_exact(folder, monkeypatch):
    monkeypatch.setattr(balls_in_bins.BallsInBinsDpEvent, "draws", lambda self: 4096)
    ask = secret_participation._epsilon_of.__wrapped__
    fresh = ask.__wrapped__(EVENT, 1e-2, 0)
    assert ask(EVENT, 1e-2, 0) == fresh and len(names(folder)) == 1
    monkeypatch.setattr(balls_in_bins.BallsInBinsDpEvent, "removal", None)
    again = ask(EVENT, 1e-2, 0)
    assert again == fresh and fresh[1] == "monte-carlo"
    assert [type(each) for each in again] == [float, str]
    # Another budget, seed or event is another question.
    other = balls_in_bins.BallsInBinsDpEvent(1.0, 1.5 * EVENT.gram, 16)
    for question in ((EVENT, 2e-2, 0), (EVENT, 1e-2, 1), (other, 1e-2, 0)):
        with pytest.raises(TypeError):
            ask(*question)


PARAMS = {
    "band-low-rank": {"band": 2, "rank": 2},
    "banded": {"bands": 3},
    "banded-inverse": {"bands": 3},
    "banded-inverse-root": {"bands": 3},
    "blt": {"buffers": 2},
    "blt-rational": {"buffers": 2},
    "optimal-epochs": {"separation": 4},
}


@pytest.mark.parametrize("method", sorted(methods.METHODS))
def test_cached_factorization_is_bit_exact(folder, monkeypatch, method):
    workload, params = fact.prefix_sum(12), PARAMS.get(method, {})
    fresh = methods.METHODS[method](workload, **params)
    first = fact.compute(workload, method, **params)
    assert len(names(folder)) == 1

    def never(*args):
        raise AssertionError

    monkeypatch.setattr(cache_folder, "write", never)
    again = fact.compute(workload, method, **params)
    assert again is not first and len(names(folder)) == 1
    for found in (first, again):
        assert found.workload == fresh.workload and found.method == fresh.method
        assert dict(found.params) == dict(fresh.params)
        assert (found.loss, found.lower_bound) == (fresh.loss, fresh.lower_bound)
        assert type(found.factors) is type(fresh.factors)
        for name, array in fresh.factors.arrays().items():
            assert found.factors.arrays()[name].tobytes() == array.tobytes()
        rows = found.noising_rows()[:12]
        assert rows.tobytes() == fresh.noising_rows()[:12].tobytes()


def test_damaged_entries_are_recomputed_and_replaced(folder, asked):
    asked.ask(2)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    for position in range(0, len(whole), 41):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        assert asked.ask(2) == 6
    for content in (b"", b"no archive", whole[: len(whole) // 2]):
        path.write_bytes(content)
        done = len(asked.calls)
        assert asked.ask(2) == 6 and len(asked.calls) == done + 1
        assert asked.ask(2) == 6 and len(asked.calls) == done + 1


def test_edited_entry_is_not_trusted(folder, asked):
    asked.ask(2)
    (path,) = folder.iterdir()
    with np.load(path) as archive:
        content = json.loads(str(archive["header"]))
    content["header"]["found"] = 5
    with path.open("wb") as file:
        np.savez(file, header=np.array(json.dumps(content)))
    assert asked.ask(2) == 6 and asked.calls == [2, 2]


def test_entry_of_another_key_is_not_trusted(folder, asked):
    asked.ask(2)
    (two,) = folder.iterdir()
    asked.ask(5)
    (five,) = set(folder.iterdir()) - {two}
    shutil.copy(two, five)
    assert asked.ask(5) == 15 and asked.calls == [2, 5, 5]


def surroundings(patch):
    """What a new process has of source, versions and machine."""
    patch.setattr(disk_cache, "_SOURCE", disk_cache._digest_of_source())
    patch.setattr(disk_cache, "ADDING_UP", disk_cache._adding_up())
    return str(disk_cache._surroundings.__wrapped__())


def test_source_digest_covers_the_computing_modules(
    folder, asked, tmp_path, monkeypatch
):
    root = tmp_path / "dpfl"
    shutil.copytree(Path(dpfl.__file__).parent, root)
    monkeypatch.setattr(disk_cache, "__file__", str(root / "disk_cache.py"))
    found = [surroundings(monkeypatch)]
    for place in ("accounting/integer/rounding.py", "checks.py", "training/run.py"):
        with open(root / place, "a") as file:
            file.write("# edited\n")
        found.append(surroundings(monkeypatch))
    assert len({*found}) == 3 and found[-1] == found[-2]
    for source in found:
        monkeypatch.setattr(disk_cache, "_surroundings", lambda own=source: own)
        assert asked.ask(2) == 6
    assert asked.calls == [2, 2, 2]


@pytest.mark.parametrize("source", ["", "of other files"])
def test_results_of_unknown_source_are_not_cached(folder, asked, monkeypatch, source):
    monkeypatch.setattr(disk_cache, "_SOURCE", source)
    assert asked.ask(2) == asked.ask(2) == 6 and asked.calls == [2, 2]


def test_fast_results_are_not_cached(folder, asked, monkeypatch):
    monkeypatch.setattr(disk_cache, "LEAST_SECONDS", 10.0)
    assert asked.ask(2) == 6 and names(folder) == []


def test_large_results_are_not_cached(folder, monkeypatch):
    fact.compute(fact.prefix_sum(12), "optimal")
    assert len(names(folder)) == 1
    monkeypatch.setattr(cache_folder, "MOST_BYTES", 4 * 2 * 8 * 13 * 13 - 1)
    fact.compute(fact.prefix_sum(13), "optimal")
    assert len(names(folder)) == 1


def test_key_includes_threads_libraries_and_blas_settings(monkeypatch):
    """BLAS has as many threads as a process may use processors, when it is loaded."""
    found = [surroundings(monkeypatch)]
    for owner, name, value in (
        (os, "sched_getaffinity", lambda process: range(99)),
        (np, "__file__", "/other/numpy"),
        (metadata, "version", lambda library: "99"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value)
            found.append(surroundings(patch))
    for name, value in (("OPENBLAS_CORETYPE", "Zen"), ("MKL_CBWR", "AUTO")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            found.append(surroundings(patch))
    assert len({*found}) == len(found) == 6


@pytest.mark.parametrize("epsilon", ["7.84", None, True, -1.0, 1e999])
def test_invalid_cached_epsilon_is_recomputed(folder, epsilon):
    from_parts = secret_participation._cached_epsilon
    assert from_parts({"epsilon": 0.5, "accounting_method": "monte-carlo"}, {}) == (
        0.5,
        "monte-carlo",
    )
    for accounting_method in ("monte-carlo", "by-heart"):
        with pytest.raises(ValueError):
            from_parts({"epsilon": epsilon, "accounting_method": accounting_method}, {})


class OwnRate(ConstantRate):
    pass


@dataclasses.dataclass(frozen=True)
class OwnValue:
    number: int = 1


def own_method(workload):
    return methods.METHODS["identity"](workload)


def test_arguments_outside_the_digest_are_not_cached(folder, asked, monkeypatch):
    fact.compute(fact.Workload(4, 0.0, OwnRate()), "identity")
    monkeypatch.setattr(methods, "METHODS", {**methods.METHODS, "own": own_method})
    fact.compute(fact.prefix_sum(4), "own")
    for value in (OwnValue(), lambda: 1, {1, 2}, np.array(["a"]), EVENT.rdp):
        with pytest.raises(disk_cache._UnknownError):
            disk_cache._content(value)
    assert names(folder) == []


def test_distinct_arguments_have_distinct_keys():
    values = [None, False, 0, 0.0, -0.0, "0", (0,), [0], {"0": 0}, {"0": 0.0}]
    values += [np.zeros(2), np.zeros(2, np.float32), np.zeros([2, 1]), np.float64(0)]
    values += [-np.zeros(2), 0.1, float(np.nextafter(0.1, 1)), EVENT]
    assert len({repr(disk_cache._content(each)) for each in values}) == len(values)
