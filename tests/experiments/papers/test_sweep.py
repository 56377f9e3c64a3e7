# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

from dpfl import files
from experiments.trainings import parallel_runs, sweep
from tests.refusals import refuses


def counting_work(name, calls, **settings):
    def compute(folder):
        calls.append(name)
        return {"value": len(calls)}

    return sweep.Work({"name": name}, settings, compute)


def test_table_keeps_rows_and_is_read_back(tmp_path):
    path, calls = tmp_path / "results.csv", []
    works = [counting_work(name, calls) for name in "ab"]
    table = sweep.ResultsTable(path)
    for work in works:
        assert work not in table
        table.add(work, work.compute(tmp_path))
    again = sweep.ResultsTable(path)
    assert [again.row(work)["value"] for work in works] == ["1", "2"]
    assert again.row(works[0])["folder"] == "name=a"
    # A row of other settings is not reused, nor one that a kill has cut.
    assert counting_work("a", calls, rounds=2) not in again
    text = path.read_text()
    path.write_text(text[: text.rindex(',"[{')])
    again = sweep.ResultsTable(path)
    assert [work in again for work in works] == [True, False]


def test_a_label_is_not_overwritten_by_a_measured_column(tmp_path):
    work = sweep.Work({"epsilon": 8.0}, {}, lambda folder: {"epsilon": 7.9})
    table = sweep.ResultsTable(tmp_path / "results.csv")
    table.add(work, work.compute(tmp_path))
    again = sweep.ResultsTable(tmp_path / "results.csv")
    for row in (table.row(work), again.row(work)):
        assert row["epsilon"] == "8.0"
        assert row["measured_epsilon"] == "7.9"


def test_a_table_is_of_one_device(tmp_path):
    kinds = {"": {}, "cpu": {sweep.DEVICE: "cpu"}, "H200": {sweep.DEVICE: "H200"}}
    for first in kinds:
        folder = files.public_folder(tmp_path / (first or "tff"))
        tables = [sweep.ResultsTable(folder / "results.csv") for _ in kinds]
        # Work that trains nothing, and a run that diverged.
        tables[0].add(counting_work("other", []), {"final_accuracy": "nan"})
        for table, device in zip(tables, kinds):
            table.check_device(device)
        time = {"wall_time_seconds": 1}
        tables[0].add(counting_work("first", []), {**time, **kinds[first]})
        for table, device in zip(tables, kinds):
            work = counting_work(device, [])
            if device == first:
                table.add(work, {**time, **kinds[device]})
                continue
            # It began before there was a row.
            with refuses(ValueError, "device", first or "TFF", device or "TFF"):
                table.add(work, {**time, **kinds[device]})
            with refuses(ValueError, "device", first or "TFF", device or "TFF"):
                tables[0].check_device(device)


def test_only_rows_of_jax_name_their_device(tmp_path):
    for engine in ("tff", "jax"):
        content = dict.fromkeys(sweep.SUMMARY_COLUMNS, 1)
        content["engine"] = {"engine": engine, "device": "cpu"}
        files.write_json(tmp_path / "summary.json", content)
        assert (sweep.DEVICE in sweep.measured(tmp_path)) == (engine == "jax")


def test_missing_rows_are_computed_in_order(tmp_path):
    table, calls = sweep.ResultsTable(tmp_path / "results.csv"), []
    grid = [counting_work(name, calls) for name in "abc"]
    table.add(grid[1], {"value": 1})
    parallel_runs.ParallelRuns(tmp_path).do(grid, table)
    assert calls == ["a", "c"] and all(work in table for work in grid)
