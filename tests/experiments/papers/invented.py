# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import csv

import matplotlib

from experiments.papers import plotting

matplotlib.use("Agg")


def rows(works, folder, columns, metrics):
    """Rows as training would leave them, with a metrics.csv each.

    Args:
      works: A figure's grid.
      folder: Where the runs' folders go.
      columns: Columns of the results table beside labels and final measures.
      metrics: Rows of metrics.csv by column; "round" is among them.
    """
    for i, work in enumerate(works):
        own = folder / work.folder
        own.mkdir(parents=True)
        with (own / "metrics.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(metrics)
            writer.writerows(zip(*metrics.values()))
        yield {
            **{k: str(v) for k, v in work.labels.items()},
            "final_accuracy": str(0.5 + i / 1000),
            "final_loss": str(2 + i / 1000),
            **columns,
            "folder": str(own),
        }


def draw(figure, shown, path, scale="small"):
    """Draws and saves; returns how many lines, bars, tables and maps there are."""
    import matplotlib.pyplot as plt

    with plotting.style():
        picture = figure.draw(shown, scale)
        picture.savefig(path)
    plt.close(picture)
    return sum(
        sum(map(len, (axis.lines, axis.containers, axis.tables, axis.images)))
        for axis in picture.axes
    )
