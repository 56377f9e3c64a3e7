# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Pages of one file each, which open in any browser without network."""
