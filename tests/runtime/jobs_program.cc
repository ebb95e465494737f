// The jobs of the tests as a program, with ranks that are threads or processes, to compare ways of running them:
//   jobs_program small SCHEDULE STAGES REPLICAS MICRO_BATCHES   every loss and every parameter, without rounding
//   jobs_program zero STAGES REPLICAS   the same losses and parameters with PipelineOptions::zero as without
//   jobs_program deep STAGES    every schedule: a line for each case with its losses and a hash of all parameters
//   jobs_program u STAGES       the same for the U-shaped network, in both precisions and with its buffers
//   jobs_program u:DEVICE STAGES   the same on a device, in fp32
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "penstock/model/stages.h"
#include "penstock/pipeline/profiler.h"
#include "penstock/world/rank_threads.h"
#include "tests/runtime/matrix_jobs.h"
#include "tests/runtime/outcome_line.h"
#include "tests/runtime/small_job.h"
#include "tests/runtime/zero_jobs.h"

namespace {

using namespace penstock;

void run_small(const std::vector<std::string>& arguments) {
  test::JobOptions options;
  options.pipeline.schedule = arguments.at(0);
  options.world.stages = std::stoi(arguments.at(1));
  options.world.replicas = std::stoi(arguments.at(2));
  options.pipeline.micro_batches = std::stoi(arguments.at(3));
  options.pipeline.seed = 5;
  World world(options.world);
  const test::JobOutcome outcome = test::run_small_job(world, options);
  // Every rank has the loss: one whose loss differs from rank 0's reports it here.
  require<Failure>(outcome.losses.size() == 5, outcome.losses.size(), " losses instead of 5");
  // The first four batches are alike, and the last one is smaller. What is sent at the end of a step may be described
  // after it.
  require<Failure>(outcome.costs[3].described == outcome.costs[1].described, "rank ", world.rank(), " described ",
                   outcome.costs[3].described - outcome.costs[1].described, " messages again");
  if (!world.is_main()) return;
  for (const double loss : outcome.losses) std::printf("loss %a\n", loss);
  for (const auto& [name, value] : outcome.parameters.pairs()) {
    const torch::Tensor flat = value.contiguous().flatten();
    std::printf("%s", name.c_str());
    for (std::int64_t i = 0; i < flat.numel(); ++i) std::printf(" %a", flat.data_ptr<float>()[i]);
    std::printf("\n");
  }
}

/// Equal steps send through the memory of the first ones. How many buffers are used at one time depends on when
/// messages arrive, but it is never more than a step has messages at both ends.
void run_steady(int stages) {
  World world({.stages = stages});
  test::SmallNetwork network;
  Pipeline pipeline(world, network, cross_entropy, {.micro_batches = 4, .seed = 5});
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  const auto [inputs, targets] = test::small_batches(2).front();
  constexpr std::uint64_t steps = 50;
  for (std::uint64_t step = 0; step < steps; ++step) pipeline.train_step(inputs, targets).loss();
  const MessageCosts costs = ranks_of(world).first().endpoint->message_costs();
  require<Failure>(costs.sent >= 4 * steps, costs.sent, " messages were sent");
  require<Failure>(costs.allocated <= 4 * costs.sent / steps, costs.allocated, " buffers were allocated for ", steps,
                   " steps of ", costs.sent / steps, " messages");
}

void run_zero(int stages, int replicas) {
  World world({.stages = stages, .replicas = replicas});
  for (const auto& clip_norm : {std::optional<double>(), std::optional(0.05)}) {
    const test::ZeroCase one{.stages = stages, .replicas = replicas, .clip_norm = clip_norm};
    const test::ZeroOutcome plain = test::run_zero_job(world, one, 0), zero = test::run_zero_job(world, one, 1);
    const std::string names = difference(plain, zero);
    require<Failure>(names.empty(), one.name(), ": zero changes ", names);
    if (world.is_main()) test::print_outcome(one.name(), zero.losses, zero.state);
  }
}

void run_deep(int stages) {
  World world({.stages = stages});
  for (const WeightGradients mode : {WeightGradients::stream, WeightGradients::fused})
    for (const test::MatrixCase& one : test::deep_cases(world.stages(), mode)) {
      const test::MatrixOutcome outcome = test::run_deep_job(world, one);
      for (const RankPeak& peak : outcome.peaks)
        require<Failure>(peak.measured == peak.predicted, one.name(), ": rank ", peak.rank.value(), " held ",
                         peak.measured, " micro-batches, predicted were ", peak.predicted);
      if (world.is_main()) test::print_outcome(one.name(), outcome.losses, outcome.state);
    }
}

void run_u(int stages, const std::string& device) {
  World world({.stages = stages});
  for (const Precision precision : {Precision::fp32, Precision::bf16})
    for (test::MatrixCase one : test::u_cases(world.stages(), precision)) {
      if (one.micro_batches != 5 || (precision == Precision::bf16 && !one.recompute)) continue;
      if (precision == Precision::bf16 && device != "cpu") continue;
      one.device = device;
      const test::MatrixOutcome outcome = test::run_u_job(world, one);
      if (world.is_main()) test::print_outcome(one.name(), outcome.losses, outcome.state);
    }
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> args(arguments + 1, arguments + count);
  try {
    if (args.size() == 5 && args[0] == "small") {
      run_small({args.begin() + 1, args.end()});
    } else if (args.size() == 3 && args[0] == "zero") {
      run_zero(std::stoi(args[1]), std::stoi(args[2]));
    } else if (args.size() == 2 && args[0] == "steady") {
      run_steady(std::stoi(args[1]));
    } else if (args.size() == 2 && args[0] == "deep") {
      run_deep(std::stoi(args[1]));
    } else if (args.size() == 2 && (args[0] == "u" || args[0].starts_with("u:"))) {
      run_u(std::stoi(args[1]), args[0] == "u" ? "cpu" : args[0].substr(2));
    } else {
      return 2;
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
