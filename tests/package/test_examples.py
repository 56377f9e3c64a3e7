# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs the notebooks of examples/, and holds them to what they print.

They are plain Python, and a program that begins with TensorFlow Federated imported
(`tests.forks`). One of them runs in a kernel, and that in PyTorch where that is.
"""

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import numpy as np
import pytest

from dpfl import files
from experiments import effects
from tests import forks
from tests.refusals import names
from tools import comparisons

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples"
NAMES = {"choose_a_mechanism", "foreign_loop", "own_mechanism", "tff_tutorial"}
NAMES |= {"jax_aggregator"}
# Loops without TFF's own learning processes, and one with a query.
LOOPS = {"jax_loop", "pytorch_loop", "tff_query"}


def executed(name, folder):
    """Runs a notebook as its reader would, in a folder; returns what it printed."""
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    client = nbclient.NotebookClient(
        notebook,
        timeout=None,
        startup_timeout=forks.SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=environment)
    return printed(notebook)


def printed(notebook):
    """What a notebook's cells have printed."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(
        output.text
        for output in outputs
        if output.output_type == "stream" and output.name == "stdout"
    )


def in_plain_python(code):
    """A notebook's cell, which may write a file."""
    if not code.startswith("%%writefile "):
        return code
    first, _, content = code.partition("\n")
    return f"pathlib.Path({first.split()[1]!r}).write_text({content!r})"


def as_a_program(name, folder, changes=(), python=None):
    """What a notebook of plain Python prints.

    Args:
      name: The notebook's.
      folder: Where it runs.
      changes: Pairs of a text in it and what stands there instead, to take less time.
      python: The interpreter; None is this one with TensorFlow Federated imported.
    """
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    code = "\n".join(map(in_plain_python, cells))
    for old, new in changes:
        assert code.count(old) == 1
        code = code.replace(old, new)
    script = folder / "notebook.py"
    script.write_text(code, encoding="utf-8")
    if python is None:
        done = forks.run(script, folder=folder)
    else:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [str(python), str(script)]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers(pattern, text):
    """The number that follows each place where a pattern is."""
    return [float(x) for x in re.findall(pattern + r" (-?[\d.]+(?:e-?\d+)?)", text)]


def test_notebooks_are_valid_with_stored_output():
    assert {path.stem for path in EXAMPLES.glob("*.ipynb")} == NAMES | LOOPS
    for name in NAMES | LOOPS:
        notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
        nbformat.validate(notebook)
        assert printed(notebook)
        assert not any(cell.get("execution_count") for cell in notebook.cells)


def test_choosing_a_mechanism(tmp_path):
    text = as_a_program("choose_a_mechanism", tmp_path)
    epsilons = numbers("epsilon", text)
    assert len(epsilons) == 6
    *met, by_renyi, careless = epsilons
    assert all(3.99 < epsilon <= 4 for epsilon in met)
    assert by_renyi == pytest.approx(4.6293, rel=1e-3)
    assert careless == pytest.approx(78.1, rel=1e-2)
    d, rotated = 10**6, 2**20
    # Kept values of the rotated coordinates, their number and the mask's seed.
    csgm = [(32 * rotated * kept + 32 + 128) / d for kept in (0.1, 0.01)]
    bits = numbers("bits up a parameter", text)
    assert bits == pytest.approx([32, *csgm, 3.2], abs=1e-4)
    noise = numbers("noise multiplier", text)
    stock = stock_epsilon(noise[0], 0.01, 1000, 1e-6)
    assert stock == pytest.approx(4, rel=2e-3)
    errors = numbers("error of the mean", text)
    assert errors[0] == pytest.approx(d * (noise[0] / 1000) ** 2, rel=1e-3)
    assert errors[0] < errors[1] < errors[2] < errors[3]
    cohorts = errors[4:]
    assert len(cohorts) == 2 and cohorts[0] > errors[0] > cohorts[1]


@functools.cache
def stock_epsilon(noise_multiplier, q, rounds, delta):
    """As the stock PLD accountant has it for rounds of Gaussian noise."""
    import dp_accounting
    from dp_accounting import pld

    once = dp_accounting.GaussianDpEvent(noise_multiplier)
    if q < 1:
        once = dp_accounting.PoissonSampledDpEvent(q, once)
    run = dp_accounting.SelfComposedDpEvent(once, rounds)
    return pld.PLDAccountant().compose(run).get_epsilon(delta)


def test_the_tutorial_of_tff(tmp_path):
    # Fewer rounds and clients at a weaker promise: the noise on the mean is alike.
    changes = [
        ("cohort_size=50, rounds=10", "cohort_size=20, rounds=4"),
        ("EPSILON = 8.0", "EPSILON = 20.0"),
        ("run.rounds % 5", "run.rounds % 2"),
    ]
    text = as_a_program("tff_tutorial", tmp_path, changes)
    half, whole = numbers("epsilon", text)
    assert 19.99 < whole <= 20 and 10 < half < whole
    d, rotated = 15994, 2**14
    expected = (32 * rotated * 0.1 + 32 + 128) / d
    assert numbers("expected bits up a parameter", text) == pytest.approx(
        [expected], abs=1e-4
    )
    # The mean over about 20 clients of numbers of coins: within 3% for sure.
    measured = numbers(r"(?<!expected )bits up a parameter", text)
    assert len(measured) == 2
    assert measured == pytest.approx([expected] * 2, rel=0.03)
    # A tenth of the digits by chance.
    assert numbers("accuracy", text)[-1] > 0.25


def check_loop(text, rounds):
    """A loop with epochs of five rounds that stopped, ended, and ended again resumed."""
    (noise,) = numbers("noise multiplier", text)
    stopped, whole, resumed = numbers("epsilon", text)
    assert stopped < whole == resumed <= 8
    epochs = stock_epsilon(noise, 1, rounds // 5, 1e-3)
    assert whole == pytest.approx(epochs, rel=2e-3)
    assert numbers("weights that differ", text) == [0]
    _, whole, resumed = numbers("accuracy", text)
    assert whole == resumed
    return whole


def test_loop_notebooks_show_matching_output():
    for name in LOOPS:
        notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
        assert check_loop(printed(notebook), rounds=60) > 0.9


@pytest.mark.parametrize("name", sorted(LOOPS))
def test_a_loop_learns_and_resumes(name, tmp_path):
    """Two epochs, with a stop within the second."""
    python = forks.other_python("torch") if name == "pytorch_loop" else None
    changes = [("ROUNDS, STOPPED = 60, 52", "ROUNDS, STOPPED = 10, 9")]
    text = as_a_program(name, tmp_path, changes, python)
    # A tenth by chance.
    assert check_loop(text, rounds=10) > 0.4


@pytest.mark.parametrize(
    ("table", "epsilon"), [("other_loops", 7.9993), ("frameworks", 7.9971)]
)
def test_loops_reach_one_accuracy(table, epsilon):
    """Within the spread of at least eight seeds, at the same epsilon."""
    found = {}
    label, (first, *others) = comparisons.COMPARISONS[table]
    for row in files.read_csv(ROOT / f"docs/results/{table}.csv"):
        assert float(row["epsilon"]) == pytest.approx(epsilon, abs=1e-4)
        own = found.setdefault(row[label], {})
        own[row["seed"]] = float(row["final_accuracy"])
    assert set(found) == {first, *others}
    for other in others:
        assert len(found[other]) == len(found[first]) >= 8
        own = effects.effect(found, [(other, first)])
        assert own.low < 0 < own.high


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """A folder with the notebook's package, and what the notebook printed."""
    folder = tmp_path_factory.mktemp("outside")
    return folder, as_a_program("own_mechanism", folder)


def command(folder, *args):
    """What a command prints where the notebook's package is installed."""
    first = functools.partial(forks.import_anew, [folder / "installed", ROOT])
    done = forks.run(*args, folder=folder, first=first)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_mechanism_of_ones_own(outside):
    _, text = outside
    assert "the test passed" in text
    (epsilon,) = numbers("epsilon", text)
    assert 1.99 < epsilon <= 2
    # A hundred values of 32 bits with their places, of 10,000 parameters.
    assert numbers("bits up a parameter", text) == [0.64]
    (expected,) = numbers("expected of the noise", text)
    (noise,) = numbers("noise multiplier", text)[-1:]
    assert expected == pytest.approx(10_000 * (noise / 500) ** 2, abs=1e-3)
    # A sum of 10,000 squares: 1.4% of standard error, and the last digit shown.
    (found,) = numbers("error of the mean", text)
    assert found == pytest.approx(expected, rel=0.08, abs=1e-3)


def test_an_installed_mechanism_trains_and_is_audited(outside):
    folder, _ = outside
    example = command(folder, "tools.soaks.runs", "top_k").split()
    assert "--mechanism=top_k" in example and "--kept=2" in example
    command(folder, "experiments.train", *example, "--rounds=2", "--output_dir=run")
    summary = json.loads((folder / "run" / "summary.json").read_text())
    assert summary["epsilon"] > 0
    lines = ["--quick", "--mechanisms=top_k", "--output=a.json", "--noprogress"]
    command(folder, "experiments.audit", *lines, "--trials=200")
    checks = {
        line["check"]: line for line in json.loads((folder / "a.json").read_text())
    }
    assert 0 < checks["epsilon"]["found"] < checks["epsilon"]["claimed"]


def test_a_task_of_ones_own_users_is_installed_and_trains(outside):
    folder, _ = outside
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 3)), np.arange(80) % 2
    np.savez(folder / "users.npz", x=x + y[:, None], y=y, users=np.arange(80) % 8)
    command(folder, "experiments.new_task", "points", "--from_npz=users.npz")
    # Which its user changes.
    module = folder / "points/src/points/__init__.py"
    line = '    spread: float = dpfl.option(1.0, "How far the points are apart.")\n\n\n'
    module.write_text(
        module.read_text().replace("\n\n\ndef load", f"\n\n{line}def load")
    )
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    install += ["--no-build-isolation", "--target", str(folder / "installed")]
    subprocess.run([*install, str(folder / "points")], check=True)
    assert "--spread" in command(folder, "experiments.train", "--helpfull")
    flags = ["--task=points", "--spread=2", "--mechanism=none", "--cohort_size=4"]
    command(
        folder, "experiments.train", *flags, "--rounds=2", "--output_dir=run_points"
    )
    summary = json.loads((folder / "run_points" / "summary.json").read_text())
    assert summary["flags"]["spread"] == 2 and summary["population"] == 8
    np.savez(folder / "alone.npz", x=x, y=y, users=np.zeros(80, int))
    # No task is made twice, of no file, of one user, or in a folder of others.
    first = functools.partial(forks.import_anew, [folder / "installed", ROOT])
    for words, told in (
        (["points", "--from_npz=users.npz"], "points"),
        (["other", "--from_npz=alone.npz"], "--from_npz"),
        (["other", "--from_npz=users.npz", "--output_dir=points"], "points"),
        (["other", "--from_npz=users.npz", "--output_dir="], "--output_dir"),
    ):
        done = forks.run("experiments.new_task", *words, folder=folder, first=first)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert told in done.stderr and not (folder / "other").exists()


def test_a_foreign_loop(tmp_path):
    text = executed("foreign_loop", tmp_path)
    rounds = numbers("round", text)
    assert rounds[:5] == [10, 20, 30, 40, 50]
    spent = numbers("epsilon", text)[:5]
    assert spent == sorted(spent) and 1.99 < spent[-1] <= 2
    # It has learned: the distance at the start is the norm of 20 unit normals.
    assert numbers("distance", text)[-1] < 1
    assert numbers("bits up a parameter", text) == [32]
    [refused] = (line for line in text.splitlines() if line.startswith("refused"))
    assert names(refused, "rounds", 50, 51)


def test_the_aggregator_in_jax(tmp_path):
    """A round that is lost and done again has other noise, and is charged for twice."""
    python = forks.other_python("jax")
    check_aggregator(as_a_program("jax_aggregator", tmp_path, python=python))


def test_the_aggregator_s_notebook_shows_matching_output():
    notebook = nbformat.read(EXAMPLES / "jax_aggregator.ipynb", as_version=4)
    check_aggregator(printed(notebook))


def check_aggregator(text):
    lost, again, whole = numbers("epsilon", text)
    assert lost < again < whole
    assert 8 < whole < 8.2
    assert numbers("are equal", text) == [0]
    assert min(numbers("accuracy", text)) > 0.8
    # A fifth of the 1,024 rotated coordinates, their number and the mask's seed.
    expected = (32 * 1024 * 0.2 + 32 + 128) / 650
    assert numbers("bits up a parameter", text) == pytest.approx([expected], rel=0.03)
