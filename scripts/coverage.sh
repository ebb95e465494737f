#!/usr/bin/env bash
# Measures which lines of the planning library its tests execute, and prints a table of its modules and the lines that
# no test executes. Fails below 95 %.
#
#   scripts/coverage.sh [--lines]    --lines: also each line that no test executes
#
# It builds build/coverage (without LibTorch and without optimisation), which takes minutes, and needs gcov, a part of
# gcc. Executables of tests run several times, so each run begins from nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=build/coverage
scripts/build.sh coverage all
find "$folder" -name '*.gcda' -delete
# Not the tests of the package and of headers, which compile; each test counts, whether it passes or not.
# A program that counts writes files of its own, and says so where it cannot: tests of that fail.
ctest --test-dir "$folder" --output-on-failure --parallel "$(nproc)" --exclude-regex '^(arch|package|scripts)\.' ||
  echo "coverage: some tests failed; what they executed counts" >&2
python3 tools/line_coverage.py "$folder" src/penstock --least 95 "$@"
