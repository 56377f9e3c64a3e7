# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What things cost: a harness with the table of groups, and what the groups measure."""
