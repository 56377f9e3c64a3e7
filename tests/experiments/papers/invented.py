# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import csv

import matplotlib

from experiments.papers import plotting

matplotlib.use("Agg")

# Columns that a drawing of a figure without training asks for.
MEASURED = {
    **dict.fromkeys(("noise_multiplier", "gaussian", "theory", "loss", "error"), "1"),
    **{"squared_error": "2", "standard_error": "0.1", "bits_per_parameter": "3"},
    **{"error_ratio": "1.5", "uplink_bits_per_client": "3200"},
    "uplink_bits_per_parameter": "3.2",
}


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
        labels = {k: str(v) for k, v in work.labels.items()}
        final = {"final_accuracy": str(0.5 + i / 1000), "final_loss": str(2 + i / 1000)}
        yield {**labels, **final, **columns, **labels, "folder": str(own)}


def draw(figure, shown, path):
    """Draws and saves; returns how many lines, bars and bands there are."""
    import matplotlib.pyplot as plt

    picture = plotting.draw(figure.plot, shown, figure.source, figure.curves)
    picture.savefig(path)
    plt.close(picture)
    return sum(
        sum(map(len, (axis.lines, axis.containers, axis.collections)))
        for axis in picture.axes
    )
