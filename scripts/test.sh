#!/usr/bin/env bash
# Builds and runs every test: all of Penstock, then its torch-free part under the address sanitizer, and of that the
# tests that start threads under the thread sanitizer.
#
#   scripts/test.sh [PRESET...]    default: release asan tsan
#
# Every preset is run to its end; the exit code is not 0 when any of them failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

presets=("$@")
[[ ${#presets[@]} -gt 0 ]] || presets=(release asan tsan)

# The tests start MPI jobs, which Open MPI refuses to root unless told twice. Only here: never for a user's own runs.
if [[ $(id -u) -eq 0 ]]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

failed=()
for preset in "${presets[@]}"; do
  runner=()
  # The thread sanitizer of gcc 12 cannot place its shadow memory where the kernel scatters mappings too widely.
  if [[ $preset == tsan ]] && setarch "$(uname -m)" -R true 2> /dev/null; then runner=(setarch "$(uname -m)" -R); fi
  echo "test: $preset"
  targets=(all) which=()
  if [[ $preset == tsan ]]; then targets=(threaded_tests) which=(-L threads); fi
  if ! scripts/build.sh "$preset" "${targets[@]}" || ! "${runner[@]}" ctest --preset "$preset" "${which[@]}"; then
    failed+=("$preset")
  fi
done

if [[ ${#failed[@]} -gt 0 ]]; then
  echo "test: failed with ${failed[*]}" >&2
  exit 1
fi
echo "test: passed with ${presets[*]}"
