#!/usr/bin/env bash
# Installs the packages that Penstock's build needs and this machine lacks.
#
#   scripts/bootstrap.sh [--planning] [--fuzz] [--lint]
#     --planning  without LibTorch and MPI, for the presets planning, asan, tsan and fuzz
#     --fuzz      also clang with libFuzzer
#     --lint      also clang-format and clang-tidy
#
# Packages come from apt (through sudo when not root). LibTorch is taken from CMAKE_PREFIX_PATH, Torch_DIR or a Python
# that can import torch; else pip installs it into build/venv. pip's own settings and variables apply: to get a CPU
# build, set an index that has one (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

torch_version=2.13.0
torch_minimum=2.5
safetensors_version=0.8.0
log=build/bootstrap.log

want_torch=yes
want_fuzz=no
want_lint=no
for argument in "$@"; do
  case $argument in
    --planning) want_torch=no ;;
    --fuzz) want_fuzz=yes ;;
    --lint) want_lint=yes ;;
    *) echo "usage: scripts/bootstrap.sh [--planning] [--fuzz] [--lint]" >&2; exit 2 ;;
  esac
done

pip_install() { quietly build/venv/bin/python -m pip install --disable-pip-version-check --no-compile "$@"; }
say() { echo "bootstrap: $*"; }
fail() { echo "bootstrap: $*" >&2; exit 1; }

# Runs a command with its output in the log; prints the end of the log if the command fails.
quietly() {
  mkdir -p build
  "$@" > "$log" 2>&1 || { tail -n 20 "$log" >&2; fail "failed: $* (all of it in $log)"; }
}

# Prints the path of LibTorch; nothing if it is not found.
find_torch() {
  local root below python
  local -a roots=()
  IFS=':;' read -ra roots <<< "${Torch_DIR:-}:${CMAKE_PREFIX_PATH:-}"
  for root in "${roots[@]}"; do
    for below in "" /Torch /share/cmake/Torch; do
      [[ ! -f $root$below/TorchConfig.cmake ]] || { echo "$root$below"; return; }
    done
  done
  for python in python3 build/venv/bin/python; do
    ! "$python" cmake/where_is_torch.py "$torch_minimum" 2> /dev/null || return 0
  done
}

# Tools count as installed if they can be run, libraries if dpkg lists them.
missing=()
need_tool() { "${@:2}" > /dev/null 2>&1 || missing+=("$1"); }
need_tool g++ g++ --version
need_tool cmake cmake --version
need_tool ninja-build ninja --version
need_tool git git --version
need_tool python3 python3 --version

libraries=(zlib1g-dev libcli11-dev nlohmann-json3-dev libspdlog-dev libxxhash-dev libgtest-dev librapidcheck-dev
  libtomlplusplus-dev libpcre2-dev libutf8proc-dev libsentencepiece-dev)
torch=""
if [[ $want_torch == yes ]]; then
  libraries+=(libopenmpi-dev openmpi-bin libblis-serial-dev)
  torch=$(find_torch)
  [[ -n $torch ]] || need_tool python3-venv python3 -c "import ensurepip, venv"
fi
if [[ $want_lint == yes ]]; then
  need_tool clang-format clang-format --version
  need_tool clang-tidy clang-tidy --version
fi
if [[ $want_fuzz == yes ]]; then
  need_tool clang clang++ --version
  # The names of the packages of libFuzzer and the sanitizers contain clang's version.
  clang_number=$({ clang++ -dumpversion || apt-cache depends clang | sed -n 's/.*Depends: clang-//p'; } 2> /dev/null)
  libraries+=("libclang-rt-${clang_number%%.*}-dev")
fi

if command -v dpkg-query > /dev/null; then
  installed=$(dpkg-query --show --showformat '${db:Status-Status} ${Package}\n' "${libraries[@]}" 2> /dev/null || true)
  for library in "${libraries[@]}"; do
    grep -qx "installed $library" <<< "$installed" || missing+=("$library")
  done
else
  say "no dpkg here, so these are taken to be installed: ${libraries[*]}"
fi

if [[ ${#missing[@]} -gt 0 ]]; then
  as_root=()
  if [[ $(id -u) -ne 0 ]]; then
    as_root=(sudo)
    # Without a terminal, sudo must not ask for a password.
    [[ -t 0 ]] || as_root+=(-n)
  fi
  if ! command -v apt-get > /dev/null || { [[ ${#as_root[@]} -gt 0 ]] && ! "${as_root[@]}" true 2> /dev/null; }; then
    fail "missing and not to be installed from here (no apt, or neither root nor sudo): ${missing[*]}"
  fi
  say "installing packages: ${missing[*]}"
  apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get)
  quietly "${apt[@]}" update
  quietly "${apt[@]}" install --yes --no-install-recommends "${missing[@]}"
fi

if [[ $want_torch == yes && -z $torch ]]; then
  say "installing LibTorch: torch==$torch_version with pip into build/venv"
  [[ -x build/venv/bin/python ]] || quietly python3 -m venv build/venv
  pip_install "torch==$torch_version"
  torch=$(find_torch)
  [[ -n $torch ]] || fail "torch==$torch_version is installed in build/venv but not to be found there (see $log)"
fi

# Another reader of checkpoints, for one test (cli.python_reads_weights), which is skipped without it.
if [[ -x build/venv/bin/python && $want_torch == yes ]] &&
  ! build/venv/bin/python -c "import safetensors" 2> /dev/null; then
  say "installing for a test: safetensors==$safetensors_version with pip into build/venv"
  # In a subshell, because a build needs none of it.
  (pip_install "safetensors==$safetensors_version") || say "without it the test cli.python_reads_weights is skipped"
fi
