# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Next-word prediction on Stack Overflow, a client per user (Reddi et al. 2021).

task = stackoverflow.load(configs.StackOverflowConfig(data_dir=folder))
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from dpfl import checks
from dpfl.tasks import data_files, records, text
from dpfl.tasks import task as task_lib
from dpfl.tasks.configs import StackOverflowConfig

_BUCKET = "https://storage.googleapis.com/tff-datasets-public"

FILE = data_files.SqlFile(
    name="stackoverflow.sqlite",
    url=f"{_BUCKET}/stackoverflow.sqlite.lzma",
    splits={"train": (342_477, 135_818_730), "test": (204_088, 16_586_035)},
)
WORD_COUNTS = data_files.PackedText(
    name="datasets/stackoverflow.word_count.tar.bz2",
    url=f"{_BUCKET}/stackoverflow.word_count.tar.bz2",
    member="stackoverflow.word_count",
    sha256="1dc00256d6e527c54b9756d968118378ae14e6692c0b3b6cad470cdd3f0c519c",
)

_WORD_COUNT = re.compile(r"[ \t]*([^ \t\r]+)[ \t]+[0-9]+[ \t]*\r?")

# Chen et al. 2022, appendix.
DEFAULTS = task_lib.TrainingDefaults(
    client_lr=0.3, server_lr=1.78, clip_norm=0.1, cohort_size=100, rounds=1500
)


def read_vocabulary(
    config: StackOverflowConfig, file: data_files.PackedText = WORD_COUNTS
) -> list[str]:
    """The `config.vocab_size` most frequent words, from the published counts.

    Raises:
      DataFileError: If the file is missing or refused, or does not begin with so many
        different words and their counts.
    """
    lines = data_files.read_packed_text(file, config)
    pairs = map(_WORD_COUNT.fullmatch, lines[: config.vocab_size])
    vocabulary = list(dict.fromkeys(pair[1] for pair in pairs if pair))
    if len(vocabulary) < config.vocab_size:
        wanted = f"at most {len(vocabulary)}, the number of different words with "
        wanted += f"counts at the beginning of {file.name}"
        found = checks.message("vocab_size", wanted, config.vocab_size)
        raise data_files.DataFileError(found)
    return vocabulary


class PostRecord:
    """Records of a post's words, as rows of the tokens that `text.Tokens` numbers.

    Attributes:
      vocabulary: The known words, which are distinct.
      sequence_length: Number of positions.
    """

    def __init__(self, vocabulary: Sequence[str], sequence_length: int):
        self.vocabulary = tuple(vocabulary)
        self.sequence_length = sequence_length
        self._numbers = {
            word.encode(): place for place, word in enumerate(self.vocabulary, 1)
        }

    def parse(self, found: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """See base class: int32 [records, sequence_length], labels a token ahead."""
        tokens, most = text.Tokens(len(self.vocabulary)), self.sequence_length + 1
        sentences = []
        for record in found:
            posts = records.fields(record).get("tokens", ())
            if len(posts) != 1:
                wanted = "a text of tokens"
                raise records.DamagedExampleError(
                    checks.message("a record", wanted, len(posts))
                )
            words = posts[0].split(b" ", most)[:most]
            sentences.append([self._numbers.get(w, tokens.unknown) for w in words])
        rows = tokens.rows(sentences, self.sequence_length)
        return rows[:, :-1], rows[:, 1:]


def load(config: StackOverflowConfig) -> task_lib.Task:
    """The task `stackoverflow`, of a client per user.

    Clients are those of the split 'train', and the evaluation set is the split 'test';
    x and y are int32 [batch, sequence_length].

    Raises:
      DataFileError: If a file is missing, damaged or not the one expected.
    """
    path = data_files.find_sql_file(FILE, config)
    vocabulary = read_vocabulary(config)
    record = PostRecord(vocabulary, config.sequence_length)
    return task_lib.Task(
        name="stackoverflow",
        description="Next word in Stack Overflow posts, a client per user.",
        defaults=DEFAULTS,
        config=config,
        fingerprint=data_files.fingerprint(path, FILE, *vocabulary),
        # The split is by date: 'test' has later posts, also of users in 'train'.
        clients_hold_test_examples=True,
        **data_files.sql_pieces(path, FILE, record, config),
        **text.next_word_pieces(config),
    )
