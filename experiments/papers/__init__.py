# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figures of the literature: a file for each paper, with its grids and drawings."""
