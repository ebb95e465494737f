// A program that trains an annotated network on two ranks. The loss must fall.
#include <iostream>

#include <penstock/penstock.h>
#include <torch/torch.h>

namespace ps = penstock;

struct Network : ps::Cell {
  ps::Layer in = add("in", [] { return torch::nn::Linear(4, 16); });
  ps::Layer out = add("out", [] { return torch::nn::Linear(16, 2); });
  ps::Value forward(ps::Value x) override { return out(ps::relu(in(x))); }
};

int main() {
  Network network;
  network.in.pipeline_stage = 0;
  network.out.pipeline_stage = 1;
  ps::World world({.stages = 2});
  ps::Pipeline pipeline(world, network, ps::cross_entropy, {.micro_batches = 4, .schedule = "1f1b"});
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.5); });

  torch::manual_seed(1);
  const torch::Tensor inputs = torch::randn({32, 4});
  const torch::Tensor targets = inputs.sum(1).gt(0).to(torch::kInt64);
  double first = 0, last = 0;
  for (int step = 0; step < 50; ++step) {
    last = pipeline.train_step(inputs, targets).loss();
    if (step == 0) first = last;
  }
  std::cout << world.describe() << ": loss " << first << " -> " << last << "\n";
  return last < first / 2 ? 0 : 1;
}
