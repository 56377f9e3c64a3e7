# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import io
import json

import numpy as np
import pytest

import dpfl
from dpfl.factorization import methods, storage
from dpfl.factorization.workloads import LinearCooldown, Workload
from tests.refusals import refuses

CASES = {
    "optimal": {},
    "honaker-online": {},
    "band-low-rank": {"band": 2, "rank": 2},
    "toeplitz": {"bands": 3},
    "banded": {"bands": 3},
    "banded-inverse": {"bands": 3},
    "blt": {"buffers": 2},
}
WORKLOAD = Workload(12, 0.9, LinearCooldown())


@pytest.mark.parametrize("method", sorted(CASES))
def test_round_trip(tmp_path, method):
    found = methods.compute(WORKLOAD, method, **CASES[method])
    path = tmp_path / "deep" / "one.npz"
    storage.save(found, path)
    again = storage.load(path)
    assert again.workload == WORKLOAD and again.method == method
    assert dict(again.params) == dict(found.params)
    assert type(again.factors) is type(found.factors)
    for name, array in found.factors.arrays().items():
        np.testing.assert_array_equal(again.factors.arrays()[name], array)
        assert again.factors.arrays()[name].dtype == array.dtype
    assert again.loss == found.loss and again.lower_bound == found.lower_bound
    assert [p.name for p in path.parent.iterdir()] == ["one.npz"]


def saved(tmp_path):
    path = tmp_path / "one.npz"
    storage.save(methods.compute(WORKLOAD, "optimal"), path)
    return path


def test_header_describes_the_file(tmp_path):
    with np.load(saved(tmp_path), allow_pickle=False) as archive:
        header = json.loads(str(archive["header"]))
    assert header["workload"]["rounds"] == 12 and header["kind"] == "dense"
    assert header["versions"]["dpfl"] == dpfl.__version__
    assert 0 <= header["gap"] <= 1e-6
    assert header["sensitivity"] == pytest.approx(1)
    assert len(header["checksum"]) == 64


@pytest.mark.parametrize(
    ("name", "change", "parts"),
    [
        ("b", lambda b: b * 0.99, ("checksum",)),
        ("header", lambda text: text.replace('tum":0.9', 'tum":0.8'), ("checksum",)),
    ],
    ids=["array", "header"],
)
def test_changed_contents_are_detected(tmp_path, name, change, parts):
    path = saved(tmp_path)
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    part = str(arrays[name]) if name == "header" else arrays[name]
    np.savez(path, **{**arrays, name: np.array(change(part))})
    with refuses(storage.StorageError, path, *parts):
        storage.load(path)


ARRAY = io.BytesIO()
np.save(ARRAY, np.ones(3))


@pytest.mark.parametrize(
    "contents",
    [b"", b"not an archive", b"PK\x03\x04truncated", ARRAY.getvalue()],
    ids=["empty", "text", "truncated", "array"],
)
def test_other_file_kinds_are_refused(tmp_path, contents):
    path = tmp_path / "one.npz"
    path.write_bytes(contents)
    with refuses(storage.StorageError, path):
        storage.load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError):
        storage.load(tmp_path / "none.npz")
