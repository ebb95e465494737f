#!/usr/bin/env bash
# Runs the long forms of the reliability tests, whose short forms scripts/test.sh runs, and prints a table of them. Takes
# several hours on two cores, which should do nothing else: some have bounds of time.
#
#   scripts/test_long.sh [NAME...]
#     NAME   kill_loop, system_calls, training_faults, damage, resume_matrix, failing_ranks, determinism, soak, two_hosts,
#            goodput, schedules or removals; without one, all of them in this order
#
# The output of each is build/long/NAME.log. Ends with 1 where one fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=(kill_loop system_calls training_faults damage resume_matrix failing_ranks determinism soak two_hosts goodput
  schedules removals)
names=("${@:-${all[@]}}")
for name in "${names[@]}"; do
  [[ " ${all[*]} " == *" $name "* ]] || { echo "test_long: there is no '$name': ${all[*]}" >&2; exit 2; }
done

scripts/build.sh release all
programs=build/release/tests penstock=build/release/bin/penstock tests=tests/reliability
job=("$penstock" data)
if mpirun=$(command -v mpirun); then job+=("$mpirun"); fi
# As in scripts/test.sh: Open MPI refuses root without these.
if [[ $(id -u) -eq 0 ]]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
mkdir -p build/long

# What runs a name, and its arguments for the table.
run() {
  case $1 in
    kill_loop) set -- kill_loop "${job[@]}" --kills 200 ;;
    system_calls) set -- system_calls "$programs/save_program" "$penstock" --all ;;
    training_faults) set -- training_faults "$programs/libfaulty_calls.so" "${job[@]}" --all ;;
    damage) set -- damage "${job[@]}" --flips 1000 --ends 1000 ;;
    resume_matrix) set -- resume_matrix "${job[@]}" --all ;;
    failing_ranks)
      set -- failing_ranks "$programs/failing_rank_program" "$programs/libfaulty_calls.so" "${job[@]}" --places 100 \
        --bound 2 --runs 1000 --at-once 3
      ;;
    determinism) set -- determinism "${job[@]}" --runs 60 ;;
    soak) set -- soak "$programs/soak_program" "${job[@]}" --steps 20000 --pipelines 500 ;;
    two_hosts) set -- two_hosts "${job[@]}" --bound 2 ;;
    goodput)
      set -- goodput "${job[@]}" --steps 150000 --every 1s --periods 15,60 --runs 3 --required 0.9,0.97
      ;;
    schedules)
      # 100,000 random schedules, validated and run with random delays; each run is checked afterwards.
      scripts/build.sh planning threaded_tests planning_tests && for program in threaded_tests planning_tests; do
        RC_PARAMS="max_success=100000" "build/planning/tests/$program" \
          --gtest_filter='EverySchedule.random_schedules_that_validate_accepts_run:ValidatorProperty.*' || return
      done
      return
      ;;
    removals)
      python3 tests/devices/removals.py
      return
      ;;
  esac
  python3 "$tests/$1_test.py" "${@:2}"
}

results=()
failed=0
for name in "${names[@]}"; do
  echo "test_long: $name, in build/long/$name.log"
  begin=$SECONDS
  outcome=passed
  run "$name" > "build/long/$name.log" 2>&1 || outcome="ended with $?"
  [[ $outcome == passed || $outcome == "ended with 77" ]] || failed=1
  results+=("$(printf '%-16s %6d s  %s' "$name" $((SECONDS - begin)) "${outcome/ended with 77/skipped}")")
done
printf '%s\n' "${results[@]}"
exit "$failed"
