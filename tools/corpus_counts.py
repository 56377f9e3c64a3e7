# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""How many modules, sentences and words the docstrings of the pinned packages have.

  python -m tools.corpus_counts docs/results/docs_corpus.csv

They are those of the task `docs` with the settings of the medium scale, and depend on
the Python version. The sentences are always read from the packages, which takes
a minute of a processor, and are kept in a folder that is thrown away. Nothing is drawn
at random but which modules are held out, by the task's own seed, so there are no
intervals.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dpfl.tasks import corpus as corpora
from dpfl.tasks import data_files, docs
from dpfl.tasks.configs import DocsConfig
from experiments import flag_files
from experiments.papers import medium, result_rows
from tools import word_frequencies


def counts(found: corpora.Corpus, config: DocsConfig) -> dict[str, int]:
    """Returns the numbers of modules, of their sentences and words, and of clients.

    Args:
      found: All sentences.
      config: Says which modules are large enough, and how many are held out.
    """
    large = np.flatnonzero(found.sizes >= config.min_sentences)
    sentences = found.sentences_of(large.tolist())
    clients, evaluated = docs.held_out([found.names[place] for place in large], config)
    return {
        "min_sentences": config.min_sentences,
        "modules": len(large),
        "sentences": len(sentences),
        "words": int(found.lengths[sentences].sum()),
        "clients": len(clients),
        "test_modules": len(evaluated),
    }


def kept_megabytes(config: DocsConfig) -> float:
    """Returns the size of the only file of sentences in the task's folder."""
    [path] = Path(data_files.data_folder(config)).glob("docstrings-*.npz")
    return path.stat().st_size / 1e6


def main(argv: Sequence[str]) -> None:
    """Writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, help="the CSV file to write")
    options = parser.parse_args(argv)
    shared = {name: str(value) for name, value in medium.FLAGS[medium.DOCS].items()}
    given = {**flag_files.values(shared["flagfile"]), **shared}
    with tempfile.TemporaryDirectory() as folder:
        config = word_frequencies.config_of({**given, "data_dir": folder})
        begun = time.process_time()
        found, _ = docs.read_packages(config)
        seconds = time.process_time() - begun
        size = kept_megabytes(config)
    python = ".".join(platform.python_version_tuple()[:2])
    row: dict[str, object] = {"python": python, **counts(found, config)}
    row["kept_megabytes"] = f"{size:.1f}"
    row["processor_seconds"] = f"{seconds:.0f}"
    result_rows.write_columns(
        options.table, {name: [value] for name, value in row.items()}
    )


if __name__ == "__main__":
    main(sys.argv[1:])
