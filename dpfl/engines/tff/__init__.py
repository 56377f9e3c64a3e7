# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The engine of TensorFlow Federated: its worker, rounds of groups, Keras's models.

worker = local_worker.start(concurrency=4)
"""
