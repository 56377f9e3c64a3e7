# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figures of the literature: code that a paper's file in `configs/papers` names.

    figure = index.FIGURES["csgm_fig1"]
    works = figure.grid("small")

`experiments/reproduce.py` does the work and draws the figure. Papers are no part of the
wheel; `experiments/trainings` has what figures share with its commands.
"""
