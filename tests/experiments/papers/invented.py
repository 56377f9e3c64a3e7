# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

from pathlib import Path

import matplotlib

from experiments import plotting

matplotlib.use("Agg")

# The first round was not evaluated.
METRICS = Path(__file__).with_name("metrics.csv").read_text()


def rows(works, folder, columns):
    """Rows of a grid as training would leave them, with `METRICS` as metrics.csv each.

    `columns` are those of the results table beside labels and final metrics.
    """
    for i, work in enumerate(works):
        own = folder / work.folder
        own.mkdir(parents=True)
        (own / "metrics.csv").write_text(METRICS)
        labels = {k: str(v) for k, v in work.labels.items()}
        final = {"final_accuracy": str(0.5 + i / 1000), "final_loss": str(2 + i / 1000)}
        yield {**labels, **final, **columns, **labels, "folder": str(own)}


def draw(figure, shown, path):
    """Draws and saves; returns how many lines, bars and bands there are."""
    import matplotlib.pyplot as plt

    picture = plotting.draw(figure.plot, shown, figure.source, figure.curves)
    # So few pixels are enough to tell pictures apart, wherever the axes are: to find
    # a place for them takes longer than to draw.
    picture.set_layout_engine("none")
    picture.savefig(path, dpi=30)
    plt.close(picture)
    return sum(
        sum(map(len, (axis.lines, axis.containers, axis.collections)))
        for axis in picture.axes
    )
