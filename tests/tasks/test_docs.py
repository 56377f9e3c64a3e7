# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import os
import pathlib

import numpy as np
import pytest

from dpfl.tasks import corpus, docs, packages, text
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
    found = corpus.docstrings(str(path))
    assert [d.split()[0] for d in found] == ["First", "A", "Returns", "Awaits"]


@pytest.mark.parametrize(
    "content", [b"def f(:\n", b"\xff\xfe\x00", b"# -*- coding: nonsense -*-\n", b""]
)
def test_unreadable_source_has_no_docstrings(tmp_path, content):
    path = tmp_path / "m.py"
    path.write_bytes(content)
    assert corpus.docstrings(str(path)) == []
    assert corpus.docstrings(str(tmp_path / "missing.py")) == []


def test_sentences_are_lower_case_words_without_doctests():
    found = corpus.split("First big thing. It's so, No?\n\n>>> code(1)\n... y\n")
    assert found == [("first", "big", "thing", "."), ("it's", "so", ",", "no", "?")]


def test_module_names_are_sorted_and_tests_left_out(tmp_path):
    for name in ["b.py", "a/__init__.py", "a/c.py", "test/x.py", "site-packages/y.py"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    found = [name for name, _ in corpus.module_files(str(tmp_path))]
    assert found == ["a", "a.c", "b"]


def _corpus(*modules):
    """A corpus of modules, each a list of sentences, each a text of words."""
    texts = [text.split() for module in modules for text in module]
    words = list(dict.fromkeys(word for words in texts for word in words))
    tokens = [words.index(word) for one in texts for word in one]
    return corpus.Corpus(
        tuple(f"m{i}" for i in range(len(modules))),
        tuple(words),
        np.array(tokens, np.int32),
        np.array([len(one) for one in texts], np.int32),
        np.array([len(module) for module in modules], np.int64),
    )


def test_encoding_marks_begin_end_unknown_and_padding():
    tokens = text.Tokens(2)
    found = _corpus(["z z"], ["a z", "b a b a b", "b b b b"])
    rows = docs.encode(found, found.sentences_of([1]), ["a", "b"], 4)
    assert rows.tolist() == [
        [tokens.begin, 1, tokens.unknown, tokens.end, 0],
        [tokens.begin, 2, 1, 2, 1],
        [tokens.begin, 2, 2, 2, 2],
    ]
    assert rows.dtype == np.int32


def test_vocabulary_is_by_frequency_then_alphabet():
    found = _corpus(["b a", "c"], ["e e e e"], ["c d"])
    chosen = found.sentences_of([0, 2])
    assert docs.build_vocabulary(found, chosen, 3) == ["c", "a", "b"]
    with refuses(ValueError, "vocab_size", 4, 5):
        docs.build_vocabulary(found, chosen, 5)


def test_held_out_modules_are_excluded_from_clients_and_vocabulary(tmp_path):
    folder = _library(tmp_path)
    before = docs.load(_small(), folder)
    held_out = {f"mod{m:02d}" for m in range(30)} - set(before.client_ids)
    assert len(held_out) == 3
    assert list(before.client_ids) == sorted(before.client_ids)
    assert sum(len(x) for x, _ in before.evaluation_dataset()) == 3 * 11
    flood = "Flood flood flood flood. " * 200
    for name in held_out:
        (tmp_path / f"{name}.py").write_text(f'"""{flood}"""\n')
    docs.read_library.cache_clear()
    after = docs.load(_small(), folder)
    assert after.client_ids == before.client_ids
    assert not after.clients_hold_test_examples
    assert after.fingerprint != before.fingerprint
    unknown = text.Tokens(5).unknown
    x, _ = next(iter(after.evaluation_dataset()))
    assert np.all(x.numpy()[:, 1:5] == unknown)
    a, b = (next(iter(t.client_dataset(t.client_ids[0]))) for t in (before, after))
    assert np.array_equal(a[0], b[0])


def test_labels_are_the_inputs_one_token_on(tmp_path):
    task = docs.load(_small(), _library(tmp_path))
    for x, y in task.client_dataset(task.client_ids[0]):
        assert np.array_equal(x[:, 1:], y[:, :-1])
        assert np.all(x[:, 0] == text.Tokens(5).begin)
    assert [s.shape.as_list() for s in task.element_spec] == [[None, 6]] * 2


def test_too_little_source_is_refused(tmp_path):
    with refuses(ValueError, 20, 3):
        docs.load(_small(), _library(tmp_path, modules=3))


def test_short_modules_are_no_clients(tmp_path):
    folder = _library(tmp_path)
    (tmp_path / "short.py").write_text('"""Only one sentence here."""\n')
    clients = docs.load(_small(min_sentences=2), folder).client_ids
    assert "short" not in clients


def test_validation_takes_the_place_of_the_test_set(tmp_path):
    folder = _library(tmp_path)
    whole = docs.load(_small(), folder)
    task = docs.load(_small(validation_fraction=0.2), folder)
    # 30 modules, 3 of them for testing, and a fifth of 27.
    assert len(task.client_ids) == 22
    assert set(task.client_ids) < set(whole.client_ids)
    assert sum(len(x) for x, _ in task.evaluation_dataset()) == 5 * 11
    with refuses(ValueError, "validation_fraction", 0.01):
        docs.load(_small(validation_fraction=0.01), folder)


def test_evaluated_sentences_are_drawn_from_all(tmp_path):
    folder = _library(tmp_path)
    (whole, _), *_ = docs.load(_small(), folder).evaluation_dataset()
    (some, _), *_ = docs.load(_small(max_test_examples=8), folder).evaluation_dataset()
    assert len(whole) == 33 and len(some) == 8
    rows = {tuple(row) for row in whole.numpy()}
    assert all(tuple(row) in rows for row in some.numpy())


PINS = """# A list as pip takes it.
One-thing==1.0 \\
    --hash=sha256:0
other==2.5 ; python_version >= '3.9' \\
    --hash=sha256:1 \\
    --hash=sha256:2
never==1.0 ; python_version < '3.0'
"""


@pytest.fixture(name="site")
def _site(tmp_path, monkeypatch):
    """A folder of two installed packages, which are all that is pinned."""
    pins = tmp_path / "pins.txt"
    pins.write_text(PINS)
    monkeypatch.setattr(packages.pinned, "__defaults__", (pins,))
    site = tmp_path / "site-packages"
    install(site, "one_thing", "1.0", modules=20)
    install(site, "other", "2.5", modules=10)
    return site


def metadata(name, version):
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


def install(site, name, version, modules=0, lines=10):
    """Puts a package there as pip does, with modules of sentences of its own."""
    record = []
    for m in range(modules):
        own = " ".join(f"It is {name} of {m} {i}." for i in range(lines))
        path = site / name / f"mod{m:02d}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'"""All the modules have this. {own}"""\n')
        record.append(f"{name}/{path.name},,")
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(metadata(name.replace("_", "-").title(), version))
    (info / "RECORD").write_text("\n".join([*record, "../../bin/other,,", ""]))


def _of_packages(folder, site, **options):
    config = _small(docs_source="packages", data_dir=str(folder), **options)
    return docs.load(config, str(site))


def test_packages_are_read_once_and_kept(site, tmp_path, monkeypatch):
    kept = tmp_path / "kept"
    first = _of_packages(kept, site)
    assert len(first.client_ids) == 27
    assert {name.split(".")[0] for name in first.client_ids} == {"one_thing", "other"}
    (path,) = kept.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(corpus, "docstrings", lambda path: 1 / 0)
        assert _of_packages(kept, site).fingerprint == first.fingerprint
    # An edit of the same length, then a file that is cut off.
    source = site / (first.client_ids[0].replace(".", "/") + ".py")
    source.write_text(source.read_text().replace("thing of", "thign of"))
    os.utime(source, ns=(1, 1))
    edited = _of_packages(kept, site)
    assert edited.fingerprint != first.fingerprint
    path.write_bytes(path.read_bytes()[:-100])
    assert _of_packages(kept, site).fingerprint == edited.fingerprint
    assert [one.name for one in kept.iterdir()] == [path.name]


@pytest.mark.parametrize("is_of_before", [False, True])
def test_tampered_cache_file_is_not_used(site, tmp_path, is_of_before):
    kept = tmp_path / "kept"
    first = _of_packages(kept, site)
    (path,) = kept.iterdir()
    whole = path.read_bytes()
    with np.load(path) as file:
        parts = {**file, "tokens": file["tokens"][::-1]}
    if is_of_before:  # Then its arrays had numbers for names.
        parts = {f"arr_{i}": part for i, part in enumerate(parts.values())}
    np.savez(path, **parts)
    assert _of_packages(kept, site).fingerprint == first.fingerprint
    assert path.read_bytes() == whole


def test_sentence_counts_only_in_its_first_module(site, tmp_path):
    found, _ = docs.read_packages(
        _small(docs_source="packages", data_dir=str(tmp_path / "kept")), str(site)
    )
    assert found.names[0] == "one_thing.mod00"
    assert found.sizes.tolist() == [11, *29 * [10]]


def test_the_fingerprint_names_the_packages(site, tmp_path, monkeypatch):
    before = _of_packages(tmp_path, site)
    (site / "other-2.5.dist-info/METADATA").write_text(metadata("Other", "2.6"))
    other = {"one-thing": "1.0", "other": "2.6"}
    monkeypatch.setattr(packages, "pinned", lambda: other)
    after = _of_packages(tmp_path, site)
    assert after.client_ids == before.client_ids
    assert after.fingerprint != before.fingerprint


def test_missing_or_mismatched_packages_are_named(site, tmp_path):
    with refuses(ValueError, "three 1", "pip install"):
        packages.installed({"one.thing": "1.0", "three": "1"}, str(site))
    with refuses(ValueError, "other 2.5", "2.6", "three 1"):
        packages.installed({"other": "2.6", "three": "1"}, str(site))
    many = {f"p{i}": "1" for i in range(9)}
    with refuses(ValueError, "p0 1", "p3 1", "5 more"):
        packages.installed(many, str(site))


def test_unwritable_folder_is_named(site, tmp_path):
    (tmp_path / "file").write_text("")
    with refuses(ValueError, "data_dir", tmp_path / "file"):
        _of_packages(tmp_path / "file", site)


def test_every_pinned_package_is_installed():
    pins = packages.pinned()
    assert pins["tensorflow-federated"] == "0.87.0" and len(pins) > 60
    files = {one.name: one.files for one in packages.installed(pins)}
    path = pathlib.Path(files["keras"]["keras.optimizers"])
    assert path.is_file() and path.name == "__init__.py"


def test_words_with_half_a_surrogate_pair_are_kept(tmp_path):
    source = tmp_path / "m.py"
    source.write_text('"""It has \\ud800 in it."""')
    found = corpus.read([("m", str(source))])
    assert "\ud800" in found.words
    corpus.save(tmp_path / "kept.npz", found, "source")
    again = corpus.load(tmp_path / "kept.npz", "source")
    assert again.words == found.words and again.names == ("m",)
    assert np.array_equal(again.tokens, found.tokens)
    assert corpus.load(tmp_path / "kept.npz", "another source") is None
    assert corpus.load(tmp_path / "none.npz", "source") is None


def test_the_running_library_makes_hundreds_of_clients():
    task = load_task("docs")
    assert task.population >= 200
    assert list(task.client_ids) == sorted(set(task.client_ids))
    assert task.dimension == 157_172
    some = task.client_ids[::5]
    sizes = [sum(len(x) for x, _ in task.client_dataset(c)) for c in some]
    assert min(sizes) >= 8 and max(sizes) == 64
    labels = np.concatenate([y.numpy().ravel() for _, y in task.evaluation_dataset()])
    words = labels[labels > 0]
    unknown = np.mean(words == text.Tokens(2000).unknown)
    assert len(words) > 5000 and unknown < 0.2
