# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Self-contained pages, which open in any browser without network.

chart = svg.chart([svg.Line("loss", points)], "loss", "round", "loss")
text = elements.page("A run", [elements.heading("Loss"), elements.charts([chart])])
"""
