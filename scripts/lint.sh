#!/usr/bin/env bash
# Holds the tree to its layout (.clang-format), to its architecture (docs/architecture.md) and the planning library to
# .clang-tidy. Installs clang-format and clang-tidy; if that is not possible, it reports what it leaves out.
#
#   scripts/lint.sh [--fix]    --fix: formats instead of complaining
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/bootstrap.sh --planning --lint || echo "lint: the tools cannot be installed"

failed=no
mapfile -t sources < <(git ls-files -- '*.h' '*.cc' | grep -v '^tests/fuzz/corpus/')
if ! command -v clang-format > /dev/null; then
  echo "lint: clang-format is not here (apt-get install clang-format): the layout is not checked"
elif [[ ${1:-} == --fix ]]; then
  clang-format -i "${sources[@]}"
else
  clang-format --dry-run -Werror "${sources[@]}" || failed=yes
fi

python3 tools/check_includes.py . || failed=yes

if ! command -v clang-tidy > /dev/null; then
  echo "lint: clang-tidy is not here (apt-get install clang-tidy): its checks are left out"
else
  # Thirty files at a time, because most of the time goes into the headers that all of them include. Without a compilation
  # database: that of gcc names its precompiled headers, which clang cannot read. The two files left out need LibTorch.
  groups=$(mktemp -d)
  trap 'rm -rf "$groups"' EXIT
  for module in base plan schedule trace; do
    find "$PWD/src/penstock/$module" -name '*.cc' | grep -vE '/(device_copy|stream_marks)\.cc$' | sort |
      sed 's/.*/#include "&"/' | split --lines 30 --additional-suffix .cc - "$groups/$module-"
  done
  ls -S "$groups"/*.cc |
    xargs -P "$(nproc)" -I{} clang-tidy --quiet --config-file=.clang-tidy --checks=-bugprone-suspicious-include {} \
      -- -std=c++20 -Isrc 2> /dev/null || failed=yes
fi

[[ $failed == no ]] || { echo "lint: failed" >&2; exit 1; }
echo "lint: passed"
