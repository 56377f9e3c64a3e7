# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Next-word prediction on what was said before the US Supreme Court, by speaker.

    task = court.load(configs.CourtConfig(data_dir=folder))

A folder has transcripts of Oyez as github.com/walkerdb/supreme_court_transcripts has
them, `oyez/cases/*-tNN.json`, or the archive that `dpfl-prepare` makes of them.
"""

from __future__ import annotations

import collections
import itertools
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from dpfl import checks, reading
from dpfl.tasks import data_files, prepared, text
from dpfl.tasks import task as task_lib
from dpfl.tasks.clients import ArrayClients
from dpfl.tasks.configs import CourtConfig

# Words of a sentence: shorter ones are left out, longer ones are cut.
_FEWEST_WORDS, _MOST_WORDS = 4, 30
# Sentences of a speaker: those with fewer are left out; of more some are taken, evenly.
_FEWEST_SENTENCES, _MOST_SENTENCES = 50, 160
_VOCABULARY = 10_000
# Speakers who use a word of the vocabulary, at least.
_FEWEST_USERS = 20
# Largest share of the words outside the vocabulary of a speaker who is not left out.
_MOST_UNKNOWN = 0.15
_ORDER_SEED = 0
# Share of the speakers that are never trained on, as one in so many.
_TENTH = 10

_ARRAYS = ("words", "sentence_words", "speaker_sentences", "vocabulary")
_TRANSCRIPT = re.compile(r".+-t\d+\.json")
_ABBREVIATION = re.compile(
    r"\b(mr|mrs|ms|dr|jr|sr|st|v|vs|no|inc|co|u\.s|u\.s\.c|e\.g|i\.e|etc)\.", re.I
)
_INITIAL = re.compile(r"\b([a-z])\.(?=[a-z]\.)")
_REMARK = re.compile(r"\[[^\]]*\]|\([^)]*\)|<[^>]*>")
_TOKEN = re.compile(r"[a-z]+(?:'[a-z]+)*|[0-9]+(?:[.,][0-9]+)*|[.!?]+")
_NOBODY = re.compile(
    "unknown|unident|inaud|voice|^justice|jus[it]+ce|^court|counsel|clerk|^attorney"
    "|speaker|^male|^female|^general$|multiple|^mr$|marshal|^solicitor|^the_|^announce"
    "|^many|^all$|^chief",
    re.I,
)

# Chen et al. 2022, appendix, for Stack Overflow.
DEFAULTS = task_lib.TrainingDefaults(
    client_lr=0.3, server_lr=1.78, clip_norm=0.1, cohort_size=100, rounds=600
)


def sentences(said: str) -> Iterator[str]:
    """Yields the sentences of a text of four words or more, in lower case.

    A number is the word `0`; remarks in brackets are left out.
    """
    said = said.replace("\u2019", "'")
    said = _ABBREVIATION.sub(lambda found: found[1].replace(".", ""), said).lower()
    said = _REMARK.sub(" ", _INITIAL.sub(r"\1", said))
    words: list[str] = []
    for token in [*_TOKEN.findall(said), "."]:
        if token[0] in ".!?":
            if len(words) >= _FEWEST_WORDS:
                yield " ".join(words)
            words = []
        else:
            words.append("0" if token[0].isdigit() else token)


def _turns(path: str) -> list[tuple[str, str, list[str]]]:
    """The turns of a transcript: the speaker's identifier and name, and sentences."""
    turns = []
    try:
        content = reading.read_json(path)
        for section in (content["transcript"] or {}).get("sections") or []:
            for turn in section.get("turns") or []:
                speaker = turn.get("speaker") or {}
                name = speaker.get("name")
                if name:
                    blocks = turn.get("text_blocks") or []
                    said = " ".join(block.get("text") or "" for block in blocks)
                    key = speaker.get("identifier") or name
                    turns.append((key, name, list(sentences(said))))
    except (OSError, ValueError) as error:
        raise data_files.damaged(path, str(error)) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise data_files.damaged(path, "it is no transcript of Oyez") from error
    return turns


def _people(transcripts: Iterable[str]) -> list[list[str]]:
    """The sentences of each speaker in order of time, each once.

    Two spellings that differ in punctuation are one speaker, and what is no name none.
    """
    found = {path: _turns(path) for path in transcripts}
    names: dict[str, str] = {}
    spellings: dict[str, dict[str, None]] = {}
    for path in sorted(found, key=lambda path: (pathlib.Path(path).name, path)):
        for key, name, said in found[path]:
            names.setdefault(key, name)
            spellings.setdefault(key, {}).update(dict.fromkeys(said))
    people: dict[str, list[str]] = {}
    for key, own in spellings.items():
        if not (_NOBODY.search(key) or _NOBODY.search(names[key])):
            people.setdefault(re.sub("[^a-z]", "", key.lower()), []).extend(own)
    return list(people.values())


def arrays(paths: Iterable[str]) -> dict[str, np.ndarray]:
    """The arrays of the archive, of transcripts in any order or of an archive.

    Speakers are without names and in random order.

    Args:
      paths: Paths of transcripts, or of one archive.

    Returns:
      `words`, 0 outside the vocabulary or 1 + place in it; `sentence_words` and
      `speaker_sentences`, the numbers of each; and `vocabulary`, words by newlines, the
      most frequent first.

    Raises:
      DataFileError: If a file is damaged.
    """
    paths = iter(paths)
    first = next(paths)
    if first.endswith(".npz"):
        return _of_archive(first)
    people = [
        _chosen(said)
        for said in _people(itertools.chain([first], paths))
        if len(said) >= _FEWEST_SENTENCES
    ]
    count: collections.Counter[str] = collections.Counter()
    users: collections.Counter[str] = collections.Counter()
    for said in people:
        words = [word for sentence in said for word in sentence]
        count.update(words)
        users.update(set(words))
    often = [word for word, _ in count.most_common() if users[word] >= _FEWEST_USERS]
    vocabulary = often[:_VOCABULARY]
    number = {word: place for place, word in enumerate(vocabulary, 1)}
    numbered = [
        [[number.get(w, 0) for w in words] for words in said] for said in people
    ]
    kept = [said for said in numbered if np.mean(_joined(said) == 0) <= _MOST_UNKNOWN]
    order = np.random.default_rng(_ORDER_SEED).permutation(len(kept))
    every = [words for place in order for words in kept[place]]
    made = (
        _joined(every),
        np.array([len(words) for words in every], np.uint8),
        np.array([len(kept[place]) for place in order], np.uint8),
        np.array("\n".join(vocabulary)),
    )
    return dict(zip(_ARRAYS, made))


def _chosen(said: Sequence[str]) -> list[list[str]]:
    """The words of a speaker's sentences, evenly spread where there are many."""
    step = max(1, len(said) / _MOST_SENTENCES)
    places = range(min(_MOST_SENTENCES, len(said)))
    return [said[int(place * step)].split()[:_MOST_WORDS] for place in places]


def _joined(numbers: Sequence[Sequence[int]]) -> np.ndarray:
    every = itertools.chain.from_iterable(numbers)
    return np.fromiter(every, np.uint16)


def _of_archive(path: str) -> dict[str, np.ndarray]:
    """The arrays of an archive; DataFileError if their lengths differ."""
    found = dict(zip(_ARRAYS, prepared.archived(path, _ARRAYS)))
    lengths = [len(np.atleast_1d(found[name])) for name in _ARRAYS[:2]]
    sums = [int(found[name].sum()) for name in _ARRAYS[1:3]]
    if lengths != sums:
        raise data_files.damaged(path, f"{lengths} words and sentences, not {sums}")
    return found


SOURCE = prepared.Source(
    name="court",
    wanted="transcripts `oyez/cases/*-tNN.json` of "
    "github.com/walkerdb/supreme_court_transcripts",
    chosen=lambda every: [path for path in every if _TRANSCRIPT.fullmatch(path.name)],
    arrays=arrays,
    counted={"speakers": "speaker_sentences", "sentences": "sentence_words"},
)


def split(speakers: int, seed: int) -> dict[str, np.ndarray]:
    """Splits speakers by sets: `train`, and a tenth as `validation` and `test`.

    Args:
      speakers: Number of all speakers.
      seed: Seed of the split.
    """
    order = np.random.RandomState(seed).permutation(speakers)
    unseen = speakers // _TENTH
    parts = np.split(order, [unseen // 2, unseen])
    return dict(zip(("validation", "test", "train"), map(np.sort, parts)))


def encode(
    words: np.ndarray, sentence_words: np.ndarray, config: CourtConfig
) -> np.ndarray:
    """Encodes sentences as rows of tokens, int32 [sentences, sequence_length + 1].

    A row has begin, the words, end if there is room, and padding.

    Args:
      words: Numbers of the words, 0 for one outside the vocabulary.
      sentence_words: The words of each sentence.
      config: Size of the vocabulary, and most words of a row.
    """
    tokens = text.Tokens(config.vocab_size)
    known = (words > 0) & (words <= config.vocab_size)
    lengths = sentence_words.astype(np.int64)[:, np.newaxis]
    starts = np.cumsum(lengths) - lengths[:, 0]
    places = np.arange(config.sequence_length)
    shape = len(lengths), config.sequence_length + 1
    rows = np.full(shape, tokens.padding, np.int32)
    rows[:, 0] = tokens.begin
    inside = places < lengths
    rows[:, 1:][places == lengths] = tokens.end
    chosen = (starts[:, np.newaxis] + places)[inside]
    rows[:, 1:][inside] = np.where(known, words, tokens.unknown)[chosen]
    return rows


def load(config: CourtConfig) -> task_lib.Task:
    """The task `court`, a client per speaker that is trained on.

    x and y are int32 [batch, sequence_length].

    Raises:
      DataFileError: If the files are missing or damaged.
      ValueError: If there are fewer words than `config.vocab_size`, or too few speakers
        to train or to evaluate on.
    """
    found = prepared.read(SOURCE, config)
    words, sentence_words, sizes, vocabulary = found.values()
    most = len(str(vocabulary).split("\n"))
    limit = f"the number of words in {SOURCE.archive}"
    checks.integer("vocab_size", config.vocab_size, None, most, limit)
    sets = split(len(sizes), config.partition_seed)
    trained, tested = sets["train"], sets[config.evaluate_on]
    task_lib.check_split("evaluate_on", config.evaluate_on, len(trained), len(tested))
    rows = encode(words, sentence_words, config)
    speakers = np.repeat(np.arange(len(sizes)), sizes)
    train, test = (rows[np.isin(speakers, part)] for part in (trained, tested))
    test = text.evaluated(test, config)
    names = task_lib.client_names(len(sizes))
    owners = text.evaluated(np.repeat(tested, sizes[tested]), config)
    return task_lib.Task(
        name="court",
        description="Next word before the US Supreme Court, a client per speaker.",
        client_ids=tuple(names[speaker] for speaker in trained),
        clients=ArrayClients(*text.pairs(train), sizes[trained].astype(np.int64)),
        test_examples=lambda: text.pairs(test),
        test_owners=lambda: np.array(names)[owners],
        defaults=DEFAULTS,
        config=config,
        fingerprint=task_lib.fingerprint(
            "court", vocabulary, sizes, trained, train, test
        ),
        # Speakers are held out whole.
        clients_hold_test_examples=False,
        **text.next_word_pieces(config),
    )
