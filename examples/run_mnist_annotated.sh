#!/usr/bin/env bash
# Trains mnist_annotated with one process for each of its two stages and as many replicas as there is space for, and keeps
# what every process says, the losses, in log_output/1/rank.N/stdout.
#
#   examples/run_mnist_annotated.sh [PROCESSES] [FLAGS OF THE EXAMPLE ...]
#
# BUILD: the build's folder, build/release by default; LOG_DIR: of the logs, log_output by default.
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
