# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""dpfl-privacy, run as a user runs it: numbers, tables, files and refusals."""

import functools
import json
import re

import dp_accounting
import pytest

from dpfl import accounting, files, mechanisms
from dpfl.training import checkpoint, report
from experiments import privacy_curves
from tests.experiments import programs
from tests.refusals import names
from tests.training import fakes

call = functools.partial(programs.forked, "privacy")


def rows(*args):
    done = call(*args, "--json")
    return json.loads(done.stdout)


def test_epsilon_is_the_accountants():
    [row] = rows(
        *("epsilon", "--mechanism=l2_csgm", "--noise_multiplier=2.1912"),
        *("--keep_fraction=0.01", "--rotation=dft", "--participation=poisson"),
        *("--population=200", "--cohort_size=100", "--rounds=60", "--delta=1e-3"),
    )
    mechanism = mechanisms.L2Csgm(100, 1.0, 2.1912, 0.01, rotation="dft")
    event = mechanism.dp_event(mechanisms.PoissonSampling(200, 100, 60), 1018174)
    assert row["epsilon"] == accounting.epsilon(event, 1e-3).epsilon
    assert row["accounting_method"] == "extreme-pld" and 7 < row["epsilon"] < 8
    assert row["uplink_bits"] == 0.01 * 32 * 1018174 + 128 + 32
    assert row["mean_squared_error"] == mechanism.mean_squared_error(1018174)


def test_epsilon_has_figures_for_audits():
    flags = "--mechanism=gaussian", "--noise_multiplier=2", "--rounds=4", "--delta=3e-5"
    [row] = rows("epsilon", *flags)
    figures = row["audit_figures"]
    event = dp_accounting.GaussianDpEvent(1.0)
    expected = accounting.epsilon(event, 3e-5, figures=True).figures
    assert figures["epsilons"] == {str(d): e for d, e in expected.epsilons.items()}
    assert figures["epsilons"]["3e-05"] == row["epsilon"]
    assert (figures["mu"], figures["rho"], figures["absent"]) == (1.0, 0.5, {})
    rates = figures["true_positive_rates"]
    assert rates == {str(a): p for a, p in expected.true_positive_rates.items()}
    lines = call("epsilon", *flags).stdout.splitlines()
    assert f"epsilon at 3e-05: {row['epsilon']:.5g}" in lines and len(lines) == 16
    for line, value in zip(lines[12:], (1.0, 0.5, *rates.values())):
        assert line.endswith(f": {value:.5g}")


def test_calibrate_fig_1():
    [row] = rows(
        *("calibrate", "--mechanism=l2_csgm", "--keep_fraction=0.01", "--epsilon=5"),
        *("--linf_ratio=1e-4", "--dimension=17179869184", "--delta=1e-8"),
        "--accounting_method=rdp",
    )
    assert row["noise_multiplier"] == pytest.approx(1.1954, abs=2e-4)
    assert 4.999 < row["epsilon"] <= 5.0
    assert row["accounting_method"] == "rdp"


COMPARE = ["compare", "--epsilon=4", "--dimension=65536", "--compression_rates=1,50"]
COMPARE += ["--accounting_method=rdp"]


def test_compare_at_equal_epsilon():
    found = rows(*COMPARE, "--mechanisms=gaussian,l2_csgm,linf_csgm")
    shown = [f"{r['mechanism']} {r['compression_rate']:g}" for r in found]
    rates = ["l2_csgm 1", "l2_csgm 50", "linf_csgm 1", "linf_csgm 50"]
    assert shown == ["gaussian 1", *rates]
    assert all(3.99 < row["epsilon"] <= 4 for row in found)
    gaussian, l2, sparse_l2, _, sparse_linf = found
    assert l2["noise_multiplier"] == pytest.approx(gaussian["noise_multiplier"])
    z = sparse_l2["noise_multiplier"]
    assert gaussian["noise_multiplier"] < z < sparse_linf["noise_multiplier"]
    assert sparse_l2["mean_squared_error"] == pytest.approx(
        65536 * z**2 / 100**2 + 49 / 100
    )
    assert sparse_l2["uplink_bits"] == pytest.approx(65536 / 50 * 32 + 160)


def test_compare_at_equal_error():
    found = rows(*COMPARE, "--equal=error", "--mechanisms=gaussian,l2_csgm")
    errors = [row["mean_squared_error"] for row in found]
    assert errors == pytest.approx([errors[0]] * 3, rel=1e-9)
    assert found[0]["epsilon"] <= 4 < found[2]["epsilon"]
    # An error that the compression alone is above of is had by no noise.
    more = ["--equal=error", "--cohort_size=2000", "--mechanisms=linf_csgm"]
    *_, row = rows(*COMPARE, *more)
    assert row["noise_multiplier"] is row["epsilon"] is None
    assert row["mean_squared_error"] == pytest.approx(49 / 2000)


def test_compare_covers_every_private_mechanism():
    found = rows(
        *(*COMPARE, "--bits=16", "--sketch_size=32", "--rounds_per_epoch=4"),
        *("--participation=once_per_epoch", "--population=400", "--rounds=8"),
    )
    private = {
        name for name, config in mechanisms.MECHANISMS.items() if config.is_private
    }
    assert {row["mechanism"] for row in found} == private
    assert all(3.99 < row["epsilon"] <= 4 for row in found)
    assert all(row["uplink_bits"] > 0 for row in found)
    assert all(row["downlink_bits"] > 0 for row in found)


def test_bits_prints_the_curve_and_names_omitted_points(tmp_path):
    picture = tmp_path / "curve.png"
    done = call(
        *("bits", "--epsilon=8", "--delta=1e-5", "--json", "--noprogress"),
        "--widths=7,3,16",
        *("--mechanisms=distributed_discrete_gaussian,l2_csgm", f"--plot={picture}"),
        *("--cohort_size=100", "--dimension=16384", "--compression_rates=10"),
    )
    assert picture.read_bytes()[1:4] == b"PNG"
    seven, sixteen, sparse = json.loads(done.stdout)
    assert (seven["bits"], sixteen["bits"], sparse["bits"]) == (7, 16, None)
    assert seven["bits_per_parameter"] == 7
    assert sparse["bits_per_parameter"] == pytest.approx(3.2 + 160 / 16384)
    # The Gaussian mechanism's noise for this budget, by hand, is the reference.
    z = accounting.calibrate_noise_multiplier(
        lambda z: mechanisms.Gaussian(100, 1.0, z).round_dp_event(16384, 1.0),
        *(8.0, 1e-5),
    )
    plain = 16384 * (z / 100) ** 2
    for row in (seven, sixteen, sparse):
        assert row["epsilon"] <= 8
        assert row["error_over_gaussian"] == pytest.approx(
            row["mean_squared_error"] / plain
        )
    assert sixteen["error_over_gaussian"] < seven["error_over_gaussian"] < 1.15
    [left_out] = done.stderr.splitlines()
    assert names(left_out, "distributed_discrete_gaussian", "bits", 6)


def test_helper_noise_supports_varying_cohorts():
    curve = ["bits", "--epsilon=8", "--widths=10", "--compression_rates=1"]
    curve += ["--population=1000", "--dimension=4096", "--accounting_method=rdp"]
    curve += ["--noprogress", "--mechanisms=distributed_discrete_gaussian"]
    [row] = rows(*curve)
    # A helper's message for each client's.
    assert row["bits_per_parameter"] == 20
    call(*curve, "--noise_source=clients", refused=("noise_source", "helpers"))


BANDS = ["bands", "--epsilon=8", "--population=400", "--rounds=12"]
BANDS += ["--accounting_method=rdp"]


def test_bands_and_their_least_error(tmp_path):
    png = tmp_path / "a.png"
    done = call(*BANDS, "--compression_rates=10", f"--plot={png}")
    lines = [line.split() for line in done.stdout.splitlines()[1:]]
    of = ["matrix_factorization"] * 4 + ["sgmf"] * 4
    assert [line[0] for line in lines] == of
    assert [line[2] for line in lines] == ["1", "2", "3", "4"] * 2
    for curve, rate in ((lines[:4], "1"), (lines[4:], "10")):
        errors = [float(line[6]) for line in curve]
        assert [line[-1] == "True" for line in curve] == [
            error == min(errors) for error in errors
        ]
        assert {line[1] for line in curve} == {rate}
    # Independent noise and Poisson sampling is what all are compared with.
    assert lines[0][8] == "1"
    assert re.search(r"sgmf .*10.* bands [234] ", done.stderr)
    assert png.read_bytes().startswith(b"\x89PNG")


def test_bands_without_sampling():
    found = rows(
        *BANDS, "--participation=once_per_epoch", "--mechanisms=matrix_factorization"
    )
    assert [row["bands"] for row in found] == [1, 2, 3, 4]
    assert all(row["over_independent"] is None for row in found)
    assert [row["least"] for row in found] == [False, False, False, True]


def test_partially_known_error_is_not_compared():
    dome = ["--sketch_size=32", "--participation=once_per_epoch", "--population=200"]
    [_, row] = rows(*COMPARE, *dome, "--mechanisms=gaussian,dome")
    assert row["mechanism"] == "dome" and row["mean_squared_error"] is None
    done = call(*COMPARE, *dome, "--equal=error", "--json")
    assert "dome" not in {row["mechanism"] for row in json.loads(done.stdout)}
    assert names(done.stderr, "dome", "--equal", "epsilon")


def test_compare_writes_table_and_plot_and_names_omissions(tmp_path):
    png, txt = tmp_path / "a.png", tmp_path / "a.txt"
    done = call(*COMPARE, f"--plot={png}", f"--output={txt}")
    assert done.stdout == ""
    lines = txt.read_text().splitlines()
    assert lines[0].split()[:2] == ["mechanism", "compression"]
    assert lines[1].split()[:2] == ["gaussian", "1"]
    assert {"l2_csgm", "linf_csgm"} <= {line.split()[0] for line in lines}
    for words in ("dome (--sketch_size)", "sgmf (--rounds_per_epoch)", "(--bits)"):
        assert words in done.stderr
    assert png.read_bytes().startswith(b"\x89PNG")


def test_huge_epsilon_is_noted_with_noise_for_epsilon_8():
    run = ["--rounds=100", "--dimension=1000"]
    done = call("epsilon", "--noise_multiplier=0.1", *run, "--json")
    assert done.returncode == 0 and json.loads(done.stdout)[0]["epsilon"] > 50
    noise = re.search(r"gaussian.*noise_multiplier \D*([\d.]+)", done.stderr)
    done = call("epsilon", f"--noise_multiplier={noise.group(1)}", *run, "--json")
    assert 7.9 < json.loads(done.stdout)[0]["epsilon"] <= 8
    assert done.stderr == ""


def test_unreachable_compression_rate_is_named():
    few = ("--epsilon=8", "--dimension=650", "--bits=16", "--accounting_method=rdp")
    few += ("--compression_rates=100",)
    done = call("compare", *few)
    assert names(done.stderr, "sketched_ddg", "compression_rate")


def test_help_lists_the_flags():
    done = programs.run("privacy", "--help")
    assert done.returncode == 0
    for flag in ("--epsilon", "--keep_fraction", "--participation", "--plot"):
        assert flag in done.stdout
    about = done.stdout.partition("Columns of the tables:")[2]
    columns = (privacy_curves.BITS_COLUMNS, privacy_curves.BANDS_COLUMNS)
    plain = {"mechanism", "least", "bands", "bits"}
    for heading in {name for of in columns for name in of.values()} - plain:
        assert heading in about, heading


def test_explain_agrees_with_epsilon_and_calibrate():
    setting = ["--mechanism=l2_csgm", "--participation=poisson", "--delta=1e-3"]
    setting += ["--population=100", "--cohort_size=50", "--rounds=60"]
    setting += ["--dimension=15994", "--accounting_method=rdp"]
    for command, budget in (
        ("epsilon", "noise_multiplier=3.35"),
        ("calibrate", "epsilon=8"),
    ):
        [row] = rows(command, *setting, f"--{budget}")
        [found] = rows("explain", *setting, f"--{budget}")
        for name in ("epsilon", "delta", "accounting_method", "order", "relation"):
            assert found[name] == row[name], name
        z = found["mechanism"]["noise_multiplier"]
        assert z == row["noise_multiplier"] and z == pytest.approx(3.35, abs=0.01)
        epsilons = {each["route"]: each["epsilon"] for each in found["routes"]}
        assert epsilons["rdp"] == row["epsilon"] < epsilons["stopped-pld"] < 23
        assert found["participation"]["rounds"] == 60
        first = "private for add_or_remove or replaced_by_zeros:", "  60 times:"
        assert tuple(found["event"][:2]) == first


def test_explain_prints_a_table():
    done = call(
        "explain", "--noise_multiplier=0", "--rounds=3", "--accounting_method=tight"
    )
    first, *_, last = done.stdout.splitlines()
    assert first.startswith("epsilon inf at delta 1e-05 by exact-gaussian")
    assert "    3 times:" in done.stdout.splitlines()
    assert last.split()[:2] == ["rdp", "inf"] and last.split()[-1] == "gaussian.md"


def run_folder(folder, plan, done, **changes):
    """An output folder with the summary that a run has after so many rounds."""
    start = checkpoint.beginning(fakes.POPULATION)
    summary = report.summary(plan, start._replace(round_index=done))
    folder.mkdir(exist_ok=True)
    files.write_json(folder / "summary.json", {**summary, **changes})
    (folder / "metrics.csv").write_text("round\n1\n")
    return summary


STREAM = {"matrix_method": "banded", "matrix_bands": 2}
HELPERS = {"noise_source": "helpers", "bits": 16}
RUNS = {
    "sampled": {"mechanism": "l2_csgm", "noise_multiplier": 2.0},
    "stopped": {"noise_multiplier": 1.0, "epsilon": 5.0},
    "of helpers": {
        **{"mechanism": "distributed_skellam", "mechanism_options": HELPERS},
        **{"noise_multiplier": 1.0, "measure": "released"},
    },
    "epochs": {
        **{"mechanism": "sgmf", "participation": "once_per_epoch"},
        **{"noise_multiplier": 1.0, "mechanism_options": STREAM, "min_separation": 2},
    },
    "stream": {
        **{"mechanism": "matrix_factorization", "participation": "cyclic_poisson"},
        **{"noise_multiplier": 1.0, "min_separation": 2},
        "mechanism_options": {**STREAM, "noise_stream": "run"},
    },
    "slots": {"participation": "random_allocation", "noise_multiplier": 1.0},
    "secret": {"participation": "balls_in_bins", "noise_multiplier": 1.0},
    "canaries": {"canaries": 100, "noise_multiplier": 1.0},
    "none": {"mechanism": "none"},
}


@pytest.mark.parametrize("name", RUNS)
def test_explain_of_a_run_matches_its_summary(monkeypatch, tmp_path, name):
    plan = fakes.make_plan(monkeypatch, **{"accounting_method": "auto", **RUNS[name]})
    rounds = min(plan.last_round, 7)
    summary = run_folder(tmp_path, plan, rounds)
    [found] = rows("explain", str(tmp_path))
    for key in ("delta", "accounting_method", "relation", "dimension"):
        assert found[key] == summary[key], key
    no_epsilon = name == "none"
    assert found["epsilon"] == (None if no_epsilon else summary["epsilon"])
    assert found["run"] == str(tmp_path)
    assert found["participation"]["rounds"] == rounds < plan.participation.rounds
    [taken] = [each for each in found["routes"] if each["is_taken"]]
    assert taken["route"] == summary["accounting_method"]
    assert no_epsilon or taken["pages"]
    # Arrays are shown by their shapes.
    assert all("[" not in line for line in found["event"])


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 7.0},
        {"mechanism": "of_another_package"},
        {"mechanism_options": None},
        {"dimension": "many"},
    ],
    ids=repr,
)
def test_explain_refuses_a_summary_with_mismatched_epsilon(
    monkeypatch, tmp_path, changes
):
    plan = fakes.make_plan(monkeypatch, noise_multiplier=2.0)
    run_folder(tmp_path, plan, 8, **changes)
    done = call("explain", str(tmp_path), refused=("RUN", tmp_path))
    assert done.stdout == ""
