# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""`import dpfl` as a user's program has it."""

import dataclasses
import json
import os
import re
from pathlib import Path

import pytest

import dpfl
from dpfl import mechanisms
from tests.experiments import programs
from tests.refusals import refuses

ROOT = Path(__file__).resolve().parents[2]

# Its types are checked in tests/test_style.py.
PROGRAM = """
import dpfl

mechanism = dpfl.Gaussian(cohort_size=1000, clip_norm=0.3, noise_multiplier=0.9)
plan = dpfl.PoissonSampling(population=100_000, cohort_size=1000, rounds=1500)
found = dpfl.calibrate(mechanism, plan, dimension=7850, epsilon=8, delta=1e-6)
noise: float = found.noise_multiplier
spent: float = dpfl.epsilon(found, plan, dimension=7850, delta=1e-6)
relation = dpfl.privacy_report(found, plan, 7850, 1e-6).relation
ledger = dpfl.Ledger(found, plan, dimension=7850, delta=1e-6)
after: float = ledger.record_round()
print(noise, spent, relation, after)
"""


def test_every_public_name_exists():
    assert len(dpfl.__all__) <= 68
    for name in dpfl.__all__:
        assert getattr(dpfl, name) is not None
    assert set(dpfl.__all__) <= set(dir(dpfl))
    with refuses(AttributeError, "nonsense"):
        dpfl.nonsense  # noqa: B018


def test_docstring_lists_the_public_names_in_groups():
    groups = re.findall(r"^[A-Z][a-z ]+: .+\.\n\n((?:- `.+\n)+)", dpfl.__doc__, re.M)
    lines = [line for group in groups for line in group.splitlines()]
    assert len(groups) == 6 and len(lines) == dpfl.__doc__.count("\n- ")
    found = [re.fullmatch(r"- `(\w+)`: .+?( \[TF\])?\.", each) for each in lines]
    assert [each[1] for each in found] == dpfl.__all__
    free = [each[1] for each in found if not each[2]]
    code = f"{PROGRAM}\nimport sys; [getattr(dpfl, each) for each in {free}]\n"
    code += "assert not {'tensorflow', 'dpfl.needs_tff'} & {*sys.modules}"
    done = programs.python("-c", code)
    assert done.returncode == 0, done.stderr
    noise, spent, relation, after = done.stdout.split()
    assert 7.99 < float(spent) <= 8 and relation == "add_or_remove"
    assert 0 < float(after) < 8 and 0.6 < float(noise) < 0.7
    for name in set(dpfl.__all__) - set(free):
        subpackage = getattr(dpfl, name).__module__.split(".")[1]
        assert subpackage in ("aggregators", "engines", "tasks", "training")


def test_every_mechanism_and_participation_is_public():
    for kind in (*dpfl.MECHANISMS.values(), *dpfl.PARTICIPATIONS.values()):
        name = kind.__name__
        assert getattr(dpfl, name) is getattr(mechanisms, name) is kind
        assert name in mechanisms.__all__


def test_a_name_is_registered_once():
    class Other(dpfl.Gaussian):
        """Another mechanism of the same name."""

    with refuses(ValueError, "name", "gaussian"):
        dpfl.register(Other, "x:Y")
    with refuses(TypeError, "config", int):
        dpfl.register(int, "x:Y")
    with refuses(ValueError, "name", "digits"):
        dpfl.register_task("digits", dpfl.TaskEntry(dpfl.TaskConfig, "x", 1))


def with_fields(base, fields, **own):
    """A class as a package may make it, with types and defaults of fields by name."""
    kinds = {field: kind for field, (kind, _) in fields.items()}
    defaults = {field: default for field, (_, default) in fields.items()}
    return type("OfAPackage", (base,), {"__annotations__": kinds, **defaults, **own})


def mechanism_class(name="of_a_package", is_decorated=True, **fields):
    """A mechanism's class, wrong in some things."""
    fields = {"kept": (int, dpfl.option(1, "How many are kept.")), **fields}
    own = with_fields(dpfl.Gaussian, fields, name=name)
    return dataclasses.dataclass(frozen=True)(own) if is_decorated else own


def check_refused(error, *parts, **changes):
    """Checks that a wrong class is refused by a type and parts, and not registered."""
    before = dict(dpfl.MECHANISMS)
    with refuses(error, *parts) as caught:
        dpfl.register(mechanism_class(**changes), "x:Y")
    assert dpfl.MECHANISMS == before
    assert "\n" not in str(caught.value)


def test_plug_ins_unusable_as_flags_are_refused():
    for name, kind in [(None, TypeError), (3, TypeError), ("", ValueError)]:
        check_refused(kind, "name", repr(name), name=name)
    for name in ("a,b", "a b", "-x", "a/b", "é"):
        check_refused(ValueError, "name", repr(name), name=name)
    check_refused(TypeError, "config", is_decorated=False)
    check_refused(ValueError, "config", "'other'", other=(int, 1))
    for text in ("", 5):
        other = (int, dpfl.option(1, text))
        check_refused(ValueError, "config", "'other'", other=other)
    default = (int, dpfl.option(1, "A number.", at_least=2))
    check_refused(ValueError, "other", 1, other=default)
    with refuses(TypeError, "example"):
        dpfl.register(mechanism_class(), "x:Y", example=dpfl.Gaussian(3, 1.0, 1.0))


def task_class(**fields):
    own = with_fields(dpfl.TaskConfig, fields)
    return dataclasses.dataclass(frozen=True)(own)


@pytest.mark.parametrize(
    ("name", "entry", "error", "argument"),
    [
        (None, (task_class(),), TypeError, "name"),
        ("a b", (task_class(),), ValueError, "name"),
        ("own", (dict,), TypeError, "config_class"),
        ("own", (task_class(), "x", "7"), TypeError, "dimension"),
        ("own", (task_class(), "x", 7, "loss"), TypeError, "metric"),
        ("own", (task_class(other=(int, 1)),), ValueError, "other"),
        ("own", (task_class(other=(list, None)),), TypeError, "other"),
    ],
)
def test_a_task_without_flags_is_refused(name, entry, error, argument):
    config, module, dimension, *others = (*entry, "x", 7)[: max(3, len(entry))]
    before = dpfl.tasks.task_names()
    with refuses(error, argument):
        entry = dpfl.TaskEntry(config, module, dimension, *others)
        dpfl.register_task(name, entry)
    assert dpfl.tasks.task_names() == before


PLUGINS = {
    "broken": "import dpfl, other; 1 / 0",
    "nameless": "import dpfl, other; dpfl.register(other.Nameless, 'x:Y')",
    "good": "import dpfl, other; dpfl.register(other.Good, 'x:Y')",
}
OTHER = """
import dataclasses, dpfl

@dataclasses.dataclass(frozen=True)
class Nameless(dpfl.Gaussian):
    name = None

@dataclasses.dataclass(frozen=True)
class Good(dpfl.Gaussian):
    name = "good"
"""


def test_broken_plug_in_package_affects_no_other(tmp_path):
    (tmp_path / "other.py").write_text(OTHER)
    for name, text in PLUGINS.items():
        (tmp_path / f"{name}_plugin.py").write_text(text)
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {name}\nVersion: 1\n")
        entry = f"[dpfl.mechanisms]\n{name} = {name}_plugin\n"
        (info / "entry_points.txt").write_text(entry)
    line = "compare --epsilon=2 --rounds=3 --dimension=100 --accounting_method=rdp"
    path = f"{ROOT}{os.pathsep}{tmp_path}"
    words = "-m", "dpfl", "privacy", *line.split(), "--json"
    done = programs.python(*words, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    shown = {row["mechanism"] for row in json.loads(done.stdout)}
    assert {"gaussian", "good"} <= shown and None not in shown
    for name in PLUGINS:
        assert (f"{name}_plugin" in done.stderr) == (name != "good")
