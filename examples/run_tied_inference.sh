#!/usr/bin/env bash
# Runs tied_inference with a process for each of its four stages (8: two replicas), and writes the output of every
# process to pipeline_inference_logs/worker_N.log. The exit code is the largest of the processes.
#
#   examples/run_tied_inference.sh [PROCESSES] [FLAGS OF THE EXAMPLE ...]
#
# Environment variables: BUILD, the build folder (default: build/release); LOG_DIR, the log folder (default:
# pipeline_inference_logs).
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
