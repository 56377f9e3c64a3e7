# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Grids of a user's own, with trainers that train nothing; the page has a real one."""

import math

import pytest
from scipy import stats

from dpfl import files, locks
from experiments import grids, plotting
from experiments.trainings import parallel_runs, sweep, trainers, tuning
from tests.experiments.fake_trainers import FakeTrainer
from tests.refusals import names, refuses

GIVEN = {
    "task": ["digits"],
    "mechanism": ["gaussian", "l2_csgm"],
    "compression_rate": ["3", "30"],
    "rounds": ["4"],
    "cohort_size": ["5"],
}
TUNED = {"server_lr": ["0.2", "1", "5"]}


save = plotting.save


def accuracy(flags):
    """Best at a server rate of 1; a rate of 5 has no number."""
    lost = 0.01 * math.log10(float(flags.get("compression_rate", 1)))
    seed = int(flags["seed"])
    return 0.9 - lost - 0.1 * (float(flags["server_lr"]) != 1) + 0.01 * (seed % 3) ** 2


class Trainer(FakeTrainer):
    """Has runs that are in use elsewhere, each of which is so once."""

    elsewhere: set = set()

    def begin(self, work, folder):
        if work.flags["seed"] in self.elsewhere:
            self.calls.pop()
            self.elsewhere.remove(work.flags["seed"])
            with pytest.raises(locks.InUseError) as used, locks.locked(folder.parent):
                with locks.locked(folder.parent):
                    pass
            raise trainers.WorkFailedError("used", 2, str(used.value))
        if float(work.flags["server_lr"]) == 5:
            said = f"no number, {trainers.DIVERGED} 1"
            raise trainers.WorkFailedError("diverged", 1, said)

    def measured(self, work):
        rate = float(work.flags.get("compression_rate", 1))
        bits = {"uplink_bits_per_parameter": 30 / rate + int(work.flags["seed"])}
        return {"exact": {**bits, "final_accuracy": accuracy(work.flags)}}


@pytest.fixture
def calls(monkeypatch):
    found = []
    monkeypatch.setattr(Trainer, "calls", found)
    monkeypatch.setattr(Trainer, "elsewhere", set())
    monkeypatch.setattr(parallel_runs, "Trainer", Trainer)
    monkeypatch.setattr(parallel_runs, "_LOOK_AGAIN", 0.01)
    monkeypatch.setattr(parallel_runs.machine, "processors", lambda: 2)
    # A picture takes a second.
    monkeypatch.setattr(plotting, "save", lambda figure, rows, folder: folder)
    return found


def done(calls):
    """The flags of the runs since the last call."""
    found = [call for call in calls if call != "checked"]
    calls.clear()
    return found


def grid(seeds=("1", "2"), tuned=TUNED, **given):
    return grids.Grid(grids.cells({**GIVEN, **given}), seeds, tuned, ["1001"])


def test_cells_have_the_flags_of_their_mechanism():
    cells = grids.cells({**GIVEN, "epsilon": ["8"], "mechanism": ["none", "l2_csgm"]})
    assert [c.get("compression_rate") for c in cells] == [None, "3", "30"]
    assert [c.get("epsilon") for c in cells] == [None, "8", "8"]
    cells = grids.cells(
        {**GIVEN, "task": ["digits", "synthetic"], "num_clients": ["9"]}
    )
    assert len(cells) == 6 and {c["num_clients"] for c in cells} == {"9"}
    with refuses(ValueError, "--compression_rate", "gaussian"):
        grids.cells({**GIVEN, "mechanism": ["gaussian"]})
    with refuses(ValueError, "--num_clients", "docs"):
        grids.cells({**GIVEN, "task": ["docs"], "num_clients": ["9"]})


def test_each_cell_has_its_best_setting_and_its_interval(
    calls, tmp_path, capsys, monkeypatch
):
    pictures, keep = [], plotting.write_picture

    def kept(picture, *where, **more):
        pictures.append(picture)
        keep(picture, *where, **more)

    with monkeypatch.context() as drawn:
        drawn.setattr(plotting, "save", save)
        drawn.setattr(plotting, "write_picture", kept)
        grid().do(tmp_path, jobs=1)
    assert calls[0] == "checked"
    tried, runs = split(done(calls))
    # Each setting of each cell once, on validation data and a seed of its own.
    assert len(tried) == 9 and {one["validation_fraction"] for one in tried} == {"0.1"}
    assert len(runs) == 6 and not any("validation_fraction" in one for one in runs)
    assert {one["server_lr"] for one in runs} == {"1"}
    said = capsys.readouterr()
    assert names(said.out, "9 of 9 runs", "6 of 6 runs", "36 rounds", "24 rounds")
    assert "cover exact test accuracy, bits up a parameter\n" in said.out
    # The interval of two seeds is longer than the axis of shares.
    (axis,) = pictures[0].axes
    assert 0 <= axis.get_ylim()[0] < 0.9 and axis.get_ylim()[1] == 1
    assert axis.get_ylabel() == "exact test accuracy"
    # Each rate is where its bits are, and what has none crosses the panel.
    assert axis.get_xlabel() == "bits up a parameter"
    assert axis.containers[0][0].get_xdata().tolist() == [2.5, 11.5]
    assert "95% interval of gaussian (1)" in axis.get_legend_handles_labels()[1]
    lines = files.read_csv(tmp_path / "sweep.csv")
    assert [one["compression_rate"] for one in lines] == ["", "3", "30"]
    for line in lines:
        own = {n: line[n] for n in line if line[n]}
        values = [accuracy({**own, "server_lr": 1, "seed": seed}) for seed in (1, 2)]
        low, high = stats.t.interval(
            0.95, 1, loc=sum(values) / 2, scale=stats.sem(values)
        )
        found = [float(line[name]) for name in ("low", "mean", "high")]
        assert found == pytest.approx([low, sum(values) / 2, high], abs=1e-9)
        assert (line["best_server_lr"], line["seeds"], line["diverged"]) == (
            "1",
            "2",
            "0",
        )
        assert float(line["epsilon"]) == 8
        sent = 30 / float(line["compression_rate"] or 1) + 1.5
        assert float(line["uplink_bits_per_parameter"]) == sent
    assert (tmp_path / "sweep.png").stat().st_size > 10_000
    # The same command does nothing, and a larger one what is missing.
    grid().do(tmp_path, jobs=1)
    assert not done(calls)
    grid(seeds=("1", "2", "3"), compression_rate=["3", "10", "30"]).do(tmp_path, jobs=1)
    tried, runs = split(done(calls))
    assert {one["compression_rate"] for one in tried} == {"10"} and len(tried) == 3
    assert len(runs) == 3 + 3


def split(runs):
    """The runs that tune, and those of the grid."""
    tried = [one for one in runs if one["seed"] == "1001"]
    return tried, [one for one in runs if one["seed"] != "1001"]


def test_a_best_value_at_an_end_is_marked(calls, tmp_path):
    grid(tuned={"server_lr": ["0.2", "1"]}).do(tmp_path, jobs=1)
    lines = files.read_csv(tmp_path / "sweep.csv")
    assert {line["best_at_end"] for line in lines} == {"server_lr"}


def test_diverged_runs_are_counted_and_left_out(calls, tmp_path):
    one = grid(tuned={}, server_lr=["1", "5"])
    one.do(tmp_path, jobs=1)
    for line in files.read_csv(tmp_path / "sweep.csv"):
        diverged = line["server_lr"] == "5"
        assert (line["seeds"], line["diverged"]) == (
            ("0", "2") if diverged else ("2", "0")
        )
        assert (line["mean"] == "") == diverged
    (tmp_path / "others").mkdir()
    with refuses(ValueError, "--tune", "gaussian"):
        grid(tuned={"server_lr": ["5", "5.0"]}).do(tmp_path / "others", jobs=1)


def test_a_run_that_is_trained_elsewhere_is_looked_at_again(calls, tmp_path):
    Trainer.elsewhere.add("1")
    one = grid(tuned={}, server_lr=["1"], mechanism=["l2_csgm"], compression_rate=["3"])
    one.do(tmp_path, jobs=1)
    assert [run["seed"] for run in done(calls)] == ["2", "1"]
    assert len(files.read_csv(tmp_path / "results.csv")) == 2


def test_tables_of_two_processes_keep_the_rows_of_both(tmp_path):
    works = [grids.work({"task": "digits", "mechanism": "none"}, s) for s in ("1", "2")]
    both = [sweep.ResultsTable(tmp_path / "results.csv") for _ in works]
    for table, work in zip(both, works):
        table.add(work, {"final_accuracy": 0.5})
    assert all(work in sweep.ResultsTable(tmp_path / "results.csv") for work in works)


def test_jax_is_given_no_setting_of_tff(calls, tmp_path, monkeypatch):
    monkeypatch.setattr(sweep.engine, "of", lambda name: name)
    for engine in ("tff", "jax"):
        one = grid(tuned={}, server_lr=["1"], engine=[engine])
        one.do(tmp_path / engine, jobs=2)
        assert all(("concurrency" in run) == (engine == "tff") for run in done(calls))


def test_the_best_setting_did_not_diverge():
    losses = {"1": ["0.5", "0.7"], "2": ["0.4", "0.6"], "3": ["0.1", "nan"]}
    rows = [{"rate": r, "final_loss": x} for r, two in losses.items() for x in two]
    ranked = tuning.ranked(rows, ["rate"], "final_loss", lower_is_better=True)
    assert [one.setting["rate"] for one in ranked] == ["2", "1", "3"]
    assert [one.mean for one in ranked[:2]] == pytest.approx([0.5, 0.6])


def test_ends_have_all_words_and_the_extremes_of_numbers():
    works = [
        grids.work({"task": "digits", "mechanism": m, "server_lr": rate}, "1")
        for m in ("gaussian", "none")
        for rate in ("10", "9", "2e1")
    ]
    found = [(w.flags["mechanism"], w.flags["server_lr"]) for w in tuning.ends(works)]
    ends = ("9", "2e1")
    assert {*found} >= {(m, r) for m in ("gaussian", "none") for r in ends}
    assert tuning.in_order(["30", "3", "3.0", "10"]) == ["3.0", "10", "30"]
