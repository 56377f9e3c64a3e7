# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import matplotlib

from dpfl import files
from experiments import plotting

matplotlib.use("Agg")

# Of a metrics.csv; the first round was not evaluated.
METRICS = {
    "round": [1, 2, 3],
    "train_loss": [3, 2, 1],
    "eval_accuracy": ["", 0.2, 0.3],
    "eval_loss": ["", 2, 1.5],
    "aggregator_explained_energy": [0.1, 0.2, 0.3],
    "aggregator_subspace_overlap": [0.9, 0.8, 0.9],
    "aggregator_retained_rank": [1, 2, 3],
}


def rows(works, folder, columns):
    """Rows of a grid as training would leave them, with `METRICS` as metrics.csv each.

    `columns` are those of the results table beside labels and final metrics.
    """
    points = [dict(zip(METRICS, point)) for point in zip(*METRICS.values())]
    text = files.csv_text(METRICS, points)
    for i, work in enumerate(works):
        own = folder / work.folder
        own.mkdir(parents=True)
        (own / "metrics.csv").write_text(text)
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
