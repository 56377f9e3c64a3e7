# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figures that no paper has: the mechanisms of all of them beside each other."""
