# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from dpfl.tasks import docs, text
from dpfl.tasks.configs import DocsConfig
from dpfl.tasks.registry import load_task
from tests.refusals import refuses

SOURCE = '''"""First thing. Second thing here, it's said!

>>> import nothing_of_this
"""
raise SystemExit("a module must not be imported")
class A:
    """A class of things."""
    def f(self):
        """Returns the 3 things; or None at all."""
    async def g(self): "Awaits the one thing."
x = """not a docstring at all"""
'''


def _library(folder, modules=30, lines=10):
    for m in range(modules):
        sentences = " ".join(f"Word{chr(97 + i)} is in it." for i in range(lines))
        path = folder / f"mod{m:02d}.py"
        path.write_text(f'"""Module m{chr(97 + m % 26)} is here. {sentences}"""\n')
    return str(folder)


def _small(**options):
    return DocsConfig(vocab_size=5, sequence_length=6, lstm_size=4, **options)


def test_docstrings_are_read_in_order_without_importing(tmp_path):
    path = tmp_path / "m.py"
    path.write_text(SOURCE)
    found = docs.docstrings(str(path))
    assert [d.split()[0] for d in found] == ["First", "A", "Returns", "Awaits"]


@pytest.mark.parametrize(
    "content", [b"def f(:\n", b"# -*- coding: nonsense -*-\n", b""]
)
def test_unreadable_source_has_no_docstrings(tmp_path, content):
    path = tmp_path / "m.py"
    path.write_bytes(content)
    assert docs.docstrings(str(path)) == []
    assert docs.docstrings(str(tmp_path / "missing.py")) == []


def test_sentences_are_lower_case_words_without_doctests():
    found = docs.split("First big thing. It's so, No?\n\n>>> code(1)\n... y\n")
    assert found == [("first", "big", "thing", "."), ("it's", "so", ",", "no", "?")]


def test_module_names_are_sorted_and_tests_left_out(tmp_path):
    for name in ["b.py", "a/__init__.py", "a/c.py", "test/x.py", "site-packages/y.py"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert list(docs.module_files(str(tmp_path))) == ["a", "a.c", "b"]


def _sentences(*texts):
    return [tuple(text.split()) for text in texts]


def test_encoding_marks_begin_end_unknown_and_padding():
    tokens = text.Tokens(2)
    rows = docs.encode(_sentences("a z", "b a b a b", "b b b b"), ["a", "b"], 4)
    assert rows.tolist() == [
        [tokens.begin, 1, tokens.unknown, tokens.end, 0],
        [tokens.begin, 2, 1, 2, 1],
        [tokens.begin, 2, 2, 2, 2],
    ]
    assert rows.dtype == np.int32


def test_vocabulary_is_by_frequency_then_alphabet():
    chosen = _sentences("b a", "c", "c d")
    assert docs.build_vocabulary(chosen, 3) == ["c", "a", "b"]
    with refuses(ValueError, "vocab_size", 4, 5):
        docs.build_vocabulary(chosen, 5)


def test_held_out_modules_are_excluded_from_clients_and_vocabulary(tmp_path):
    folder = _library(tmp_path)
    (tmp_path / "short.py").write_text('"""Only one sentence here."""\n')
    before = docs.load(_small(), folder)
    x, y = before.clients.x, before.clients.y
    assert np.array_equal(x[:, 1:], y[:, :-1])
    assert np.all(x[:, 0] == text.Tokens(5).begin)
    held_out = {f"mod{m:02d}" for m in range(30)} - set(before.client_ids)
    assert len(held_out) == 3
    assert list(before.client_ids) == sorted(before.client_ids)
    assert len(before.test_examples()[0]) == 3 * 11
    flood = "Flood flood flood flood. " * 200
    for name in held_out:
        (tmp_path / f"{name}.py").write_text(f'"""{flood}"""\n')
    docs.read_library.cache_clear()
    after = docs.load(_small(), folder)
    assert after.client_ids == before.client_ids
    assert not after.clients_hold_test_examples
    assert after.fingerprint != before.fingerprint
    unknown = text.Tokens(5).unknown
    x, _ = after.test_examples()
    assert np.all(x[:, 1:5] == unknown)
    assert np.array_equal(before.clients.x, after.clients.x)


def test_too_little_source_is_refused(tmp_path):
    with refuses(ValueError, 20, 3):
        docs.load(_small(), _library(tmp_path, modules=3))


def test_validation_takes_the_place_of_the_test_set(tmp_path):
    folder = _library(tmp_path)
    whole = docs.load(_small(), folder)
    task = docs.load(_small(validation_fraction=0.2), folder)
    # 30 modules, 3 of them for testing, and a fifth of 27.
    assert len(task.client_ids) == 22
    assert set(task.client_ids) < set(whole.client_ids)
    assert len(task.test_examples()[0]) == 5 * 11
    with refuses(ValueError, "validation_fraction", 0.01):
        docs.load(_small(validation_fraction=0.01), folder)


def test_evaluated_sentences_have_their_modules(tmp_path):
    folder = _library(tmp_path)
    *_, last = docs.load(_small(), folder).test_owners()
    (tmp_path / f"{last}.py").write_text(f'"""{"Flood flood flood flood. " * 11}"""')
    docs.read_library.cache_clear()
    for most in (None, 30):
        task = docs.load(_small(max_test_examples=most), folder)
        owners, (x, _) = task.test_owners(), task.test_examples()
        assert len(owners) == len(x) == (most or 33)
        is_flood = (x[:, 1:5] == text.Tokens(5).unknown).all(1)
        assert is_flood.any() and np.array_equal(is_flood, owners == last)
        assert not {*owners} & {*task.client_ids}


def test_the_running_library_makes_hundreds_of_clients():
    task = load_task("docs")
    assert task.population >= 200
    assert list(task.client_ids) == sorted(set(task.client_ids))
    assert task.dimension == 157_172
    assert task.clients.sizes.min() >= 8
    assert task.config.max_examples_per_client == 64
    labels = task.test_examples()[1]
    words = labels[labels > 0]
    unknown = np.mean(words == text.Tokens(2000).unknown)
    assert len(words) > 5000 and unknown < 0.2
