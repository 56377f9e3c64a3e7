# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The parts of `tools/soak.py`, one kind of trouble each."""
