#!/usr/bin/env bash
# Trains the examples to their goals, which takes too long for a test. Fails if one does not reach its goal. Writes
# losses as JSON lines to build/examples.
#
#   scripts/examples_full.sh [EXAMPLE...]    default: all examples with a goal
#
# The data is read from $PENSTOCK_DATA, else data.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

programs=build/release/examples
curves=build/examples
known=(resnet_trainer char_gpt)

say() { echo "examples_full: $*"; }

# best FILE FIELD: the largest value that a field has in a file of JSON lines.
best() {
  sed -n "s/.*\"$2\":\([0-9.e+-]*\).*/\1/p" "$1" | sort -g | tail -n 1
}

# least FILE FIELD: the smallest.
least() {
  sed -n "s/.*\"$2\":\([0-9.e+-]*\).*/\1/p" "$1" | sort -g | head -n 1
}

# falls_below NAME VALUE GOAL.
falls_below() {
  awk -v value="$2" -v goal="$3" 'BEGIN { exit !(value != "" && value < goal) }' ||
    { echo "examples_full: $1 came to $2; less than $3 is wanted" >&2; return 1; }
  say "$1 came to $2 (wanted: below $3)"
}

# reaches NAME VALUE GOAL: at least GOAL.
reaches() {
  awk -v value="$2" -v goal="$3" 'BEGIN { exit !(value >= goal) }' ||
    { echo "examples_full: $1 came to $2; $3 is wanted" >&2; return 1; }
  say "$1 came to $2 (wanted: $3)"
}

# CIFAR-10's first 4,000 images: at least 45 % of the test images right.
run_resnet_trainer() {
  "$programs/resnet_trainer" 1 12 16 "$curves/resnet_trainer.json" &&
    reaches "resnet_trainer's test accuracy" "$(best "$curves/resnet_trainer.json" test_accuracy)" 0.45
}

# Tinyshakespeare: the loss on its last tenth, which is not trained on.
run_char_gpt() {
  "$programs/char_gpt" 4000 "$curves/char_gpt.json" &&
    falls_below "char_gpt's validation loss" "$(least "$curves/char_gpt.json" test_loss)" 1.7
}

examples=("$@")
[[ ${#examples[@]} -gt 0 ]] || examples=("${known[@]}")
for example in "${examples[@]}"; do
  if [[ " ${known[*]} " != *" $example "* ]]; then
    echo "examples_full: there is no example '$example': ${known[*]}" >&2
    exit 2
  fi
done
scripts/build.sh release "${examples[@]}"
mkdir -p "$curves"

failed=()
for example in "${examples[@]}"; do
  say "$example"
  begin=$SECONDS
  "run_$example" || failed+=("$example")
  say "$example took $((SECONDS - begin)) s"
done
if [[ ${#failed[@]} -gt 0 ]]; then
  echo "examples_full: failed: ${failed[*]}" >&2
  exit 1
fi
