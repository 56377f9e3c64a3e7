# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Noise in integers: its events, and the Renyi divergences of its laws."""
