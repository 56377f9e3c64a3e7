# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What several tests of engines use."""

from tests.training.conftest import task  # noqa: F401
