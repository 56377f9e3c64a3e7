# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What guessing by frequency comes to, on words that are counted by hand."""

import numpy as np
import pytest

from dpfl.tasks import docs, text
from dpfl.tasks.configs import DocsConfig
from tools import word_frequencies

CONFIG = DocsConfig(
    vocab_size=4, min_sentences=1, test_fraction=0.2, sequence_length=12
)
TOKENS = text.Tokens(CONFIG.vocab_size)
COUNTS = {"alpha": 5, "beta": 2, "gamma": 1}


@pytest.fixture(name="folder")
def fixture_folder(tmp_path):
    words = " ".join(word for word, times in COUNTS.items() for _ in range(times))
    for number in range(30):
        (tmp_path / f"module{number}.py").write_text(f'"""{words}."""\n')
    return str(tmp_path)


def test_shares_are_those_of_the_words(folder):
    task = docs.load(CONFIG, folder)
    shares = word_frequencies.frequencies(task, TOKENS)
    # One is added to each count, and 24 clients have one sentence each. The full stop
    # is a word, and before gamma in the vocabulary.
    of_each = np.array([0, 5, 2, 1, 1, 0, 0, 1])
    np.testing.assert_allclose(shares, (24 * of_each + 1) / (24 * 10 + 8))
    found = word_frequencies.row_of(task, TOKENS)
    assert (found["clients"], found["test_examples"]) == (24, 6)
    # The end of a sentence is part of the loss and not of the accuracy.
    assert found["accuracy"] == pytest.approx(5 / 9)
    loss = -np.sum(of_each / 10 * np.log(shares))
    assert found["loss"] == pytest.approx(loss, rel=1e-5)


def test_the_options_are_those_of_the_flag_file():
    config = word_frequencies.config_of({"vocab_size": "7", "cohort_size": "3"})
    assert config == DocsConfig(vocab_size=7)
