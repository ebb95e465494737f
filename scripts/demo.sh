#!/usr/bin/env bash
# Installs missing packages, builds Penstock, and trains a network on MNIST as a pipeline of two ranks for one epoch.
# Writes a trace for Perfetto and a picture of a step to build/demo.
#
#   scripts/demo.sh [FLAG...]    further flags of `penstock train`, which take precedence over those below
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/build.sh release
mkdir -p build/demo
exec build/release/bin/penstock train \
  --model mlp --hidden 512,512 --data data/mnist \
  --stages 2 --micro-batches 4 --schedule 1f1b \
  --batch-size 32 --epochs 1 --optimizer sgd --lr 0.01 --seed 1 \
  --log-every 10 --eval-every 1 --report --trace build/demo/trace.json --svg build/demo/step.svg "$@"
