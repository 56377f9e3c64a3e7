#!/bin/sh
# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Pins what dpfl and its tests require. Each pin has the digests of its files, and pip
# takes no other file for it. Pins in the lists stay; delete a line, or a file, to have
# it chosen again.
set -eu
cd "$(dirname "$0")/.."

pin() {
  .venv/bin/python -m uv pip compile --quiet --universal --python-version=3.9 \
    --generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links \
    --override requirements-overrides.txt \
    --custom-compile-command "sh tools/write_requirements.sh" "$@"
}

pin --output-file dpfl/requirements-tff.txt requirements-tff.in
pin --output-file requirements.txt --constraint dpfl/requirements-tff.txt requirements.in
