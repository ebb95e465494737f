#!/usr/bin/env bash
# Runs tied_inference with a process for each of its four stages (8: two replicas), and keeps what every process says in
# pipeline_inference_logs/worker_N.log. Ends with the worst exit code of them.
#
#   examples/run_tied_inference.sh [PROCESSES] [FLAGS OF THE EXAMPLE ...]
#
# BUILD: the build's folder, build/release by default; LOG_DIR: of the logs, pipeline_inference_logs by default.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
build="${BUILD:-$root/build/release}"
processes="${1:-4}"
(($# > 0)) && shift

for program in "$build/bin/penstock" "$build/examples/tied_inference"; do
  [[ -x $program ]] || { echo "run_tied_inference: no $program: run scripts/build.sh first" >&2; exit 2; }
done
logs="${LOG_DIR:-pipeline_inference_logs}"
exec "$build/bin/penstock" launch -n "$processes" --log-dir "$logs" --log-layout worker -- \
  "$build/examples/tied_inference" "$@"
