#!/usr/bin/env bash
# Trains mnist_annotated with one process for each of its two stages and PROCESSES / 2 replicas, and writes the output
# of every process, the losses, to log_output/1/rank.N/stdout.
#
#   examples/run_mnist_annotated.sh [PROCESSES] [FLAGS OF THE EXAMPLE ...]
#
# Environment variables: BUILD, the build folder (default: build/release); LOG_DIR, the log folder (default:
# log_output).
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
build="${BUILD:-$root/build/release}"
processes="${1:-2}"
(($# > 0)) && shift

for program in "$build/bin/penstock" "$build/examples/mnist_annotated"; do
  [[ -x $program ]] || { echo "run_mnist_annotated: no $program: run scripts/build.sh first" >&2; exit 2; }
done
logs="$(realpath -m "${LOG_DIR:-log_output}")"
cd "$root"  # where data/ is
exec "$build/bin/penstock" launch -n "$processes" --log-dir "$logs" -- "$build/examples/mnist_annotated" "$@"
