#!/bin/sh
# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs what dpfl says of cards: a training, kills, equal integers, benchmarks.
#
#   sh tools/card.sh results              # again: goes on with what is left
#   sh tools/card.sh rehearsal --quick    # at tiny sizes, on a processor too
#
# Each step leaves what it prints in a file of the folder, and benchmarks their rows as
# CSV. It is skipped where the file is, and begins only if the seconds that it takes on
# a card are left of MINUTES (9). Compiled programs are kept in a folder beside that of
# the results. PYTHON (python) has dpfl, and pfl and FedJAX for the steps of peers.
set -u
end=$(($(date +%s) + 60 * ${MINUTES:-9}))
mkdir -p "$1" && folder=$(cd "$1" && pwd) && cd "$(dirname "$0")/.." || exit 2
# A process compiles what an earlier one has not. Without XLA_FLAGS the tests choose
# programs that are not optimized.
export XLA_FLAGS="${XLA_FLAGS-}" XLA_PYTHON_CLIENT_PREALLOCATE=false \
  JAX_COMPILATION_CACHE_DIR="$folder-programs" \
  JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
rounds= size= kills=3 integers='jax and (vectors or rounds or bounds)'
if [ "${2:-}" = --quick ]; then
  rounds=--rounds=20 size=--quick kills=1 integers='jax and rounding'
fi
waiting=

# step NAME SECONDS MODULE ARGUMENTS...
step() {
  name=$1 seconds=$2 left=$((end - $(date +%s)))
  shift 2
  [ -e "$folder/$name.txt" ] && return
  if [ "$left" -ge "$seconds" ]; then
    echo "$ -m $*"
    if timeout "$left" "${PYTHON:-python}" -m "$@" > "$folder/$name.partial" 2>&1; then
      mv "$folder/$name.partial" "$folder/$name.txt"
      return
    fi
    echo "error: $name: $folder/$name.partial" >&2
  fi
  waiting="$waiting $name"
}

# rows NAME SECONDS ARGUMENTS...
rows() {
  name=$1 seconds=$2
  shift 2
  step "$name" "$seconds" experiments.benchmark --output="$folder/$name.csv" \
    --rows="$@" $size
}

step train 90 experiments.train --engine=jax --seed=1 --output_dir="$folder/train" $rounds
step kills 120 tools.soak --only --kills=$kills --mechanisms=l2_csgm
noisy=none,gaussian,csgm_0.1,ddg_clients,ddg_helpers peers=fedjax,pfl
rows cnn 120 cnn_100,$noisy --engine=jax --processes=3
rows cnn_peers 170 cnn_100,none --engine=jax --processes=2 --peers=$peers
rows lstm 110 lstm_100,none,csgm_0.1 --engine=jax --processes=3
rows lstm_peers 180 lstm_100,none --engine=jax --processes=2 --peers=$peers
rows thousand 70 cnn_1000,none,csgm_0.1 --engine=jax --processes=2
rows aggregation 150 jax_aggregation
step integers 120 pytest -q -p no:cacheprovider -o addopts=--import-mode=importlib \
  tests/arrays/test_same_integers.py tests/arrays/test_bounds.py -k "$integers"
[ -z "$waiting" ] && echo done && exit
echo "left, for the same command:$waiting"
exit 1
