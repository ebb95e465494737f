#!/usr/bin/env bash
# Runs mnist_benchmark with two processes; writes its pictures to mnist_benchmark in the folder above BUILD.
#
#   examples/run_mnist_benchmark.sh [STEPS]
#
# Environment variable: BUILD, the build folder (default: build/release).
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
build="$(realpath -m "${BUILD:-$root/build/release}")"
program="$build/examples/mnist_benchmark"
[[ -x $program ]] || { echo "run_mnist_benchmark: no $program: run scripts/build.sh first" >&2; exit 2; }
pictures="$(dirname "$build")/mnist_benchmark"
mkdir -p "$pictures"
cd "$root"  # where data/ is
exec mpirun -n 2 "$program" "${1:-20}" "$pictures"
