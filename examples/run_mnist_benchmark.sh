#!/usr/bin/env bash
# Runs mnist_benchmark with two processes; writes its pictures to build/mnist_benchmark.
#
#   examples/run_mnist_benchmark.sh [STEPS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

program=build/release/examples/mnist_benchmark
[[ -x $program ]] || { echo "run_mnist_benchmark: no $program: run scripts/build.sh first" >&2; exit 2; }
pictures=build/mnist_benchmark
mkdir -p "$pictures"
exec mpirun -n 2 "$program" "${1:-20}" "$pictures"
