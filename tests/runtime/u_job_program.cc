// The U-shaped job as a program: `u_job_program STAGES` runs every schedule over that many ranks, threads or processes,
// in both precisions, and prints a line for each case: its losses and a hash of all parameters and buffers.
#include <cstdlib>
#include <iostream>

#include "tests/runtime/outcome_line.h"
#include "tests/runtime/u_job.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  using namespace penstock;
  try {
    World world({.stages = std::atoi(argv[1])});
    for (const Precision precision : {Precision::fp32, Precision::bf16})
      for (const test::UCase& one : test::u_cases(world.stages(), precision)) {
        if (one.micro_batches != 5 || (precision == Precision::bf16 && !one.recompute)) continue;
        const test::UOutcome outcome = test::run_u_job(world, one);
        if (!world.is_main()) continue;
        test::print_outcome(one.name(), outcome.losses, outcome.state);
      }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
