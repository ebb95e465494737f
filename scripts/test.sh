#!/usr/bin/env bash
# Builds and runs all tests: those that need LibTorch, then those that do not under the address sanitizer, and of these
# the ones that start threads under the thread sanitizer.
#
#   scripts/test.sh [PRESET...]    default: release asan tsan
#
# Every preset is run to its end; the exit code is not 0 if any of them failed. Many tests wait for deadlines, so the
# presets behind the first are compiled meanwhile, at the lowest priority.
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

# build PRESET: compiles what the tests of a preset need.
build() {
  local targets=(all)
  if [[ $1 == tsan ]]; then targets=(threaded_tests); fi
  scripts/build.sh "$1" "${targets[@]}"
}
# build_later PRESET...
build_later() {
  renice -n 19 -p "$BASHPID" > /dev/null
  local preset failed=no
  for preset in "$@"; do build "$preset" || failed=yes; done
  [[ $failed == no ]]
}
# run_tests PRESET
run_tests() {
  local runner=() which=()
  if [[ $1 == tsan ]]; then
    which=(-L threads)
    # The thread sanitizer of gcc 12 fails if the kernel's address space randomisation is too wide for its shadow memory.
    if setarch "$(uname -m)" -R true 2> /dev/null; then runner=(setarch "$(uname -m)" -R); fi
  fi
  # One more at a time than there are cores, because many tests wait for deadlines.
  "${runner[@]}" ctest --preset "$1" --parallel "$(($(nproc) + 1))" "${which[@]}"
}

part lint scripts/lint.sh
first=${presets[0]} later=("${presets[@]:1}")
part "$first: build" build "$first"
if [[ ${#later[@]} -gt 0 ]]; then
  later_log=$(mktemp)
  set -m  # a process group of their own, so that none is left behind where this script is interrupted
  build_later "${later[@]}" > "$later_log" 2>&1 &
  later_builds=$!
  set +m
  trap 'kill -- "-$later_builds" 2> /dev/null || true; rm -f "$later_log"' EXIT
fi
echo "test: $first"
part "$first: tests" run_tests "$first"
if [[ ${#later[@]} -gt 0 ]]; then
  part "${later[*]}: build" wait "$later_builds"
  trap - EXIT
  cat "$later_log"
  rm -f "$later_log"
fi
for preset in "${later[@]}"; do
  echo "test: $preset"
  part "$preset: tests" run_tests "$preset"
done

printf 'test: %s\n' "${times[@]}"

if [[ ${#failed[@]} -gt 0 ]]; then
  echo "test: failed with ${failed[*]}" >&2
  exit 1
fi
echo "test: passed with ${presets[*]}"
