#!/usr/bin/env bash
# Builds and runs all tests: those that need LibTorch, then those that do not under the address sanitizer, and of these
# the ones that start threads under the thread sanitizer.
#
#   scripts/test.sh [PRESET...]    default: release asan tsan
#
# Every preset is run to its end; the exit code is not 0 if any of them failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

presets=("$@")
[[ ${#presets[@]} -gt 0 ]] || presets=(release asan tsan)

# The tests start MPI jobs, which Open MPI refuses to do as root without two variables. They are set for the tests only.
if [[ $(id -u) -eq 0 ]]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

failed=() times=()
# part NAME COMMAND...: runs it and notes how long it took.
part() {
  local name=$1 begin=$SECONDS
  shift
  if ! "$@"; then failed+=("$name"); fi
  times+=("$(printf '%-16s %4d s' "$name" $((SECONDS - begin)))")
}

part lint scripts/lint.sh
for preset in "${presets[@]}"; do
  runner=()
  # The thread sanitizer of gcc 12 fails if the kernel's address space randomisation is too wide for its shadow memory.
  if [[ $preset == tsan ]] && setarch "$(uname -m)" -R true 2> /dev/null; then runner=(setarch "$(uname -m)" -R); fi
  echo "test: $preset"
  targets=(all) which=()
  if [[ $preset == tsan ]]; then targets=(threaded_tests) which=(-L threads); fi
  part "$preset: build" scripts/build.sh "$preset" "${targets[@]}"
  # One more at a time than there are cores, because many tests wait for deadlines.
  part "$preset: tests" "${runner[@]}" ctest --preset "$preset" --parallel "$(($(nproc) + 1))" "${which[@]}"
done

printf 'test: %s\n' "${times[@]}"

if [[ ${#failed[@]} -gt 0 ]]; then
  echo "test: failed with ${failed[*]}" >&2
  exit 1
fi
echo "test: passed with ${presets[*]}"
