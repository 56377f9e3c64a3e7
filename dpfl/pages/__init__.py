# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Self-contained pages, which open in any browser without network."""
