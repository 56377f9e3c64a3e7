# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figures of the literature: a file a paper, with tables of grids and drawings."""
