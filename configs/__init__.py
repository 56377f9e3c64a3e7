# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Flag files: a folder a paper, `tasks` and, for own questions, `evidence`.

`papers` has the grids of the papers' figures, and the papers' claims; see `index`,
`claims` and `coverage` in `experiments/papers`.
"""
