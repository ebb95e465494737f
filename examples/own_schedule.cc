// Validates, simulates, draws and executes a schedule from a file, own_schedule.sched. Its losses are bitwise equal to
// those of 1F1B. Then shows the validation error of a copy with two instructions swapped.
//
//   build/release/examples/own_schedule [FILE]                 two threads
//   mpirun -n 2 build/release/examples/own_schedule [FILE]     two processes: the same numbers
#include <algorithm>
#include <iomanip>
#include <iostream>

#include <penstock/penstock.h>
#include <penstock/schedule/generate.h>
#include <penstock/schedule/simulate.h>
#include <penstock/schedule/text.h>
#include <penstock/schedule/timeline_grid.h>
#include <penstock/schedule/validate.h>
#include <torch/torch.h>

#include "arguments.h"
#include "data_folder.h"

namespace ps = penstock;

struct Network : ps::Cell {
  ps::Layer layer1 = add("layer1", [] { return torch::nn::Linear(784, 256); });
  ps::Layer relu1 = add("relu1", [] { return torch::nn::ReLU(); });
  ps::Layer layer2 = add("layer2", [] { return torch::nn::Linear(256, 10); });
  Network() {
    layer1.pipeline_stage = 0;
    layer2.pipeline_stage = 1;
  }
  ps::Value forward(ps::Value x) override { return layer2(relu1(layer1(ps::flatten(x, 1)))); }
};

void show(const ps::Schedule& schedule) {
  const ps::Simulation simulation = ps::simulate(schedule, ps::StageCosts::unit());
  std::cout << schedule.name << ": makespan " << simulation.makespan << ", bubble " << std::fixed
            << std::setprecision(1) << 100 * simulation.bubble_makespan << " %, micro-batches that each rank holds ";
  for (const int peak : simulation.peak_contexts) std::cout << peak << " ";
  std::cout << "\n" << ps::timeline_grid(schedule) << "\n" << std::defaultfloat << std::setprecision(9);
}

std::vector<double> train(ps::World& world, const ps::Schedule& schedule) {
  Network net;
  ps::Pipeline pipeline(world, net, ps::cross_entropy, {.micro_batches = schedule.micro_batches, .custom = schedule});
  pipeline.optimize_with(ps::sgd({.learning_rate = 0.05}));
  std::vector<double> losses;
  for (auto& [images, labels] : ps::mnist(data_folder(), {.batch_size = 32, .shuffle = false})) {
    losses.push_back(pipeline.train_step(images, labels).loss());
    if (losses.size() == 101) break;
  }
  return losses;
}

int main(int argc, char** argv) try {
  std::string file = EXAMPLES_FOLDER "/own_schedule.sched";
  Arguments("own_schedule", "Validates, simulates, draws and executes a schedule from a file.")
      .add("FILE", file, "the schedule")
      .parse(argc, argv);
  const ps::Schedule own = ps::load_schedule(file);
  ps::validate(own).require_ok(own);  // complete, ordered and free of deadlock
  const ps::Schedule usual = ps::generate("1f1b", {.ranks = 2, .micro_batches = own.micro_batches});

  ps::World world({.stages = 2});
  if (world.is_main()) {
    show(own);
    show(usual);
  }
  const std::vector<double> losses = train(world, own);
  const bool equal = losses == train(world, usual);
  if (!world.is_main()) return equal ? 0 : 1;
  for (std::size_t step = 0; step < losses.size(); step += 50)
    std::cout << "step " << step << ", loss is " << losses[step] << "\n";
  std::cout << (equal ? "all " : "NOT all ") << losses.size() << " losses are equal to 1f1b's, to the last bit\n";

  ps::Schedule swapped = own;
  const auto instruction = [&](const char* name) {
    return std::ranges::find(swapped.orders[0], ps::parse_instruction(name));
  };
  std::iter_swap(instruction("0F3"), instruction("0I3"));
  std::cout << "\nwith 0F3 and 0I3 swapped: " << ps::validate(swapped).reason << "\n"
            << ps::timeline_grid(swapped, {.marked = ps::validate(swapped).cell});
  return equal ? 0 : 1;
} catch (const std::exception& error) {
  return failed(error);
}
