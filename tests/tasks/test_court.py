# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""`court` on small transcripts in Oyez's format."""

import json

import numpy as np
import pytest

from dpfl.tasks import configs, court, data_files, docs, prepared, registry
from tests.refusals import refuses

WORDS = [a + b for a in "bdfgk" for b in "aeiou"]
SPEAKERS = 30
SMALL = {"vocab_size": 20, "embedding_size": 3, "lstm_size": 4, "sequence_length": 6}


def said_by(speaker, count=50):
    """Distinct sentences of a speaker, of 4 to 7 words; the first ones are frequent."""
    rng = np.random.RandomState(speaker)
    chosen = rng.geometric(0.1, (count, 7)) % len(WORDS)
    chosen[:, 0], chosen[:, 1] = np.divmod(np.arange(count), len(WORDS))
    return [[WORDS[w] for w in row[: 4 + i % 4]] for i, row in enumerate(chosen)]


def turn(identifier, sentences):
    text = ". ".join(" ".join(words).capitalize() for words in sentences)
    name = identifier.replace("_", " ").title()
    speaker = {"identifier": identifier, "name": name, "roles": None}
    return {"speaker": speaker, "text_blocks": [{"text": f"{text}."}]}


def transcript(path, *turns):
    sections = [{"turns": list(turns[:1])}, {"turns": list(turns[1:])}]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"id": 1, "transcript": {"sections": sections}}))


def names():
    letters = [chr(97 + i // 26) + chr(97 + i % 26) for i in range(SPEAKERS)]
    return [f"jo_{two}" for two in letters]


def write(folder):
    """Two transcripts of all speakers, and who is not to be one."""
    cases = folder / "oyez/cases"
    halves = [
        [turn(n, said_by(i)[p]) for i, n in enumerate(names())]
        for p in (slice(None, 25), slice(25, None))
    ]
    crowd = [turn("unknown_speaker", said_by(99)), turn("short_one", said_by(98, 49))]
    transcript(cases / "1960.2-t01.json", *halves[1], *crowd)
    transcript(cases / "1960.1-t01.json", *halves[0], {"speaker": None})
    strange = [[f"{word}zz" for word in words] for words in said_by(97)]
    again = said_by(0)[:3]
    transcript(
        cases / "1960.3-t02.json", turn("strange_one", strange), turn(names()[0], again)
    )
    (cases / "1960.4-t01.json").write_text('{"transcript": null}')
    (cases / "1960.4.json").write_text("not a transcript")
    return folder


def load(folder, **options):
    return registry.load_task("court", data_dir=str(folder), **{**SMALL, **options})


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def archive(source):
    path = source / "packed/court.npz"
    path.parent.mkdir()
    found = prepared.find(court.SOURCE, str(source))
    return path, prepared.write(court.SOURCE, found, str(path))[0]


def test_the_archive_has_the_sentences_of_each_speaker(archive):
    with np.load(archive[0]) as arrays:
        vocabulary = str(arrays["vocabulary"]).split("\n")
        words, lengths = arrays["words"], arrays["sentence_words"]
        counts = arrays["speaker_sentences"]
    every = [word for i in range(SPEAKERS) for s in said_by(i) for word in s]
    assert sorted(vocabulary) == sorted(set(every))
    often = [every.count(word) for word in vocabulary]
    assert often == sorted(often, reverse=True)
    assert counts.tolist() == [50] * SPEAKERS
    sentences = np.split(words, np.cumsum(lengths)[:-1].astype(int))
    spelled = [[vocabulary[w - 1] for w in sentence] for sentence in sentences]
    found = [spelled[i : i + 50] for i in range(0, len(spelled), 50)]
    wanted = [said_by(i) for i in range(SPEAKERS)]
    assert sorted(found) == sorted(wanted) and found != wanted


def test_the_archive_has_the_same_bytes_for_everybody(archive, tmp_path):
    path, digest = archive
    found = prepared.find(court.SOURCE, str(path.parents[1]))
    for paths in (found[::-1], [str(path)]):
        again, _ = prepared.write(court.SOURCE, paths, str(tmp_path / "again.npz"))
        assert again == digest
    # The same with any Python and numpy.
    assert digest[:16] == "9c6e1b20f6cb51c0"


def test_sentences_of_a_text():
    said = (
        "Mr. Chief Justice, may it please the Court: we\u2019ve 3,000 pages [Laughter]"
        " of No. 12. Yes. The U.S. Code -- section 1983 -- says so! And then"
    )
    assert list(court.sentences(said)) == [
        "mr chief justice may it please the court we've 0 pages of no 0",
        "the us code section 0 says so",
    ]


def test_one_speaker_of_two_spellings_and_many_sentences(tmp_path):
    cases = tmp_path / "cases"
    many = said_by(0, 600)
    everyone = [turn(name, many[:50]) for name in names()]
    spellings = [turn("al_wirin", many[:300]), turn("a_l_wirin", many[300:])]
    transcript(cases / "a-t01.json", *everyone, *spellings)
    made = court.arrays([str(cases / "a-t01.json")])
    assert sorted(made["speaker_sentences"]) == [50] * SPEAKERS + [160]
    assert len(made["words"]) == made["sentence_words"].sum()


def test_speakers_are_trained_on_or_evaluated_on(archive):
    tasks = {
        on: load(archive[0].parent, evaluate_on=on) for on in ("test", "validation")
    }
    for task in tasks.values():
        assert task.population == 27 and not task.clients_hold_test_examples
        assert task.clients.sizes.tolist() == [50] * 27
        assert task.objective.unscored == (0, 21, 23)
    held = {on: task.test_examples() for on, task in tasks.items()}
    assert [len(held[on][0]) for on in held] == [100, 50]
    rows = [*held["test"][0], *held["validation"][0], *task.clients.x]
    assert len({row.tobytes() for row in rows}) > 1000
    owners = tasks["test"].test_owners()
    assert len({*owners}) == 2 and not {*owners} & {*tasks["test"].client_ids}
    of_row = {row.tobytes(): name for row, name in zip(held["test"][0], owners)}
    few = load(archive[0].parent, max_test_examples=7)
    rows = few.test_examples()[0]
    assert [of_row[row.tobytes()] for row in rows] == [*few.test_owners()]
    assert len(rows) == 7
    with np.load(archive[0]) as arrays:
        everyone = court.encode(
            arrays["words"], arrays["sentence_words"], few.config
        ).reshape(SPEAKERS, 50, -1)
    for name in {*owners}:
        own = {row[:-1].tobytes() for row in everyone[int(name.split("_")[1])]}
        assert own == {row for row in of_row if of_row[row] == name}
    others = [few, load(archive[0].parent, partition_seed=1)]
    prints = {task.fingerprint for task in (*tasks.values(), *others)}
    assert len(prints) == 4


def test_split_of_as_many_speakers_as_the_transcripts():
    sets = court.split(8951, seed=0)
    sizes = {name: len(part) for name, part in sets.items()}
    assert sizes == {"train": 8056, "validation": 447, "test": 448}
    assert np.array_equal(np.sort(np.concatenate(list(sets.values()))), range(8951))
    assert not np.array_equal(sets["test"], court.split(8951, seed=1)["test"])


def test_rows_of_tokens_are_those_of_docs():
    config = configs.CourtConfig(vocab_size=3, sequence_length=5)
    vocabulary = ["a", "b", "c"]
    sentences = [["a", "c"], ["b", "x", "a", "d"], ["c"] * 5, ["a"] * 6]
    number = {"a": 1, "b": 2, "c": 3, "d": 4, "x": 0}
    words = np.array([number[w] for s in sentences for w in s], np.uint16)
    lengths = np.array([len(s) for s in sentences], np.uint8)
    rows = court.encode(words, lengths, config)
    assert rows.dtype == np.int32
    assert rows.tolist() == docs.encode(sentences, vocabulary, 5).tolist()


def test_missing_or_damaged_data_are_refused(tmp_path, archive):
    wanted = ("data_dir", "supreme_court_transcripts", "dpfl-prepare court", tmp_path)
    with refuses(data_files.DataFileError, *wanted):
        load(tmp_path)
    np.savez(tmp_path / "femnist.npz", images=1)
    with refuses(data_files.DataFileError, *wanted):
        load(tmp_path)
    with refuses(ValueError, "vocab_size", 25, 26):
        load(archive[0].parent, vocab_size=26)
    with refuses(ValueError, "evaluate_on", "unseen_test"):
        load(tmp_path, evaluate_on="unseen_test")
    path = tmp_path / "cases/a-t01.json"
    transcript(path, *(turn(name, said_by(0)) for name in names()[:9]))
    with refuses(ValueError, "vocab_size", 20):
        load(tmp_path)
    for content in ("{", "{}", "[]", '{"transcript": {"sections": [{"turns": [3]}]}}'):
        path.write_text(content)
        with refuses(data_files.DataFileError, path):
            load(tmp_path)


@pytest.mark.parametrize(
    "changes", [{"words": None}, {"words": np.zeros(3, np.uint16)}]
)
def test_damaged_archive_is_refused_with_its_path(tmp_path, archive, changes):
    with np.load(archive[0]) as arrays:
        arrays = {**arrays, **changes}
    path = tmp_path / "court.npz"
    np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
    with refuses(data_files.DataFileError, path):
        load(tmp_path)
