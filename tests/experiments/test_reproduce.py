# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import functools
import pathlib
import sys

import pytest

from dpfl import files, locks
from experiments import flag_files, plotting
from experiments.papers import chen2024, index
from experiments.papers.index import FIGURES
from experiments.trainings import parallel_runs, sweep, trainers
from tests import forks
from tests.experiments import programs
from tests.experiments.fake_trainers import FakeTrainer
from tests.refusals import names, refuses

RESULTS = pathlib.Path(__file__).resolve().parents[2] / "docs/results"


reproduce = functools.partial(programs.forked, "reproduce")


def test_figure_is_computed_and_reused(tmp_path):
    figure = ("--figure=mf_table2", f"--output_dir={tmp_path}")
    done = programs.run("reproduce", *figure, f"--table={tmp_path}/kept.csv")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "mf_table2-small"
    assert (folder / "mf_table2.png").stat().st_size > 10_000
    # A second call does no work, and draws the same table.
    picture = (folder / "mf_table2.png").read_bytes()
    (folder / "mf_table2.png").unlink()
    before = (folder / "results.csv").read_bytes()
    again = reproduce(*figure, "--plot_only")
    assert (folder / "mf_table2.png").exists()
    assert (folder / "results.csv").read_bytes() == before
    # What was measured is gone, but for the names of the work.
    rows = [{"key": row["key"]} for row in files.read_csv(folder / "results.csv")]
    (folder / "results.csv").write_text(files.csv_text(["key"], rows))
    reproduce(*figure, "--plot_only", refused=("mf_table2",))
    # A kept table has all that is drawn.
    for path in folder.glob("*.*"):
        path.unlink()
    again = reproduce(*figure, f"--from_table={tmp_path}/kept.csv")
    assert again.stdout.endswith("mf_table2.png\n")
    assert (folder / "mf_table2.png").read_bytes() == picture


@pytest.mark.parametrize(
    ("figure", "table"),
    [("mf_table2", "mf_table2-small/results"), ("csgm_fig2", "kept")],
)
def test_unwritable_table_is_refused_before_any_work(tmp_path, figure, table):
    """It would take the place of the results, or its curves of a folder."""
    (tmp_path / "kept_curves.csv").mkdir()
    flags = (f"--figure={figure}", f"--output_dir={tmp_path}")
    reproduce(*flags, f"--table={tmp_path}/{table}.csv", refused=("--table",))
    assert not list(tmp_path.glob("*/results.csv"))


def test_l2_csgm_noise_converges_to_gaussian(tmp_path):
    works = [one for one in chen2024._noises("small") if one.labels["panel"] == "left"]
    rows = [one.compute(tmp_path) for one in works[::6]]
    gaussian = rows[0]["gaussian"]
    assert gaussian == pytest.approx(1.139, abs=5e-4)
    # Falls to the Gaussian's with the ratio, from above.
    left = [row["noise_multiplier"] for row in rows]
    assert left == sorted(left)
    assert gaussian <= left[0] <= 1.001 * gaussian


def test_missing_rows_are_counted(tmp_path):
    text = (RESULTS / "small/mf_table2.csv").read_text()
    table = tmp_path / "part.csv"
    table.write_text("".join(text.splitlines(keepends=True)[:-2]))
    figure = ("--figure=mf_table2", f"--output_dir={tmp_path}")
    done = reproduce(*figure, f"--from_table={table}")
    assert done.stdout.endswith("mf_table2.png (2 of 42 rows are still missing)\n")
    table.write_text(text.replace(",root_mean,", ",other,"))
    reproduce(*figure, f"--from_table={table}")
    table.write_text(text.replace(",loss,", ",other,"))
    reproduce(*figure, f"--from_table={table}", refused=("--from_table", table, "loss"))


def test_missing_data_is_refused_before_any_work(tmp_path):
    data, output = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    flags = ("--figure=csgm_fig5", "--scale=paper", f"--data_dir={data}")
    # The remedy is a flag of this command.
    reproduce(
        *flags,
        f"--output_dir={output}",
        refused=("emnist_all.sqlite", data, "--download"),
    )
    assert not list(output.glob("*/results.csv"))


def test_rows_of_jax_are_kept_and_drawn_apart(tmp_path):
    folder, rows = tmp_path / "secagg_sweep-small-jax", {"final_accuracy": 0.5}
    folder.mkdir()
    table = sweep.ResultsTable(folder / "results.csv")
    for work in FIGURES["secagg_fig3"].grid("small", {"engine": "jax"}, [1]):
        table.add(work, {**rows, "uplink_bits_per_parameter": work.labels["bits"]})
    flags = ("--figure=secagg_fig3", f"--output_dir={tmp_path}", "--plot_only")
    done = reproduce(*flags, "--engine=jax", "--seeds=1")
    assert "missing" not in done.stdout
    assert (folder / "secagg_fig3.png").exists()
    assert "missing" in reproduce(*flags, "--engine=jax").stdout
    reproduce(*flags, refused=("--plot_only",))


def misspelt(folder):
    """Has this process read the papers' files from a folder, one with another field."""
    del sys.modules["experiments.papers.index"]
    own, flag_files.path = flag_files.path, lambda name: pathlib.Path(folder, name)
    for path in own("papers/ours.ini").parent.glob("*.*"):
        text = path.read_text(encoding="utf-8")
        path = pathlib.Path(folder, "papers", path.name)
        path.write_text(text.replace("\nseries", "\nsereis"), encoding="utf-8")


def test_a_misspelt_field_of_a_figure_is_named(tmp_path):
    (tmp_path / "papers").mkdir()
    first = functools.partial(misspelt, tmp_path)
    done = forks.run("experiments.reproduce", "--figure=list", first=first)
    programs.check_refused(done, "configs/papers", "sereis")
    with refuses(ValueError, "sets", "carful"):
        index._flags("careful carful", {"careful": "--rounds=1"})


class Refusing(FakeTrainer):
    """Refuses the last line of a figure."""

    def check(self, work, folder):
        last = index.FIGURES["csgm_fig2"].grid("small")[-1]
        if work.all_but_seed == last.all_but_seed:
            raise trainers.WorkFailedError("refused", 2, "epsilon must be above 0")


def refuse_the_last():
    parallel_runs.Trainer = Refusing


def test_all_lines_are_checked_before_the_first_is_trained(tmp_path):
    flags = "--figure=csgm_fig2", f"--output_dir={tmp_path}"
    done = forks.run("experiments.reproduce", *flags, first=refuse_the_last)
    assert done.returncode == 2 and names(done.stderr, "epsilon", 0), done.stderr
    assert not list(tmp_path.rglob("*.csv"))


def test_list_names_every_figure():
    done = reproduce("--figure=list")
    for name in ("csgm_fig1", "csgm_fig2", "csgm_fig4", "mean_estimation"):
        assert name in done.stdout


def test_concurrent_use_of_output_dir_is_refused(tmp_path):
    folder = tmp_path / "csgm_fig1-small"
    folder.mkdir()
    with locks.locked(folder):
        figure = "--figure=csgm_fig1", f"--output_dir={tmp_path}"
        reproduce(*figure, refused=(folder,))
    assert not (folder / "results.csv").exists()


def test_huge_epsilon_is_noted(capsys):
    rows = [
        {"epsilon": "8.0", "measured_epsilon": "7.9"},
        {"epsilon": "60.5"},
        {"noise_multiplier": "1.0"},
    ]
    plotting.print_remark(rows)
    assert "found in 1 of 3 rows" in capsys.readouterr().out
    plotting.print_remark(rows[:1])
    assert capsys.readouterr().out == ""
