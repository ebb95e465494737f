// Predicts and measures the step of two ranks whose layers wait, so that a busy machine changes neither much: what
// remains are the messages. Usage, in both processes: slow_link_program SCHEDULE KILOBYTES. Each message has so many
// kilobytes; the main process prints a line of JSON.
#include <iostream>
#include <string>
#include <vector>

#include "penstock/autotune/profile.h"
#include "penstock/base/clock.h"
#include "penstock/base/median.h"
#include "penstock/plan/planner.h"
#include "penstock/runtime/time_layers.h"
#include "penstock/trace/account.h"
#include "tests/autotune/slow_chain.h"

namespace {

using namespace penstock;

constexpr int micro_batches = 8, steps = 5;

int run(const std::string& schedule, std::int64_t kilobytes) {
  World world({.stages = 2});
  test::SlowChain chain({{10, 20}, {10, 20}, {10, 20}, {10, 20}});
  const std::int64_t rows = kilobytes * 1024 / 16;  // of four floats
  const BatchTensors inputs{torch::randn({micro_batches, rows, 4})}, targets{torch::randn({micro_batches, rows, 4})};
  PipelineOptions options{.micro_batches = micro_batches, .schedule = "auto"};
  options.sample = {inputs.front()};
  options.sample_targets = targets.front();
  const LayerCosts costs = profile(world, chain, squared_error, options, {.steps = 2, .passes_ms = 0});

  options.schedule = schedule;
  options.partition = "c";
  Pipeline pipeline(world, chain, squared_error, options);
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 1e-6); });
  std::vector<double> step_ms;
  for (int step = 0; step < steps + 2; ++step) {
    const std::int64_t begin = now_ns();
    pipeline.train_step(inputs, targets).wait();
    if (step >= 2) step_ms.push_back(ms_since(begin));
  }
  const Trace trace = pipeline.trace();
  if (world.is_main()) {
    Plan plan;
    plan.schedule = strip(pipeline.schedule());
    plan.stages = layers_by_stage(pipeline.stages());
    const Account of_step = account(trace);
    std::cout << "{\"bytes_per_ms\": " << costs.link.bytes_per_unit << ", \"latency_ms\": " << costs.link.latency
              << ", \"predicted_ms\": " << predict(plan, costs).makespan << ", \"measured_ms\": " << median(step_ms)
              << ", \"predicted_from_trace_ms\": " << of_step.predicted_ms << "}" << std::endl;
  }
  world.finish();
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return count == 3 ? run(arguments[1], std::stoll(arguments[2])) : 2;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    std::_Exit(1);  // at once: the other rank may still compute
  }
}
