#!/bin/sh
# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes the virtual environment .venv with everything dpfl and its tests need, at
# tested versions. Set PYTHON to choose the interpreter. Does nothing if .venv is up
# to date.
set -eu
cd "$(dirname "$0")/.."

fail() {
  echo "error: $1" >&2
  exit 2
}

[ "$(uname -s)" = Linux ] && [ "$(uname -m)" = x86_64 ] || fail \
  "dpfl needs Linux on x86_64, the only system TensorFlow Federated 0.87 is published for; found $(uname -s) on $(uname -m)."

supported() {
  "$1" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 11))' \
    2>/dev/null
}

if [ -n "${PYTHON-}" ]; then
  supported "$PYTHON" || fail \
    "PYTHON must be a Python 3.9, 3.10 or 3.11, the only ones TensorFlow Federated 0.87 is published for; found '$PYTHON' ($("$PYTHON" --version 2>&1 || true))."
  python=$PYTHON
else
  python=
  for candidate in python3 python3.11 python3.10 python3.9 python; do
    if supported "$candidate"; then
      python=$candidate
      break
    fi
  done
  [ -n "$python" ] || fail \
    "dpfl needs Python 3.9, 3.10 or 3.11, the only ones TensorFlow Federated 0.87 is published for; found $(python3 --version 2>&1 || echo none). Set PYTHON to the path of one."
fi

# Everything that decides what is in the environment.
wanted="$("$python" --version) $PWD $(cat requirements.txt dpfl/requirements-tff.txt setup.py | cksum)"
stamp=.venv/dpfl-installed
is_whole() {
  for name in audit compare factorize privacy search sweep train; do
    [ -x ".venv/bin/dpfl-$name" ] || return 1
  done
  .venv/bin/python -c 'import dpfl' 2>/dev/null
}
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && is_whole; then
  exit 0
fi

echo "Setting up .venv with $("$python" --version) (about a minute)." >&2
rm -rf .venv
"$python" -m venv .venv || fail \
  "'$python -m venv .venv' failed; on Debian and Ubuntu the package python3-venv provides it."
# The lists are complete, so nothing is left to resolve: TensorFlow Federated's own pin
# of jaxlib names a version that is no longer published. Each file is checked against
# the digests in the lists.
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
  --no-compile --require-hashes -r dpfl/requirements-tff.txt -r requirements.txt
# pip would do this on one processor, for other packages' tests too. A file that is a
# template and no Python is no error.
.venv/bin/python -m compileall -qq -j 0 -x '/tests?/' .venv/lib || :
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
  --no-build-isolation -e .
echo "$wanted" > "$stamp"
