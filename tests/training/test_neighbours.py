# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Two runs on neighbouring data, and all that they write.

The clients' messages are those of updates of zeros, so that the two runs release the
same to the last bit. Whatever differs has no noise, and must be on the list of what the
event does not cover.
"""

import collections
import csv
import functools
import hashlib
import json

import numpy as np
import pytest
import tensorflow as tf

from dpfl import mechanisms, privacy_coverage
from dpfl.aggregators import round_functions
from dpfl.privacy_coverage import EXACT_FOR_SIMULATION, RELEASED
from dpfl.tasks import networks
from dpfl.tasks import task as task_lib
from dpfl.tasks.clients import ArrayClients
from dpfl.tasks.configs import SyntheticConfig
from dpfl.training import engine, page, report, selection
from dpfl.training import plan as plan_lib
from dpfl.training import run as run_lib
from tests.test_privacy_coverage import kind as kind_of
from tests.training.fakes import run_config
from tools.soaks.runs import events

CLIENTS, EXAMPLES, FEATURES, CLASSES = 8, 5, 6, 3
# The client in which the two data sets differ.
ONE = 1
MECHANISMS = {
    "l2_csgm": {"keep_fraction": 0.25},
    "distributed_discrete_gaussian": {"bits": 16, "noise_source": "helpers"},
}


def make_task(change, hold):
    """A task, in which client `ONE` may have two zeros, or no number, alone."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=[CLIENTS, EXAMPLES, FEATURES]).astype(np.float32)
    y = rng.integers(0, CLASSES, [CLIENTS, EXAMPLES]).astype(np.int32)
    held = np.ones([CLIENTS, EXAMPLES], bool)
    if "examples" in change:
        x[ONE], y[ONE], held[ONE, 2:] = 0, 0, False
    if change == "hostile":
        x[ONE] = np.nan
    tested = np.zeros_like(held)
    if hold:
        tested[:, :1] = True
    test = (x[tested], y[tested])
    if not hold:
        points = rng.normal(size=[9, FEATURES]).astype(np.float32)
        test = (points, np.zeros(9, np.int32))
    chosen = held & ~tested
    config = SyntheticConfig(num_clients=CLIENTS, batch_size=2)
    return task_lib.Task(
        name="synthetic",
        description="Points.",
        client_ids=task_lib.client_names(CLIENTS),
        clients=ArrayClients(x[chosen], y[chosen], chosen.sum(1)),
        test_examples=lambda: test,
        network=networks.Network((FEATURES,), np.float32, (networks.Dense(CLASSES),)),
        defaults=task_lib.TrainingDefaults(0.1, 1.0, 0.5, 4, 3),
        config=config,
        fingerprint=hashlib.sha256(x[held].tobytes()).hexdigest(),
        clients_hold_test_examples=hold,
    )


def zeros_for_messages(patch):
    """Has clients send what they would of no update, and measure what they really do."""
    real = round_functions.GraphRoundFunctions.encode

    def encode(self, value, shared, weight=None):
        assert weight is None
        update = tf.nest.map_structure(tf.zeros_like, value["update"])
        nothing = collections.OrderedDict(value, update=update)
        return real(self, nothing, shared)[0], real(self, value, shared)[1]

    patch.setattr(round_functions.GraphRoundFunctions, "encode", encode)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """What a run writes, by place and name; runs of equal settings are one."""
    last = engine.LastProcess()

    @functools.cache
    def write(mechanism, hold, measure, change=""):
        with pytest.MonkeyPatch.context() as patch:
            folder = tmp_path_factory.mktemp("run")
            return what_is_written(
                folder, patch, last, mechanism, hold, measure, change
            )

    yield write
    write.cache_clear()


def what_is_written(folder, patch, last, mechanism, hold, measure, change):
    zeros_for_messages(patch)
    patch.chdir(folder)
    # The digest of the data is among what it is made of, and would change the noise.
    patch.setattr(selection, "run_key", lambda seed, digest: 7)
    task = make_task(change, hold)
    patch.setattr(plan_lib.registry, "load_config", lambda *unused: task)
    if "leaves" in change:
        real = selection.select_cohort
        patch.setattr(
            selection, "select_cohort", lambda *a: [c for c in real(*a) if c != ONE]
        )
    plan = plan_lib.make_plan(
        run_config(
            task="synthetic",
            task_config=task.config,
            mechanism=mechanism,
            mechanism_options=MECHANISMS[mechanism],
            noise_multiplier=1.0,
            seed=4,
            eval_every=2,
            output_dir="run",
            measure=measure,
        )
    )
    said, shown = [], []
    postfix = report.postfix
    patch.setattr(report, "postfix", lambda *a: shown.append(postfix(*a)) or shown[-1])
    with run_lib.Run(plan, said.append, last=last) as run:
        summary = run.train()
    lines = [report.describe(plan), report.final_lines(summary)]
    found = in_files(folder / "run")
    bar = (part for words in shown for part in words.split(", "))
    streams = {"stdout": "\n".join(lines).split("\n"), "stderr": [*said, *bar]}
    for stream, parts in streams.items():
        for part in parts:
            # A line that differs is one that the other run does not have.
            found[stream, part] = True
    return found


def in_files(folder):
    """What is in a run's output folder, by file and column, tag, key or part."""
    found = {}
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder).as_posix()
        if path.is_dir():
            continue
        names = {"*": path.read_bytes()}
        if path.suffix == ".csv":
            with path.open(newline="") as file:
                rows = list(csv.DictReader(file))
            names = {name: [row[name] for row in rows] for name in rows[0]}
        elif path.parent.name == "tensorboard":
            names = collections.defaultdict(list)
            for clock, _, name, value in events(folder):
                names["wall time"].append(clock)
                names[name].append(value)
        elif place == "summary.json":
            names = flat(json.loads(path.read_text()))
        elif place == page.NAME:
            heading = f"<h2>{page.EXACT_HEADING}</h2>"
            above, *below = path.read_text().split(heading)
            names = {"*": above}
            if below:
                names[page.EXACT_HEADING] = below
        found.update(((place, name), content) for name, content in names.items())
    return found


def flat(summary):
    found = {}
    for name, part in summary.items():
        if name in ("exact", "settings", "flags"):
            found.update((f"{name}.{inner}", value) for inner, value in part.items())
        else:
            found[name] = part
    return found


def differences(first, second):
    return {
        where for where in {*first, *second} if first.get(where) != second.get(where)
    }


# Of a change, what must differ.
MUST = {
    "examples": {
        ("metrics.csv", "exact_train_loss"),
        ("summary.json", "exact.task_fingerprint"),
        ("metrics.csv", "exact_eval_loss"),
        ("summary.json", "exact.final_metrics"),
    },
    # It ends no run: not by its training, nor by the loss on its test examples.
    "hostile": {("metrics.csv", "exact_train_loss")},
    "leaves": {
        ("metrics.csv", "exact_train_loss"),
        ("metrics.csv", "exact_clients"),
        ("metrics.csv", "exact_total_uplink_bits"),
        ("summary.json", "exact.total_uplink_bits"),
    },
}


@pytest.mark.parametrize(
    ("mechanism", "hold", "measure", "changes"),
    [
        ("l2_csgm", True, None, ["leaves, examples", "hostile"]),
        ("distributed_discrete_gaussian", True, None, ["leaves"]),
        ("distributed_discrete_gaussian", False, EXACT_FOR_SIMULATION, ["leaves"]),
    ],
)
def test_unnoised_differences_between_neighbours_are_listed(
    written, mechanism, hold, measure, changes
):
    base = written(mechanism, hold, measure)
    released = mechanisms.MECHANISMS[mechanism].released_measurements
    kind = functools.partial(kind_of, declared=released)
    prefix = "exact_eval" if hold else "eval"
    assert ("metrics.csv", f"{prefix}_loss") in base
    is_sealed = mechanism == "distributed_discrete_gaussian" and measure is None
    for change in changes:
        must = set.union(*(MUST[one] for one in change.split(", ")))
        if is_sealed:
            must = must - {("metrics.csv", "exact_train_loss")}
        differ = differences(base, written(mechanism, hold, measure, change))
        marked = {where for where in differ if kind(*where) != privacy_coverage.COVERED}
        assert differ == marked
        assert must <= differ
        assert is_sealed or (page.NAME, page.EXACT_HEADING) in differ
    # All that is written is on the list, whether it differs here or not.
    kinds = {where: kind(*where) for where in base}
    assert set(kinds.values()) == {
        privacy_coverage.COVERED,
        privacy_coverage.EXACT,
        privacy_coverage.SECRET,
    }


FILES_OF_THE_EXPERIMENTER = ("checkpoints/", "manifest.json", "worker.log")


def test_released_only_outputs_do_not_differ_between_neighbours(written):
    base = written("l2_csgm", True, RELEASED)
    released = mechanisms.MECHANISMS["l2_csgm"].released_measurements
    exact = {p for p, n in base if kind_of(p, n, released) == "exact"}
    assert exact <= {"worker.log", "tensorboard/events.out.tfevents.1.dpfl"}
    [times] = [base[w] for w in base if w[1] == "wall time"]
    assert set(times) == {0.0}
    found = written("l2_csgm", True, RELEASED, "leaves, examples")
    left = {place for place, _ in differences(base, found)}
    assert all(place.startswith(FILES_OF_THE_EXPERIMENTER) for place in left), left


def test_exact_metrics_do_not_change_the_release(written):
    usual, released = (
        written("l2_csgm", True, measure) for measure in (None, RELEASED)
    )
    assert usual["model.npz", "*"] == released["model.npz", "*"]
