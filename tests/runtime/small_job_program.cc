// The small job as a program: `small_job_program SCHEDULE STAGES REPLICAS MICRO_BATCHES`. Prints every loss and every
// parameter without rounding, from the main process, to compare ways of running it.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "tests/runtime/small_job.h"

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  using namespace penstock;
  try {
    test::JobOptions options;
    options.pipeline.schedule = argv[1];
    options.world.stages = std::atoi(argv[2]);
    options.world.replicas = std::atoi(argv[3]);
    options.pipeline.micro_batches = std::atoi(argv[4]);
    options.pipeline.seed = 5;
    World world(options.world);
    const test::JobOutcome outcome = test::run_small_job(world, options);
    // Every rank has the loss: one whose loss differs from rank 0's reports it here.
    if (!world.is_main()) return outcome.losses.size() == 5 ? 0 : 1;
    for (double loss : outcome.losses) std::printf("loss %a\n", loss);
    for (const auto& [name, value] : outcome.parameters) {
      const torch::Tensor flat = value.contiguous().flatten();
      std::printf("%s", name.c_str());
      for (std::int64_t i = 0; i < flat.numel(); ++i) std::printf(" %a", flat.data_ptr<float>()[i]);
      std::printf("\n");
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
