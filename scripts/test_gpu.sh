#!/usr/bin/env bash
# Tests on a GPU: builds Penstock with a LibTorch for CUDA, runs what is meant for a GPU, and trains MNIST, ResNet-50 and
# GPT on one GPU with several ranks as threads. Ends with one line where there is no GPU, and with 1 where a check fails or
# a target of speed is missed (a pipeline of one rank at most 3 % above a plain loop, predictions within 10 %).
#
#   scripts/test_gpu.sh
#
# LibTorch is the one of CMAKE_PREFIX_PATH, or else of build/venv (see scripts/bootstrap.sh). CUDA_VISIBLE_DEVICES
# selects the GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { echo "test_gpu: $*"; }

# Targets of speed that were missed; the other checks go on.
missed=()

# Ends with 1 where a file of bench step has a predicted step or bubble that is more than a tenth off.
compare_prediction() {
  python3 - "$1" << 'END'
import json, sys
with open(sys.argv[1]) as file:
    step = json.load(file)
time_off = abs(step["predicted_ms"] / step["median_ms"] - 1)
bubble_off = abs(step["bubble_predicted"] - step["bubble_measured"])
print(f"predicted step off by {time_off:.1%}, bubble by {bubble_off:.1%} of the step")
sys.exit(time_off > 0.1 or bubble_off > 0.1)
END
}

if ! nvidia-smi --list-gpus > /dev/null 2>&1; then
  say "skipped: there is no GPU on this machine (nvidia-smi lists none)"
  exit 0
fi

scripts/build.sh release penstock_program penstock_runtime_program torch_tests benchmark_one-rank
penstock=build/release/bin/penstock

doctor=$("$penstock" doctor)
if grep -q "none that this LibTorch can use" <<< "$doctor"; then
  say "this LibTorch is not one for CUDA: install one in build/venv, or set CMAKE_PREFIX_PATH, and remove build/release" >&2
  exit 1
fi
echo "$doctor"

say "every schedule on one GPU, compared with one rank on it"
build/release/tests/torch_tests --gtest_filter='Gpu.*'

say "MNIST, 2 ranks on cuda:0"
"$penstock" train --model mlp --hidden 512,512 --data data/mnist --device cuda:0 --stages 2 --micro-batches 4 \
  --batch-size 32 --epochs 1 --lr 0.01 --seed 1 --log-every 500 --eval-every 1 --report

for model in resnet50 gpt; do
  for stages in 1 2 4; do
    say "$model, $stages ranks on cuda:0: predicted and measured step"
    "$penstock" bench step --model "$model" --device cuda:0 --stages "$stages" --micro-batches 8 --batch-size 32 \
      --json build/release/gpu-step.json
    compare_prediction build/release/gpu-step.json || missed+=("$model on $stages ranks: step or bubble as predicted")
  done
done
say "GPT of 24 layers, width 1024, in bf16: a pipeline of one rank beside a plain loop (the target is 1.03)"
build/release/benchmarks/one-rank --device cuda:0 --precision bf16 --layers 24 --width 1024 --heads 16 --context 512 \
  --batch-size 16 --micro-batches 4 --at-most 1.03 || missed+=("one rank: at most 3 % above a plain loop")
say "a small GPT, whose operations take the host longer than the GPU"
build/release/benchmarks/one-rank --device cuda:0 --layers 12 --width 128 --heads 4 --context 64 --batch-size 16 \
  --micro-batches 4

gpus=$(nvidia-smi --list-gpus | wc -l)
if [[ $gpus -gt 1 ]] && ! grep -q "NCCL *not built in" <<< "$doctor"; then
  say "MNIST, 2 ranks on 2 GPUs, as processes that NCCL joins, and that Gloo joins: the same weights"
  for transport in nccl gloo; do
    "$penstock" launch -n 2 -- train --transport "$transport" --model mlp --hidden 512,512 \
      --data data/mnist --device cuda --stages 2 --micro-batches 4 --batch-size 32 --steps 500 --lr 0.01 --seed 1 \
      --save-weights "build/release/mnist-$transport.safetensors"
  done
  cmp build/release/mnist-{nccl,gloo}.safetensors
  say "gpt, 2 ranks on 2 GPUs over NCCL: predicted and measured step"
  "$penstock" launch -n 2 -- bench step --transport nccl --model gpt --device cuda --stages 2 \
    --micro-batches 8 --batch-size 32
else
  say "skipped: two GPUs, or NCCL in this build, for --transport nccl"
fi
if [[ ${#missed[@]} -gt 0 ]]; then
  printf 'test_gpu: missed: %s\n' "${missed[@]}" >&2
  exit 1
fi
say "passed"
