#!/usr/bin/env bash
# Builds Penstock after installing the packages it needs.
#
#   scripts/build.sh [PRESET] [TARGET...]
#     PRESET   release (default), dev, planning, asan, tsan, coverage or fuzz; see CMakePresets.json
#     TARGET   default: the program, build/PRESET/bin/penstock; all: also tests and examples
#
# CMAKE_BUILD_PARALLEL_LEVEL sets the number of parallel compilations; default: as many as cores and memory allow.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:-release}
targets=("${@:2}")
folder=build/$preset
case $preset in
  release | dev) needs=(); programs=(penstock_program penstock_runtime_program) ;;
  planning | asan | tsan | coverage) needs=(--planning); programs=(penstock_program) ;;
  fuzz) needs=(--planning --fuzz); programs=(fuzzers) ;;
  *) echo "build: there is no preset '$preset': release, dev, planning, asan, tsan, coverage, fuzz" >&2; exit 2 ;;
esac
[[ ${#targets[@]} -gt 0 ]] || targets=("${programs[@]}")

# A compilation of LibTorch's headers and 48 files needs up to 2.7 GB.
compilers_at_once() {
  local cores megabytes limit
  cores=$(nproc)
  megabytes=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
  limit=$(cat /sys/fs/cgroup/memory.max 2> /dev/null || echo max)
  if [[ $limit != max && $((limit / 1048576)) -lt $megabytes ]]; then megabytes=$((limit / 1048576)); fi
  local by_memory=$((megabytes / 2700))
  if [[ $by_memory -lt 1 ]]; then by_memory=1; fi
  echo $((cores < by_memory ? cores : by_memory))
}
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(compilers_at_once)}

scripts/bootstrap.sh "${needs[@]}"

# Configured only once: ninja reconfigures by itself when necessary.
if [[ ! -f $folder/build.ninja ]]; then
  mkdir -p "$folder"
  echo "build: configuring $folder"
  cmake --preset "$preset" > "$folder/configure.log" 2>&1 || { cat "$folder/configure.log" >&2; exit 1; }
fi

if [[ $(ninja -C "$folder" -n "${targets[@]}" | tail -n 1) != *"no work to do"* ]]; then
  echo "build: compiling in $folder, $CMAKE_BUILD_PARALLEL_LEVEL at a time; from nothing this takes minutes"
  # Progress is shown on terminals only.
  quiet=(--quiet)
  if [[ -t 1 ]]; then quiet=(); fi
  cmake --build "$folder" --target "${targets[@]}" -- "${quiet[@]}"
fi
if [[ $preset != fuzz ]]; then echo "build: $folder/bin/penstock is ready"; fi
