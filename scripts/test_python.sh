#!/usr/bin/env bash
# Installs the Python package into a fresh environment, as a user does, and runs its tests: pytest, mypy, and, where a
# Python with torch is at hand, schedules that torch executes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
python3 -m venv "$environment"
if ! "$environment/bin/pip" install --quiet --disable-pip-version-check pytest hypothesis mypy numpy ./python; then
  if "$environment/bin/pip" download --quiet --no-deps --dest "$environment" nanobind 2> /dev/null; then exit 1; fi
  echo "test_python: skipped: the package registry cannot be reached"
  exit 0
fi
"$environment/bin/python" -m pytest -q python/tests
"$environment/bin/mypy" --config-file pyproject.toml --cache-dir "$environment/mypy" -p penstock
site=$("$environment/bin/python" -c "import penstock; print(penstock.__path__[0])")
for python in python3 build/venv/bin/python; do
  if "$python" -c "import torch" 2> /dev/null; then
    PYTHONPATH=$(dirname "$site") "$python" -m pytest -q python/tests/test_torch.py
    PYTHONPATH=$(dirname "$site") "$python" python/tests/torch_bridge.py
    break
  fi
done
