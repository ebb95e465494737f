#!/usr/bin/env bash
# Builds and runs all tests: those that need LibTorch, then those that do not under the address sanitizer, and of these
# the ones that start threads under the thread sanitizer; and the Python package, in a fresh environment.
#
#   scripts/test.sh [PRESET...]    default: release asan tsan
#
# Lint, the Python package and the builds of the other presets run beside the tests of the first one, in the time that these leave: many wait
# for deadlines. Every preset is run to its end; the exit code is not 0 if any of them failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

presets=("$@")
[[ ${#presets[@]} -gt 0 ]] || presets=(release asan tsan)

# The tests start MPI jobs, which Open MPI refuses to do as root without two variables. They are set for the tests only.
if [[ $(id -u) -eq 0 ]]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

notes=$(mktemp -d) beside=""
touch "$notes/failed"
end() {
  [[ -z $beside ]] || kill -- "-$beside" 2> /dev/null || true
  rm -rf "$notes"
}
trap end EXIT

# part NAME COMMAND...: runs it and notes how long it took, and whether it failed.
part() {
  local name=$1 begin=$SECONDS
  shift
  if ! "$@"; then echo "$name" >> "$notes/failed"; fi
  printf 'test: %-16s %4d s\n' "$name" $((SECONDS - begin)) >> "$notes/times"
}

build() {
  local targets=(all)
  if [[ $1 == tsan ]]; then targets=(threaded_tests); fi
  part "$1: build" scripts/build.sh "$1" "${targets[@]}"
}

run_tests() {
  local runner=() which=()
  # The thread sanitizer of gcc 12 fails if the kernel's address space randomisation is too wide for its shadow memory.
  if [[ $1 == tsan ]] && setarch "$(uname -m)" -R true 2> /dev/null; then runner=(setarch "$(uname -m)" -R); fi
  if [[ $1 == tsan ]]; then which=(-L threads); fi
  echo "test: $1"
  part "$1: tests" "${runner[@]}" ctest --preset "$1" --parallel "$(($(nproc) + 1))" "${which[@]}"
}

build "${presets[0]}"
# At the lowest priority: of its session, where the kernel shares processors between sessions, and of its processes.
export -f part build
export notes
# shellcheck disable=SC2016
setsid bash -euo pipefail -c '
  { echo 19 > /proc/self/autogroup; } 2> /dev/null || true
  renice -n 19 $$ > /dev/null
  part lint scripts/lint.sh
  for preset in "$@"; do build "$preset"; done
  part python scripts/test_python.sh' beside "${presets[@]:1}" > "$notes/beside.log" 2>&1 &
beside=$!
run_tests "${presets[0]}"
wait "$beside" || echo "lint or a build" >> "$notes/failed"
beside=""
cat "$notes/beside.log"
for preset in "${presets[@]:1}"; do run_tests "$preset"; done

cat "$notes/times"
if [[ -s $notes/failed ]]; then
  echo "test: failed with $(paste -sd ' ' "$notes/failed")" >&2
  exit 1
fi
echo "test: passed with ${presets[*]}"
